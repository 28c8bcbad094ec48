package main

import (
	"errors"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const root = "../.."

// TestNoneIsStale finds defects whose line has changed: nobody would try them, and -quick might not
// notice.
func TestNoneIsStale(t *testing.T) {
	names := map[string]bool{}
	for _, m := range mutants() {
		if names[m.Name] {
			t.Errorf("two mutants are called %q", m.Name)
		}
		names[m.Name] = true
		file, changed, err := m.apply(root)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
			continue
		}
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if string(source) == changed {
			t.Errorf("%s changes nothing", m.Name)
		}
		if filepath.Ext(file) == ".go" {
			if _, err := parser.ParseFile(token.NewFileSet(), file, changed, 0); err != nil {
				t.Errorf("%s is no Go: %v", m.Name, err)
			}
		}
		if words := strings.Fields(m.Test); len(words) < 2 || !strings.HasPrefix(words[0], "./") {
			t.Errorf("%s: Test is %q, want packages and a pattern", m.Name, m.Test)
		}
	}
}

// TestVerdicts tries mutants of a module of its own.
func TestVerdicts(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":          "module m\n\ngo 1.26\n",
		"sum/sum.go":      "package sum\n\nfunc Sum(a, b int) int { return a + b }\n\nfunc Unused() int { return 1 }\n",
		"sum/sum_test.go": "package sum\n\nimport \"testing\"\n\nfunc TestSum(t *testing.T) {\n\tif Sum(2, 3) != 5 {\n\t\tt.Fatal(\"wrong\")\n\t}\n}\n",
	} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var out strings.Builder
	r := runner{root: dir, out: &out}
	all := []mutant{
		{Name: "killed", Dir: "sum", Find: `return (__) \+ (__)`, Put: "return $1 - $2", Test: "./sum Sum"},
		{Name: "survives", Dir: "sum", Find: `return 1`, Put: "return 2", Test: "./sum Sum"},
		{Name: "gone", Dir: "sum", Find: `return 3`, Put: "return 2", Test: "./sum Sum"},
		{Name: "everywhere", Dir: "sum", Find: `func`, Put: "", Test: "./sum Sum"},
		{Name: "no Go", Dir: "sum", Find: `return 1`, Put: "return x", Test: "./sum Sum"},
	}
	for i, want := range []error{nil, errSurvived, errStale, errStale, errBuild} {
		output, err := r.try(t.Context(), all[i])
		if !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v\n%s", all[i].Name, err, want, output)
		}
	}
	err := r.all(t.Context(), all[:2], 2)
	if err == nil || err.Error() != "not killed: survives" || !strings.Contains(out.String(), "1 mutants killed, 1 not") ||
		!strings.Contains(out.String(), "TestSum") {
		t.Errorf("all = %v, and printed\n%s", err, out.String())
	}
	if changed, err := os.ReadFile(filepath.Join(dir, "sum", "sum.go")); err != nil || !strings.Contains(string(changed), "a + b") {
		t.Errorf("the tree was changed: %s, %v", changed, err)
	}
}
