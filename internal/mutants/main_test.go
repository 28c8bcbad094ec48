package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

// TestNoneIsStale finds defects whose place is gone, and those whose tests are.
func TestNoneIsStale(t *testing.T) {
	all := ours(t)
	names, used := map[string]bool{}, map[string]bool{}
	for _, m := range mutants() {
		if names[m.Name] {
			t.Errorf("two mutants are called %q", m.Name)
		}
		names[m.Name], used[m.At] = true, true
		if file, changed, err := m.apply(all); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		} else if changed == all[file] {
			t.Errorf("%s changes nothing", m.Name)
		}
		if err := tested(m); err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
	}
	for path, text := range all {
		for _, marker := range marked[filepath.Ext(path)].FindAllStringSubmatch(text, -1) {
			if !used[marker[2]] {
				t.Errorf("%s: no mutant removes the safeguard %s", path, marker[2])
			}
		}
	}
}

// ours are the sources of this module.
func ours(t *testing.T) sources {
	t.Helper()
	all, err := load(root)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// tested returns an error if a name in m.Test is of no test.
func tested(m mutant) error {
	dir, tests, _ := strings.Cut(m.Test, " ")
	if !strings.HasPrefix(dir, "./") || tests == "" {
		return fmt.Errorf("Test is %q, want a package and a pattern", m.Test)
	}
	var sources strings.Builder
	files, err := filepath.Glob(filepath.Join(root, dir, "*_test.go"))
	for _, file := range files {
		text, read := os.ReadFile(file)
		sources.Write(text)
		err = errors.Join(err, read)
	}
	if err != nil {
		return err
	}
	pattern, _, _ := strings.Cut(tests, "/")
	for name := range strings.SplitSeq(pattern, "|") {
		name = strings.NewReplacer("^", "", "$", `\(`).Replace(name)
		if !regexp.MustCompile(`(?m)^func Test\w*` + strings.TrimPrefix(name,
			"Test")).MatchString(sources.String()) {
			return fmt.Errorf("no test of %s is called %s", dir, name)
		}
	}
	return nil
}

// TestVerdicts tries mutants of a module of its own.
func TestVerdicts(t *testing.T) {
	dir := module(t, map[string]string{
		"sum/sum.go": "package sum\n\n// safeguard: sum\nfunc Sum(a, b int) int { return a " +
			"+ b } // adds\n\nfunc Unused() int { return 1 } // safeguard: unused\n\nvar a = 3 " +
			"// safeguard: twice\nvar b = 3 // or so, safeguard: twice\n",
		"sum/sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) " +
			"{\n\tif Sum(2, 3) != 5 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
	})
	var out strings.Builder
	read, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	r := runner{root: dir, sources: read, out: &out}
	all := []mutant{
		{
			Name: "killed", At: "sum", Find: `return (__) \+ (__)`, Put: "return $1 - $2",
			Test: "./sum Sum",
		},
		{Name: "survives", At: "unused", Find: `return 1`, Put: "return 2", Test: "./sum Sum"},
		{Name: "changed", At: "unused", Find: `return 3`, Put: "return 2", Test: "./sum Sum"},
		{Name: "in another line", At: "unused", Find: `3`, Put: "2", Test: "./sum Sum"},
		{Name: "gone", At: "product", Find: `return`, Put: "", Test: "./sum Sum"},
		{Name: "twice", At: "twice", Find: `3`, Put: "2", Test: "./sum Sum"},
		{Name: "no Go", At: "unused", Find: `return 1`, Put: "return x", Test: "./sum Sum"},
	}
	for i, want := range []error{
		nil, errSurvived, errStale, errStale, errStale, errStale,
		errBuild,
	} {
		output, err := r.try(t.Context(), all[i])
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v\n%s", all[i].Name, err, want, output)
		}
	}
	err = r.all(t.Context(), all[:2], 2)
	if err == nil || err.Error() != "not killed: survives" ||
		!strings.Contains(out.String(), "1 mutants killed, 1 not") ||
		!strings.Contains(out.String(), "TestSum") {
		t.Errorf("all = %v, and printed\n%s", err, out.String())
	}
	if changed, err := os.ReadFile(filepath.Join(dir, "sum", "sum.go")); err != nil ||
		!strings.Contains(string(changed), "a + b") {
		t.Errorf("the tree was changed: %s, %v", changed, err)
	}
}

// module writes the files of a module, and returns its directory.
func module(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	files["go.mod"] = "module m\n\ngo 1.26\n"
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// TestTogether builds several mutants at once, of which one is chosen for a run.
func TestTogether(t *testing.T) {
	dir := module(t, map[string]string{
		"calc/calc.go": `package calc

import "runtime"

const three = 3 // safeguard: three

func Max(a, b int) (most int) {
	if most = a; b > a { // safeguard: max
		most = b
	}
	return most // safeguard: most
}

func Set(to *int) { // sets, safeguard: set
	*to = three // safeguard: to
}

func Count(n int) (count int) {
next:
	for range n {
		count++
		continue next // safeguard: next
	}
	return count
}

func Line() int {
	_, _, line, _ := runtime.Caller(0)
	return line + 0 // safeguard: line
}

func Status() int {
	return 3 // safeguard: status
}
`,
		"calc/calc_test.go": `package calc

import (
	"os"
	"os/exec"
	"testing"
)

func TestMain(m *testing.M) {
	if os.Getenv("CHILD") != "" {
		os.Exit(Status())
	}
	os.Exit(m.Run())
}

func TestStatus(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = []string{"CHILD=1"}
	if _ = cmd.Run(); cmd.ProcessState.ExitCode() != 3 {
		t.Fatal("wrong")
	}
}

func TestMax(t *testing.T) {
	if Max(2, 3) != 3 || Max(4, 3) != 4 {
		t.Fatal("wrong")
	}
}

func TestSet(t *testing.T) {
	n := 0
	if Set(&n); n != 3 {
		t.Fatal("wrong")
	}
}

func TestCount(t *testing.T) {
	if Count(2) != 2 {
		t.Fatal("wrong")
	}
}

func TestLine(t *testing.T) {
	if Line() != 28 {
		t.Fatal("wrong")
	}
}
`,
	})
	together := []mutant{
		{Name: "less", At: "max", Find: `b > a`, Put: "b < a", Test: "./calc Max"},
		{Name: "zero", At: "most", Find: `return most`, Put: "return 0", Test: "./calc Max"},
		{Name: "unset", At: "to", Find: statement, Put: skipped, Test: "./calc Set"},
		{Name: "not seen", At: "most", Find: `return most`, Put: "return 0", Test: "./calc Line"},
		{Name: "child", At: "status", Find: `3`, Put: "4", Test: "./calc Status"},
		{Name: "line", At: "line", Find: `\+ 0`, Put: "- 0", Test: "./calc Line"},
	}
	alone := []mutant{
		{Name: "four", At: "three", Find: `3`, Put: "4", Test: "./calc Set"},
		{Name: "last", At: "next", Find: `continue`, Put: "break", Test: "./calc Count"},
		{Name: "type", At: "set", Find: `\*int\)`, Put: "*int, _ ...int)", Test: "./calc Set"},
	}
	broken := mutant{Name: "x", At: "most", Find: `most`, Put: "x", Test: "./calc Max"}
	read, err := load(dir)
	if err != nil {
		t.Fatal(err)
	}
	for name, chosen := range map[string][]mutant{
		"as it is":           slices.Concat(together, alone),
		"one does not build": slices.Concat(together, alone, []mutant{broken}),
	} {
		t.Run(name, func(t *testing.T) {
			var out strings.Builder
			r := runner{root: dir, sources: read, out: &out}
			if r.joined, err = r.join(t.TempDir(), chosen); err != nil {
				t.Fatal(err)
			}
			for _, m := range chosen {
				want := map[string]error{
					"not seen": errSurvived, "line": errSurvived, "type": errSurvived,
					"x": errBuild,
				}[m.Name]
				if output, err := r.try(t.Context(), m); !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v\n%s", m.Name, err, want, output)
				}
				if r.joined.has[m.Name] == slices.Contains(alone, m) {
					t.Errorf("%s is built with others: %t", m.Name, r.joined.has[m.Name])
				}
			}
			b := r.joined.tests(t.Context(), dir, "./calc")
			if broken := len(chosen) > len(together)+len(alone); broken != (b.err != nil) {
				t.Errorf("all together are built with %v", b.err)
			}
		})
	}
}
