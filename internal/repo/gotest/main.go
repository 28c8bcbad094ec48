// Command gotest runs go test and prints what a person reads: a line per package, the output of what failed, the reason of
// what was skipped, and "N passed, N failed". A skipped test is a failure unless allowed-skips.txt has it: a server that
// cannot start must not turn into a green run. With -short, skipping is what was asked for, and is allowed. With -again=N as the
// first argument a failed test may have a second chance, see again.
package main

import (
	"bufio"
	"context"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
)

//go:embed allowed-skips.txt
var allowedSkips string

func main() {
	args := os.Args[1:]
	n, second := "", false
	if len(args) > 0 {
		if n, second = strings.CutPrefix(args[0], "-again="); second {
			args = args[1:]
		}
	}
	r := goTest(args)
	if second {
		r.again(func(pkg string, tests []string) *report { return goTest(rerun(args, n, pkg, tests)) })
	}
	if !r.close() {
		os.Exit(1)
	}
}

// goTest runs go test and reports what it does.
func goTest(args []string) *report {
	r := newReport(os.Stdout, allowedSkips, slices.Contains(args, "-short"))
	cmd := exec.CommandContext(context.Background(), "go", append([]string{"test", "-json"}, args...)...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "gotest:", err)
		os.Exit(1)
	}
	readErr := r.read(stdout)
	if err := cmd.Wait(); err != nil && r.failed == 0 || readErr != nil {
		r.failed++ // go test knows of failures that no event tells, such as a bad flag
		r.whole = true
	}
	return r
}

// event is what go test -json prints; see go doc test2json.
type event struct {
	Action, Package, Test, Output string
}

// name identifies a test; a package has the empty test.
type name struct{ pkg, test string }

type report struct {
	out            io.Writer
	allowed        []string // "package test" of the tests that may be skipped
	short          bool
	output         map[name][]string // of what has not ended
	failedIn       map[string]int    // tests that failed, by package
	skips          []string          // one line each
	failures       map[name]string   // what the tests that failed said, by the outermost one
	unsteady       []string          // tests that passed at their second chance
	whole          bool              // something failed that is no test's failure
	passed, failed int
}

func newReport(out io.Writer, allowed string, short bool) *report {
	r := &report{out: out, short: short, output: map[name][]string{}, failedIn: map[string]int{}, failures: map[name]string{}}
	for line := range strings.Lines(allowed) {
		entry, _, _ := strings.Cut(line, "#")
		if f := strings.Fields(entry); len(f) == 2 {
			r.allowed = append(r.allowed, f[0]+" "+f[1])
		}
	}
	return r
}

// read takes events until the end. What is no event is printed as it is.
func (r *report) read(in io.Reader) error {
	lines := bufio.NewReader(in)
	for {
		line, err := lines.ReadString('\n')
		var e event
		switch {
		case line == "":
		case json.Unmarshal([]byte(line), &e) != nil:
			fmt.Fprint(r.out, line)
		default:
			r.take(e)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func (r *report) take(e event) {
	n := name{e.Package, e.Test}
	switch e.Action {
	case "build-output":
		fmt.Fprint(r.out, e.Output)
	case "output":
		r.output[n] = append(r.output[n], e.Output)
	case "pass", "skip", "fail":
		if e.Test == "" {
			r.endPackage(n, e.Action)
		} else {
			r.endTest(n, e.Action)
		}
		delete(r.output, n)
	}
}

func (r *report) endTest(n name, action string) {
	switch action {
	case "pass":
		r.passed++
	case "skip":
		r.skip(n)
	case "fail":
		r.failed++
		r.failedIn[n.pkg]++
		outermost, _, _ := strings.Cut(n.test, "/")
		r.failures[name{n.pkg, outermost}] += strings.Join(r.output[n], "")
		r.print(n)
	}
}

func (r *report) endPackage(n name, action string) {
	if action != "fail" {
		for _, line := range r.output[n] {
			if strings.HasPrefix(line, "ok") || strings.HasPrefix(line, "?") {
				fmt.Fprint(r.out, line)
			}
		}
		return
	}
	if r.failedIn[n.pkg] == 0 { // it did not build, or TestMain failed
		r.failed++
		r.whole = true
	}
	for running := range r.output { // cut short by a time-out or a crash
		if running.pkg == n.pkg && running.test != "" {
			r.whole = true
			r.print(running)
			delete(r.output, running)
		}
	}
	r.print(n)
}

// print prints what n said: its verdict first, and without the lines by which go test -v tells whose turn it is.
func (r *report) print(n name) {
	verdict := func(line string) bool { return n.test != "" && strings.HasPrefix(strings.TrimSpace(line), "--- ") }
	for _, line := range r.output[n] {
		if verdict(line) {
			fmt.Fprint(r.out, line)
		}
	}
	for _, line := range r.output[n] {
		if !verdict(line) && !strings.HasPrefix(line, "=== ") {
			fmt.Fprint(r.out, line)
		}
	}
}

func (r *report) skip(n name) {
	var why []string
	for _, line := range r.output[n] {
		if line = strings.TrimSpace(line); !strings.HasPrefix(line, "=== ") && !strings.HasPrefix(line, "--- ") {
			why = append(why, line)
		}
	}
	verdict := "skipped without leave"
	switch {
	case r.short:
		verdict = "skipped"
	case slices.Contains(r.allowed, n.pkg+" "+n.test):
		verdict = "skipped, as allowed"
	default:
		r.failed++
		r.whole = true
	}
	r.skips = append(r.skips, fmt.Sprintf("%s: %s %s: %s", verdict, n.pkg, n.test, strings.Join(why, " ")))
}

// close prints the end of the report and says whether all is well.
func (r *report) close() bool {
	for _, line := range r.skips {
		fmt.Fprintln(r.out, line)
	}
	for _, test := range r.unsteady {
		fmt.Fprintln(r.out, "UNSTEADY, to be mended: failed, then passed each time when run again alone:", test)
	}
	fmt.Fprintf(r.out, "%d passed, %d failed\n", r.passed, r.failed)
	return r.failed == 0
}
