// Command stress runs the tests that a change adds or edits, again and again: thirty times each, or
// for three minutes, whichever ends first, every second time with GOMAXPROCS=1, under the race
// detector, and none a second time because it failed. A test that fails once of thirty is to be
// mended before it costs somebody a change.
//
//	stress COMMIT    what differs from COMMIT, in what is committed and what is not
//
// Tests are known by syntax: a function whose code, comments apart, is not what it was, or is new.
// One that only calls a function of a package of tests (redistest.Crowd(t)) is edited where that
// is. A rule of the conformance suite is run on each store that has a TestConformance. What only
// calls an edited helper is not found.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

const (
	suite       = "backend/backendtest"
	versionSkip = "server version: " // as testserver.OnlyWhere says: that is leave to skip
)

var (
	errSkipped = errors.New("was skipped")
	errOld     = errors.New("was skipped on this version of a server")
)

func main() {
	s := stress{out: os.Stdout}
	flag.IntVar(&s.runs, "n", 30, "how often each is run")
	flag.DurationVar(&s.limit, "for", 3*time.Minute, "how long each is run at most, but once")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := s.all(ctx, flag.Arg(0)); err != nil {
		fmt.Fprintln(os.Stderr, "stress:", err)
		os.Exit(1) //nolint:gocritic // nothing is left for stop to do
	}
}

type stress struct {
	runs  int
	limit time.Duration
	out   io.Writer

	dir      string            // where the programs of tests are
	programs map[string]string // by package folder
	rules    map[string]bool   // true if it was run on a store
}

// A target is a test, or rules of the suite in one.
type target struct {
	dir, name string
	rules     []string
}

func (t target) String() string {
	if len(t.rules) > 0 {
		return fmt.Sprintf("./%s %s, %d rules", t.dir, t.name, len(t.rules))
	}
	return "./" + t.dir + " " + t.name
}

// pattern is for -test.run. A test of the suite may have set-ups between its name and the rules'.
func (t target) pattern() string {
	name := "^" + t.name + "$"
	if len(t.rules) == 0 {
		return name
	}
	var all []string
	for _, rule := range t.rules {
		levels := "/^" + strings.ReplaceAll(regexp.QuoteMeta(rule), "/", "$/^") + "$"
		all = append(all, name+levels, name+"/."+levels)
	}
	return strings.Join(all, "|")
}

func (s *stress) all(ctx context.Context, base string) error {
	if base == "" {
		return errors.New("say from which commit on: stress COMMIT")
	}
	targets, err := changed(ctx, base)
	if err != nil {
		return err
	}
	if len(targets) == 0 {
		fmt.Fprintf(s.out, "no test is new or edited since %s\n", base)
		return nil
	}
	if s.dir, err = os.MkdirTemp("", "stress"); err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(s.dir) }()
	s.programs, s.rules = map[string]string{}, map[string]bool{}
	for _, t := range targets {
		for _, rule := range t.rules {
			s.rules[rule] = false
		}
	}
	var failed []string
	skipped := 0
	for _, t := range targets {
		err := s.one(ctx, t)
		if err != nil {
			fmt.Fprintf(s.out, "%v: %v\n", t, err)
		}
		if errors.Is(err, errOld) {
			skipped++
		} else if err != nil {
			failed = append(failed, t.String())
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	fmt.Fprintf(s.out, "%d passed, %d skipped, %d failed\n", len(targets)-len(failed)-skipped,
		skipped, len(failed))
	for rule, ran := range s.rules {
		if !ran {
			failed = append(failed, rule+", which was run on no store")
		}
	}
	if len(failed) > 0 {
		return fmt.Errorf("not fit: %s", strings.Join(failed, ", "))
	}
	return nil
}

// one runs a test, and prints how often. The error has what the first run that failed said.
func (s *stress) one(ctx context.Context, t target) error {
	program, err := s.build(ctx, t.dir)
	if err != nil {
		return err
	}
	var first error
	limit := s.limit * time.Duration(max(len(t.rules), 1))
	start, n, failed := time.Now(), 0, 0
	for ; n < s.runs && (n == 0 || time.Since(start) < limit) && ctx.Err() == nil; n++ {
		run := exec.CommandContext(ctx, program, "-test.run", t.pattern(), "-test.v",
			"-test.timeout", "10m")
		run.Dir, run.Env = t.dir, os.Environ()
		if n%2 == 1 {
			run.Env = append(run.Env, "GOMAXPROCS=1")
		}
		output, err := run.CombinedOutput()
		said := string(output)
		for _, rule := range t.rules {
			// It need not be one for each store.
			s.rules[rule] = s.rules[rule] || strings.Contains(said, "/"+rule+"\n")
		}
		switch {
		case err != nil: // safeguard: flaky-once
			if failed++; first == nil {
				first = fmt.Errorf("%w\n%s", err, said)
			}
		// Some of it was skipped, or all.
		case strings.Count(said, "--- SKIP: ") > strings.Count(said, versionSkip):
			return fmt.Errorf("%w without leave:\n%s", errSkipped, said)
		case len(t.rules) > 0:
		case !strings.Contains(said, "=== RUN   "+t.name+"\n"):
			return errors.New("was not run: nothing of that name is built here")
		case strings.Contains(said, "\n--- SKIP"):
			return fmt.Errorf("%w:\n%s", errOld, said)
		}
	}
	fmt.Fprintf(s.out, "%v: %d of %d passed in %v\n", t, n-failed, n,
		time.Since(start).Round(time.Second))
	return first
}

// build makes the program of a package's tests.
func (s *stress) build(ctx context.Context, dir string) (string, error) {
	program, known := s.programs[dir]
	if known {
		return program, nil
	}
	program, err := filepath.Abs(filepath.Join(s.dir, fmt.Sprint(len(s.programs))))
	if err != nil {
		return "", err
	}
	build := exec.CommandContext(ctx, "go", "test", "-race", "-c", "-o", program, ".")
	build.Dir, build.Env = dir, os.Environ()
	if !inWorkspace(dir) {
		build.Env = append(build.Env, "GOWORK=off")
	}
	if said, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go test -c: %w\n%s", err, said)
	}
	s.programs[dir] = program
	return program, nil
}

// inWorkspace reports whether the module of a folder is one of go.work's.
func inWorkspace(dir string) bool {
	for ; ; dir = path.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil || dir == "." {
			break
		}
	}
	work, err := os.ReadFile("go.work")
	return err == nil && (dir == "." || slices.Contains(strings.Fields(string(work)), "./"+dir))
}

// changed are the tests that are new or edited since base.
func changed(ctx context.Context, base string) ([]target, error) {
	files, err := git(ctx, "diff", "--name-only", base, "--", "*.go")
	if err != nil {
		return nil, err
	}
	others, err := git(ctx, "ls-files", "--others", "--exclude-standard", "--", "*.go")
	if err != nil {
		return nil, err
	}
	names := slices.Concat(strings.Fields(files), strings.Fields(others))
	if slices.ContainsFunc(names, func(name string) bool { return path.Dir(name) == suite }) {
		// The entry of a rule may be in another file than its function.
		rest, err := filepath.Glob(suite + "/*.go")
		if err != nil {
			return nil, err
		}
		names = append(names, rest...)
	}
	before, now := functions{}, functions{}
	for _, name := range names {
		if text, err := git(ctx, "show", base+":"+name); err == nil { // else the file is new
			if err := before.add(name, text); err != nil {
				return nil, err
			}
		}
		text, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = now.add(name, string(text))
		}
		if err != nil {
			return nil, err
		}
	}
	edited := map[string]bool{} // "redistest.Crowd", and the names of rules
	var targets []target
	for f, code := range now {
		if before[f] == code {
			continue
		}
		edited[path.Base(f.dir)+"."+f.name] = true
		if f.test {
			targets = append(targets, target{dir: f.dir, name: f.name})
		}
	}
	all, err := tests()
	if err != nil {
		return nil, err
	}
	suites := rules(now, before, edited)
	for _, t := range all {
		if t.calls != "" && edited[t.calls] {
			targets = append(targets, target{dir: t.dir, name: t.name})
		}
		if len(suites) > 0 && strings.HasPrefix(t.name, "TestConformance") {
			targets = append(targets, target{t.dir, t.name, suites})
		}
	}
	slices.SortFunc(targets, func(a, b target) int {
		return strings.Compare(a.String(), b.String())
	})
	return slices.CompactFunc(targets, func(a, b target) bool {
		return a.String() == b.String()
	}), nil
}

// A function is one that is declared in a file, or the entry of a rule in the conformance suite.
type function struct {
	dir, name string
	test      bool // to be run by its name
}

// functions is the code of each, without comments.
type functions map[function]string

var testName = regexp.MustCompile(`^Test([^a-z].*)?$`)

func (fs functions) add(file, text string) error {
	set := token.NewFileSet()
	parsed, err := parser.ParseFile(set, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	code := func(n ast.Node) string {
		var b strings.Builder
		_ = printer.Fprint(&b, set, n) // to memory
		return b.String()
	}
	dir := path.Dir(file)
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		name := f.Name.Name
		if f.Recv != nil {
			name = code(f.Recv.List[0].Type) + "." + name
		}
		isTest := f.Recv == nil && strings.HasSuffix(file, "_test.go") &&
			testName.MatchString(name) && name != "TestMain"
		fs[function{dir, name, isTest}] = code(f)
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		if lit, ok := n.(*ast.CompositeLit); ok && dir == suite {
			if name, run := rule(lit); name != "" && run != "" {
				fs[function{dir, "rule " + name + " by " + run, false}] = code(lit)
			}
		}
		return true
	})
	return nil
}

// rule returns the name and the function of a rule of the suite: {name: "token/rises", run:
// tokenRises}.
func rule(lit *ast.CompositeLit) (name, run string) {
	for _, e := range lit.Elts {
		kv, ok := e.(*ast.KeyValueExpr)
		if !ok {
			continue
		}
		key, _ := kv.Key.(*ast.Ident)
		switch value := kv.Value.(type) {
		case *ast.BasicLit:
			if key != nil && key.Name == "name" {
				name = strings.Trim(value.Value, `"`)
			}
		case *ast.Ident:
			if key != nil && key.Name == "run" {
				run = value.Name
			}
		case *ast.FuncLit:
			if key != nil && key.Name == "run" {
				run = "a function of its own"
			}
		}
	}
	return name, run
}

// rules are the names of the rules that are new, or of which the entry or the function is edited.
func rules(now, before functions, edited map[string]bool) []string {
	var names []string
	for f, code := range now {
		entry, ok := strings.CutPrefix(f.name, "rule ")
		if name, run, _ := strings.Cut(entry, " by "); ok &&
			(before[f] != code || edited[path.Base(f.dir)+"."+run]) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// A test is a test function of the tree.
type test struct {
	dir, name string
	calls     string // "redistest.Crowd", if it does nothing else
}

// tests are all test functions of the tree.
func tests() ([]test, error) {
	var all []test
	err := filepath.WalkDir(".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (len(name) > 1 && name[0] == '.' || d.Name() == "testdata" ||
			name == "bin") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, d := range parsed.Decls {
			f, ok := d.(*ast.FuncDecl)
			if ok && f.Recv == nil && testName.MatchString(f.Name.Name) {
				all = append(all, test{path.Dir(filepath.ToSlash(name)), f.Name.Name, onlyCalls(f)})
			}
		}
		return nil
	})
	return all, err
}

// onlyCalls is the function of another package that f calls, if that is all that it does.
func onlyCalls(f *ast.FuncDecl) string {
	if f.Body == nil || len(f.Body.List) != 1 {
		return ""
	}
	statement, ok := f.Body.List[0].(*ast.ExprStmt)
	if !ok {
		return ""
	}
	call, ok := statement.X.(*ast.CallExpr)
	if !ok {
		return ""
	}
	of, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	if pkg, ok := of.X.(*ast.Ident); ok {
		return pkg.Name + "." + of.Sel.Name
	}
	return ""
}

func git(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", args...)
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("git %s: %w: %s", args[0], err, strings.TrimSpace(said.String()))
	}
	return string(out), nil
}
