// Command mutants breaks holdfast on purpose, one safeguard at a time, and runs the tests that must
// notice.
//
// The safeguards are about safety: against two who believe that they hold, tokens that fall, a
// release that frees another's hold. Each is one place in the source, which a comment marks that
// ends in "safeguard:" and a name, so that the place is found after it was renamed, reworded or
// moved. The tree is not touched: the changed file is laid over it by go test -overlay. A mutant
// that no test notices makes the command fail, and so does one that is stale: whose place is found
// nowhere any more, or twice.
//
//	go run ./internal/mutants              all of them
//	go run ./internal/mutants -run renew   those whose name or place matches
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
	"slices"
	"strings"
	"sync"
	"time"
)

// A mutant is one defect: of what follows the marker At, the first that Find matches becomes Put.
type mutant struct {
	Name string
	// the marker: "safeguard: At" ends the comment of the line, or is alone on the one before
	At   string
	Find string // a regular expression, see pattern, whose match begins in that line
	Put  string // with $1 for the first group of Find, as in [regexp.Regexp.Expand]
	// the package, and the -run pattern of the tests that must fail: "./locker Deadline|Suspend"
	Test string

	Dir  string // without At, as mutants had it before: Find is anywhere below it, once
	Slow bool   // as before, and says nothing
}

// What Find and Put may be if the place says it all. They say nothing about names.
const (
	condition = `(if (?:.*; )?|case )(.*)( \{|:)( //.*)?$`
	never     = `${1}false && ($2)$3`
	always    = `${1}true || ($2)$3`

	statement = `(\S.*)$`
	skipped   = `if false { $1 }`

	twoLines = `(.*)\n(.*)$`
	swapped  = "$2\n$1"

	luaCondition = `if (.*) then( .*)?$`
	luaNever     = `if false and ($1) then$2`
)

// The verdicts on a mutant. Only the first is good.
var (
	errStale    = errors.New("STALE")
	errSurvived = errors.New("SURVIVED")
	errBuild    = errors.New("DOES NOT BUILD")
)

func main() {
	names := flag.String("run", "", "regular expression of names and places")
	parallel := flag.Int("p", 2*runtime.GOMAXPROCS(0), "how many at once; most of it is waiting")
	verbose := flag.Bool("v", false, "print the output of the tests")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	match, err := regexp.Compile(*names)
	if err == nil {
		var chosen []mutant
		for _, m := range mutants() {
			if match.MatchString(m.Name + " " + m.At) {
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
	sources sources
	joined  *together
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
	if r.root = root; r.sources == nil {
		if r.sources, err = load(root); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp("", "mutants")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if r.joined, err = r.join(dir, chosen); err != nil {
		return err
	}
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
	fmt.Fprintf(r.out, "%-55s %-8s %5.1fs  %s\n", m.Name, verdict, took.Seconds(),
		firstFailure(output))
	if r.verbose || errors.Is(err, errBuild) {
		fmt.Fprintln(r.out, output)
	}
}

// try runs the tests of the mutant, which returns nil if they failed, as they should.
func (r *runner) try(ctx context.Context, m mutant) (output string, err error) {
	pkg, tests, _ := strings.Cut(m.Test, " ")
	if r.joined != nil && r.joined.has[m.Name] {
		b := r.joined.tests(ctx, r.root, pkg)
		run := func(mutant string) func(string) (string, error) {
			return func(tests string) (string, error) {
				return r.run(ctx, r.joined.overlay, pkg, b.binary, tests, mutant)
			}
		}
		if b.err == nil {
			output, err = judge(tests, run(m.Name))
			if err == nil && b.passes(failed(output, tests), run("")) {
				return output, nil
			}
		} // else it is tried alone: a process may have been started with another environment
	}
	return r.alone(ctx, m)
}

// alone lays one mutant over the tree, builds its tests and runs them.
func (r *runner) alone(ctx context.Context, m mutant) (output string, err error) {
	file, changed, err := m.apply(r.sources)
	if err != nil {
		return "", err
	}
	file = filepath.Join(r.root, file)
	dir, err := os.MkdirTemp("", "mutant")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	mutated := filepath.Join(dir, filepath.Base(file))
	overlay := filepath.Join(dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{file: mutated}})
	if err == nil {
		err = errors.Join(os.WriteFile(mutated, []byte(changed), 0o600),
			os.WriteFile(overlay, replace, 0o600))
	}
	if err != nil {
		return "", err
	}
	pkg, tests, _ := strings.Cut(m.Test, " ")
	binary := filepath.Join(dir, "tests")
	if out, err := build(ctx, overlay, r.root, pkg, binary); err != nil {
		return out, errBuild
	}
	return judge(tests, func(tests string) (string, error) {
		return r.run(ctx, overlay, pkg, binary, tests, m.Name)
	})
}

// build makes the test binary of a package.
func build(ctx context.Context, overlay, root, pkg, binary string) (output string, err error) {
	out, err := command(ctx, overlay, root,
		"go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o="+binary, pkg).CombinedOutput()
	return string(out), err
}

// run runs tests, and returns nil if one fails, errSurvived if all pass.
func (r *runner) run(ctx context.Context, overlay, pkg, binary, tests, mutant string) (
	output string, err error,
) {
	cmd := command(ctx, overlay, filepath.Join(r.root, pkg),
		binary, "-test.short", "-test.failfast", "-test.timeout=2m", "-test.paniconexit0",
		"-test.run="+tests, "-test.skip=^TestGolden") // which compares texts
	cmd.Env = append(cmd.Env, chosenBy+"="+mutant)
	out, err := cmd.CombinedOutput()
	switch output = string(out); {
	case err == nil:
		return output, errSurvived
	case firstFailure(output) == "":
		return output, fmt.Errorf("%w: %w\n%s", errBuild, err, output)
	}
	return output, nil
}

// judge runs tests. One that fails for lack of time would make any mutant look killed, so the one
// that failed must do so again.
func judge(tests string, run func(tests string) (string, error)) (output string, err error) {
	for range 3 {
		if output, err = run(tests); err != nil {
			return output, err
		}
		if !strings.HasPrefix(firstFailure(output), "Test") { // the binary died
			return output, nil
		}
		if again, err := run(failed(output, tests)); !errors.Is(err, errSurvived) {
			return again, err
		}
	}
	return output, errSurvived
}

// failed is the pattern of the one that failed, of tests.
func failed(output, tests string) string {
	test, _, _ := strings.Cut(firstFailure(output), "/")
	if !strings.HasPrefix(test, "Test") || strings.Contains(tests, "/") { // not all of its subtests
		return tests
	}
	return "^" + test + "$"
}

// command is to run with an overlay, and so is every go command that it runs: the tests of
// cmd/holdfast build the binary.
func command(ctx context.Context, overlay, dir, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"GOFLAGS="+strings.TrimSpace(os.Getenv("GOFLAGS")+" -overlay="+overlay))
	cmd.WaitDelay = time.Minute // for a server that its test has left
	return cmd
}

// sources are the Go and Lua files that ship, by their path below the module's root.
type sources map[string]string

// load reads the sources below root, of all modules.
func load(root string) (sources, error) {
	all := sources{}
	err := filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := filepath.Base(path)
		if e.IsDir() {
			if path != root && (strings.HasPrefix(name, ".") ||
				slices.Contains([]string{"golden", "testdata", "mutants"}, name)) {
				return fs.SkipDir
			}
			return nil
		}
		if strings.HasSuffix(name, "_test.go") || filepath.Ext(name) != ".go" &&
			filepath.Ext(name) != ".lua" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, path)
		all[relative] = string(text)
		return err
	})
	return all, err
}

// A comment that ends in a marker, with what is before it in its line, by the file's extension.
var marked = map[string]*regexp.Regexp{
	".go":  regexp.MustCompile(`(?m)^(.*?)[ \t]*//(?: .*)? safeguard: ([\w-]+)\n`),
	".lua": regexp.MustCompile(`(?m)^(.*?)[ \t]*--(?: .*)? safeguard: ([\w-]+)\n`),
}

// apply returns the file that the mutant changes, and what it makes of it.
func (m mutant) apply(all sources) (file, changed string, err error) {
	find, err := pattern(m.Find)
	if err != nil {
		return "", "", err
	}
	if m.At == "" {
		return m.applyBelow(find, all)
	}
	places := 0
	for path, text := range all {
		if !strings.Contains(text, " safeguard: "+m.At+"\n") { // which is quicker
			continue
		}
		for _, at := range marked[filepath.Ext(path)].FindAllStringSubmatchIndex(text, -1) {
			if text[at[4]:at[5]] != m.At {
				continue
			}
			places++
			line := text[at[2]:at[3]] // without its comment
			before, rest := text[:at[0]], line+"\n"+text[at[1]:]
			if strings.TrimSpace(line) == "" { // the marker is alone, and is about the next line
				before, rest = text[:at[1]], text[at[1]:]
			}
			found := find.FindStringSubmatchIndex(rest)
			if end := strings.Index(rest, "\n"); len(found) == 0 || found[0] > end {
				return "", "", fmt.Errorf("%w: %q is not in the line at %q, %s", errStale, m.Find,
					m.At, path)
			}
			put := find.ExpandString(nil, m.Put, rest, found)
			file, changed = path, before+rest[:found[0]]+string(put)+rest[found[1]:]
		}
	}
	if places != 1 {
		return "", "", fmt.Errorf("%w: the marker %q is there %d times", errStale,
			"safeguard: "+m.At, places)
	}
	return file, changed, nil
}

// applyBelow is apply without a marker.
func (m mutant) applyBelow(find *regexp.Regexp, all sources) (file, changed string, err error) {
	found := 0
	for path, text := range all {
		if strings.HasPrefix(path, m.Dir+"/") {
			if n := len(find.FindAllStringIndex(text, -1)); n > 0 {
				found += n
				file, changed = path, find.ReplaceAllString(text, m.Put)
			}
		}
	}
	if found != 1 {
		return "", "", fmt.Errorf("%w: %q is %d times below %s", errStale, m.Find, found, m.Dir)
	}
	return file, changed, nil
}

// pattern compiles an expression in which a space stands for any space, so that formatting does not
// matter, and two underscores for a name or a selector of names, so that renaming does not.
func pattern(find string) (*regexp.Regexp, error) {
	find = strings.ReplaceAll(find, " ", `\s+`)
	find = strings.ReplaceAll(find, "__", `[\w.]+`)
	return regexp.Compile("(?m)" + find)
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
