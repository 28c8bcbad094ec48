package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
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
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module m\n\ngo 1.26\n",
		"sum/sum.go": "package sum\n\n// safeguard: sum\nfunc Sum(a, b int) int { return a " +
			"+ b } // adds\n\nfunc Unused() int { return 1 } // safeguard: unused\n\nvar a = 3 " +
			"// safeguard: twice\nvar b = 3 // or so, safeguard: twice\n",
		"sum/sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) " +
			"{\n\tif Sum(2, 3) != 5 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
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
