// Command skips judges a run of the tests: gotestsum, which runs a test again that failed, calls it
// at the end. Such a test is named as flaky and loses nobody's work; what a second run does not
// undo fails the run all the same:
//
//   - a broken promise about exclusion, tokens, losses and values: "safety:" in what a failing test
//     says;
//   - a failure in virtual time;
//   - a race, a leak of goroutines, a panic, in whichever test;
//   - a package that failed and no test of it did, as by a server that could not start;
//   - a test that began and did not end;
//   - a test that failed and did not pass later, under its full name;
//   - a test that was skipped without leave, as for want of a server. With -short every test may;
//     in make test those that are left to make test-all.
//
// It prints a line for each of them, how many tests were left to make test-all, a line that begins
// with FLAKY for each test that failed and passed, and "N passed, N failed, K flaky".
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

func main() {
	log, err := os.Open(os.Getenv("GOTESTSUM_JSONFILE"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "skips:", err)
		os.Exit(1)
	}
	v := verdict{
		short: slices.Contains(os.Args[1:], "-short"),
		main:  os.Getenv("HOLDFAST_TESTS") == "main",
	}
	if err := v.read(log); err != nil {
		v.faults = append(v.faults, err.Error())
	}
	v.print(os.Stdout)
	if len(v.faults) > 0 {
		os.Exit(1)
	}
}

// What is in the reasons that testserver.OnlyWhere and testserver.OnlyInAll give; that is leave.
const (
	versionSkip = "server version: "
	leftSkip    = "left to make test-all: "
)

// broken is what a failing test says when two held at once, a token fell, a loss was not told, or a
// value is not the last holder's: history.Broken. A test that breaks things on purpose says it and
// passes.
const broken = "safety: "

var (
	// What a line of output begins with that nothing undoes: the race detector, goleak, the
	// runtime.
	alarm = regexp.MustCompile(`^(WARNING: DATA RACE|goleak: |panic: |fatal error: )`)

	// Tests in virtual time, whose failure stands, as a seed fails again.
	virtual = regexp.MustCompile(
		`/internal/(simulation|redissim|simstore|history|linear) |/(record|etcdbackend) ` +
			`Test(Storm|SimulatedLeaderPauses)`)
)

// A test is a package's if it has no name.
type test struct{ Package, Test string }

func (t test) String() string { return strings.TrimSpace(t.Package + " " + t.Test) }

type event struct {
	test
	Action, Output, ImportPath string
}

// An attempt is one run of a package's tests, or of some of them.
type attempt struct {
	shuffle string
	running map[test]bool
	output  map[test][]string
	failed  bool // a test of it did
}

// A record is how often a test ended, how often it failed, and what it did last.
type record struct {
	ended, failed int
	last          string
	shuffle       string // of the first attempt that failed
}

type verdict struct {
	short  bool
	main   bool // make test, which leaves tests to make test-all
	left   int
	tests  map[test]*record
	order  []test // of tests, as they ended first
	faults []string
}

func (v *verdict) fault(format string, args ...any) {
	if f := fmt.Sprintf(format, args...); !slices.Contains(v.faults, f) {
		v.faults = append(v.faults, f)
	}
}

// read takes in what go test -json printed, of all attempts.
func (v *verdict) read(log io.Reader) error {
	v.tests = map[test]*record{}
	attempts := map[string]*attempt{}
	for lines := bufio.NewReader(log); ; {
		line, end := lines.ReadBytes('\n')
		var e event
		if json.Unmarshal(line, &e) == nil { // else it is no event
			v.take(e, attempts)
		}
		if errors.Is(end, io.EOF) {
			break
		}
		if end != nil {
			return end
		}
	}
	for _, a := range attempts {
		v.unended(a)
	}
	if len(v.order) == 0 {
		v.fault("no test was run")
	}
	for _, t := range v.order {
		if r := v.tests[t]; r.failed > 0 && r.last != "pass" {
			v.fault("failed, and did not pass later: %v", t)
		}
	}
	slices.Sort(v.faults)
	return nil
}

func (v *verdict) take(e event, attempts map[string]*attempt) {
	if e.Action == "build-fail" {
		v.fault("does not build: %s", e.ImportPath)
	}
	if e.Package == "" {
		return
	}
	a := attempts[e.Package]
	if a == nil || e.Action == "start" {
		v.unended(a)
		a = &attempt{running: map[test]bool{}, output: map[test][]string{}}
		attempts[e.Package] = a
	}
	switch e.Action {
	case "run":
		a.running[e.test] = true
	case "output":
		v.heard(a, e)
	case "pass", "fail", "skip":
		if e.Test == "" {
			v.packageEnded(a, e)
			delete(attempts, e.Package)
			return
		}
		v.testEnded(a, e)
	}
}

func (v *verdict) heard(a *attempt, e event) {
	if seed, ok := strings.CutPrefix(e.Output, "-test.shuffle "); ok && e.Test == "" {
		a.shuffle = strings.TrimSpace(seed)
	}
	said := a.output[e.test]
	// A line, and does not go on with one.
	begins := len(said) == 0 || strings.HasSuffix(said[len(said)-1], "\n")
	if begins && alarm.MatchString(e.Output) {
		v.fault("%v: %s", e.test, strings.TrimSpace(e.Output))
	}
	a.output[e.test] = append(said, e.Output)
}

func (v *verdict) testEnded(a *attempt, e event) {
	output := a.output[e.test]
	delete(a.output, e.test)
	delete(a.running, e.test)
	if e.Action == "skip" {
		switch why := reason(output); {
		case v.main && strings.Contains(why, leftSkip):
			v.left++
		case !v.short && !strings.Contains(why, versionSkip):
			v.fault("skipped without leave: %v: %s", e.test, why)
		}
		return
	}
	r := v.tests[e.test]
	if r == nil {
		r = &record{}
		v.tests[e.test] = r
		v.order = append(v.order, e.test)
	}
	r.ended++
	r.last = e.Action
	if e.Action == "pass" {
		return
	}
	r.failed++
	r.shuffle = cmp.Or(r.shuffle, a.shuffle)
	a.failed = true
	said := strings.Join(output, "")
	// safeguard: broken-stands
	if virtual.MatchString(e.Package+" "+e.Test) || strings.Contains(said, broken) {
		v.fault("a broken promise, which no second run undoes: %v", e.test)
	}
}

func (v *verdict) packageEnded(a *attempt, e event) {
	v.unended(a)
	if e.Action == "fail" && !a.failed {
		v.fault("failed without a test that did: %s: %s", e.Package, reason(a.output[e.test]))
	}
}

// unended is for an attempt that is over.
func (v *verdict) unended(a *attempt) {
	if a == nil {
		return
	}
	for t := range a.running {
		v.fault("began and did not end: %v", t)
	}
}

func (v *verdict) print(w io.Writer) {
	for _, f := range v.faults {
		fmt.Fprintln(w, f)
	}
	if v.left > 0 {
		fmt.Fprintf(w, "make test-all runs %d more: other set-ups of the same suites, and "+
			"what takes long\n", v.left)
	}
	var passed, failed, flaky int
	for _, t := range v.order {
		switch r := v.tests[t]; {
		case r.last == "fail":
			failed++
		case r.failed > 0:
			flaky++
			fmt.Fprintf(w, "FLAKY %v: failed %d of %d, shuffle seed %s\n", t, r.failed, r.ended,
				cmp.Or(r.shuffle, "none"))
		default:
			passed++
		}
	}
	if failed == 0 {
		failed = len(v.faults) // of which no test failed for good
	}
	fmt.Fprintf(w, "%d passed, %d failed, %d flaky\n", passed, failed, flaky)
}

// reason is what the test said, without the lines of the test runner.
func reason(output []string) string {
	var said []string
	for _, line := range output {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=== ") &&
			!strings.HasPrefix(line, "--- ") {
			said = append(said, line)
		}
	}
	return strings.Join(said, " ")
}
