package repo

import (
	"go/ast"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// TestExamples holds every package that others can import to having an example, which pkg.go.dev
// shows.
func TestExamples(t *testing.T) {
	report(t, checkExamples(tree()))
}

func checkExamples(tree fs.FS) (faults []string) {
	has := map[string]bool{}
	var dirs []string
	for _, s := range sources(tree) {
		switch {
		case s.test:
			has[s.dir()] = has[s.dir()] || slices.ContainsFunc(s.Decls, isExample)
		case !s.internal() && s.Name.Name != "main" && !slices.Contains(dirs, s.dir()):
			dirs = append(dirs, s.dir())
		}
	}
	for _, dir := range dirs {
		if !has[dir] {
			faults = append(faults, dir+" has no Example")
		}
	}
	return faults
}

func isExample(d ast.Decl) bool {
	f, ok := d.(*ast.FuncDecl)
	return ok && f.Recv == nil && strings.HasPrefix(f.Name.Name, "Example")
}

func TestExamplesCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"good/a.go": "package good", "good/a_test.go": "package good_test\nfunc ExampleX() {}",
		"bad/a.go": "package bad", "bad/a_test.go": "package bad\nfunc TestX() {}",
		"internal/i/i.go": "package i", "cmd/c/main.go": "package main",
		"cmd/c/internal/d/d.go": "package d",
	})
	expect(t, checkExamples(tree), "bad has no Example")
}
