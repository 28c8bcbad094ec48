package repo

import (
	"fmt"
	"go/ast"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLintConfig keeps names of the tree that are gone out of the linter's configuration, where
// nothing else misses them.
func TestLintConfig(t *testing.T) {
	report(t, checkLintConfig(tree()))
}

var (
	// lintMethod is a method as errcheck's list has it: (*module/locker.keeper).finish.
	lintMethod = regexp.MustCompile(`\(\*?` + regexp.QuoteMeta(module) +
		`/([\w/]+)\.(\w+)\)\.(\w+)`)
	lintPath = regexp.MustCompile(`\b(?:internal|locker|backend|redlock|tracing|waiting)/[\w/]+`)
)

func checkLintConfig(tree fs.FS) (faults []string) {
	text := read(tree, ".golangci.yml")
	for _, m := range lintMethod.FindAllStringSubmatch(text, -1) {
		if !hasMethod(tree, m[1], m[2], m[3]) {
			faults = append(faults, fmt.Sprintf(".golangci.yml: there is no method %s", m[0]))
		}
	}
	all := files(tree)
	for _, path := range lintPath.FindAllString(text, -1) {
		if !slices.ContainsFunc(all, func(name string) bool {
			return strings.HasPrefix(name, path)
		}) {
			faults = append(faults, fmt.Sprintf(".golangci.yml: there is nothing at %s", path))
		}
	}
	return faults
}

func hasMethod(tree fs.FS, dir, receiver, name string) bool {
	for _, s := range sources(tree) {
		for _, decl := range s.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.dir() == dir && receiverName(f) == receiver &&
				f.Name.Name == name {
				return true
			}
		}
	}
	return false
}

func TestLintConfigCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"locker/a.go": "package locker\nfunc (k *keeper) finish() {}",
		".golangci.yml": "- (*" + module + "/locker.keeper).finish\n- (*" + module +
			"/locker.keeper).end\n" +
			"- bodyclose # of locker/fence\n- path: locker/a\\.go\n",
	})
	expect(t, checkLintConfig(tree), "keeper).end", "nothing at locker/fence")
}
