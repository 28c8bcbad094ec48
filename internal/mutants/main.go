// Command mutants breaks holdfast on purpose, one defect at a time, and runs the tests that must
// notice.
//
// The defects are about safety: two who believe that they hold, tokens that fall, a release that
// frees another's hold. Each is an edit of one place in the source, found by a regular expression
// that says as little as it can about names. The tree is not touched: the changed file is laid over
// it by go test -overlay. A mutant that no test notices makes the command fail, and so does one
// that is stale: that is found nowhere any more, or in several places.
//
//	go run ./internal/mutants              all of them
//	go run ./internal/mutants -quick       those whose tests are quick, for every change
//	go run ./internal/mutants -run renew   those whose name matches
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"time"
)

// A mutant is one defect. Below Dir, tests and golden files aside, what Find matches becomes Put.
type mutant struct {
	Name string
	Dir  string // below which there are Go or Lua files
	Find string // a regular expression, see pattern
	Put  string // with $1 for the first group of Find, as in [regexp.Regexp.Expand]
	Test string // packages, and the -run pattern of the tests that must fail: "./locker Deadline|Suspend"
	Slow bool   // takes longer than -quick has time for
}

// The verdicts on a mutant. Only the first is good.
var (
	errStale    = errors.New("STALE")
	errSurvived = errors.New("SURVIVED")
	errBuild    = errors.New("DOES NOT BUILD")
)

func main() {
	names := flag.String("run", "", "regular expression of names")
	quick := flag.Bool("quick", false, "leave out those whose tests take long")
	parallel := flag.Int("p", runtime.GOMAXPROCS(0), "how many at once")
	verbose := flag.Bool("v", false, "print the output of the tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	match, err := regexp.Compile(*names)
	if err == nil {
		var chosen []mutant
		for _, m := range mutants() {
			if match.MatchString(m.Name) && !(*quick && m.Slow) {
				chosen = append(chosen, m)
			}
		}
		r := runner{root: ".", out: os.Stdout, verbose: *verbose}
		err = r.all(ctx, chosen, *parallel)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1) //nolint:gocritic // nothing is left for stop to do
	}
}

// A runner tries mutants of the module at root.
type runner struct {
	root    string
	out     io.Writer
	verbose bool

	mu     sync.Mutex // guards out and failed
	failed []string
}

// all tries mutants, so many at once, and prints a line for each. It returns an error that names
// those that are not killed.
func (r *runner) all(ctx context.Context, chosen []mutant, parallel int) error {
	root, err := filepath.Abs(r.root)
	if err != nil {
		return err
	}
	r.root = root
	queue := make(chan mutant)
	var workers sync.WaitGroup
	for range max(parallel, 1) {
		workers.Go(func() {
			for m := range queue {
				start := time.Now()
				output, err := r.try(ctx, m)
				if ctx.Err() == nil {
					r.tell(m, output, err, time.Since(start))
				}
			}
		})
	}
	for _, m := range chosen {
		queue <- m
	}
	close(queue)
	workers.Wait()
	fmt.Fprintf(r.out, "%d mutants killed, %d not\n", len(chosen)-len(r.failed), len(r.failed))
	if len(r.failed) > 0 {
		return fmt.Errorf("not killed: %s", strings.Join(r.failed, ", "))
	}
	return ctx.Err()
}

func (r *runner) tell(m mutant, output string, err error, took time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	verdict := "killed"
	if err != nil {
		verdict = err.Error()
		r.failed = append(r.failed, m.Name)
	}
	fmt.Fprintf(r.out, "%-55s %-8s %5.1fs  %s\n", m.Name, verdict, took.Seconds(), firstFailure(output))
	if r.verbose || errors.Is(err, errBuild) {
		fmt.Fprintln(r.out, output)
	}
}

// try lays the mutant over the tree and runs its tests. It returns nil if they failed, as they
// should.
func (r *runner) try(ctx context.Context, m mutant) (output string, err error) {
	file, changed, err := m.apply(r.root)
	if err != nil {
		return "", err
	}
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	mutated := filepath.Join(dir, filepath.Base(file))
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
	if err == nil {
		err = errors.Join(os.WriteFile(mutated, []byte(changed), 0o600), os.WriteFile(overlay, replace, 0o600))
	}
	if err != nil {
		return "", err
	}
	words := strings.Fields(m.Test)
	packages, tests := words[:len(words)-1], words[len(words)-1]
	// A test that fails for lack of time would make any mutant look killed, so the one that failed
	// must do so again.
	for range 3 {
		if output, err = r.test(ctx, overlay, tests, packages); err != nil {
			return output, err
		}
		test, _, _ := strings.Cut(firstFailure(output), "/")
		if !strings.HasPrefix(test, "Test") { // the binary died
			return output, nil
		}
		if test = "^" + test + "$"; strings.Contains(tests, "/") { // not all of the subtests
			test = tests
		}
		if again, err := r.test(ctx, overlay, test, packages); !errors.Is(err, errSurvived) {
			return again, err
		}
	}
	return output, errSurvived
}

// test runs tests with an overlay. It returns nil if they failed, as they should.
func (r *runner) test(ctx context.Context, overlay, tests string, packages []string) (output string, err error) {
	args := []string{
		"test", "-short", "-count=1", "-failfast", "-timeout=2m", "-vet=off", "-run=" + tests, "-skip=^TestGolden",
	} // which compares texts
	cmd := exec.CommandContext(ctx, "go", append(args, packages...)...)
	cmd.Dir = r.root
	// For the go command that a test runs itself, too: those of cmd/holdfast build the binary.
	cmd.Env = append(os.Environ(), "GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	out, err := cmd.CombinedOutput()
	output = string(out)
	switch {
	case err == nil:
		return output, errSurvived
	case strings.Contains(output, "[build failed]") || strings.Contains(output, "[setup failed]"):
		return output, errBuild
	case firstFailure(output) == "":
		return output, fmt.Errorf("%w: %w\n%s", errBuild, err, output)
	}
	return output, nil
}

// apply returns the file that the mutant changes, and what it makes of it.
func (m mutant) apply(root string) (file, changed string, err error) {
	find, err := pattern(m.Find)
	if err != nil {
		return "", "", err
	}
	found := 0
	err = filepath.WalkDir(filepath.Join(root, m.Dir), func(path string, e fs.DirEntry, err error) error {
		name := filepath.Base(path)
		switch {
		case err != nil:
			return err
		case e.IsDir() && (name == "golden" || name == "testdata"):
			return fs.SkipDir
		case e.IsDir(), strings.HasSuffix(name, "_test.go"), filepath.Ext(name) != ".go" && filepath.Ext(name) != ".lua":
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if n := len(find.FindAllStringIndex(string(source), -1)); n > 0 {
			found += n
			file, changed = path, find.ReplaceAllString(string(source), m.Put)
		}
		return nil
	})
	if err != nil || found != 1 {
		return "", "", fmt.Errorf("%w: %q is %d times below %s", errStale, m.Find, found, m.Dir)
	}
	return file, changed, nil
}

// pattern compiles an expression in which a space stands for any space, so that formatting does not
// matter, and two underscores for a name or a selector of names, so that renaming does not.
func pattern(find string) (*regexp.Regexp, error) {
	find = strings.ReplaceAll(find, " ", `\s+`)
	find = strings.ReplaceAll(find, "__", `[\w.]+`)
	return regexp.Compile(find)
}

var failure = regexp.MustCompile(`(?m)^\s*--- FAIL: (\S+)|^(panic: .*|fatal error: .*)`)

// firstFailure is the innermost of the first test that failed, or why the test binary died.
func firstFailure(output string) (first string) {
	for _, f := range failure.FindAllStringSubmatch(output, -1) {
		if !strings.HasPrefix(f[1]+f[2], first) {
			break
		}
		first = f[1] + f[2]
	}
	return first
}
