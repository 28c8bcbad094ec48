package repo

import (
	"fmt"
	"go/ast"
	"io/fs"
	"regexp"
	"strings"
	"testing"
)

// TestNoStandIns finds ways for a program to replace the clock or the randomness that locks rely
// on. Tests that need other ones run in a testing/synctest bubble, or reach for what is not
// exported.
//
// covers: I12
func TestNoStandIns(t *testing.T) {
	report(t, checkStandIns(tree()))
}

var standIn = regexp.MustCompile(
	`^(With|Set)?(Clock|Now|TimeSource|Rand|RandSource|Seed|Sleep|Timer|Ticker)$`)

func checkStandIns(tree fs.FS) (faults []string) {
	for _, s := range sources(tree) {
		if s.test || s.internal() || s.Name.Name == "main" || s.dir() == "backend/backendtest" {
			continue
		}
		for _, decl := range s.Decls {
			ast.Inspect(decl, func(n ast.Node) bool {
				var names []*ast.Ident
				switch n := n.(type) {
				case *ast.BlockStmt:
					return false // what is inside of a function cannot be set from outside
				case *ast.Field:
					names = n.Names
				case *ast.FuncDecl:
					names = []*ast.Ident{n.Name}
				case *ast.ValueSpec:
					names = n.Names
				case *ast.TypeSpec:
					names = []*ast.Ident{n.Name}
				}
				for _, name := range names {
					if standIn.MatchString(name.Name) {
						faults = append(faults, fmt.Sprintf("%s: %s lets a program replace what "+
							"locks rely on", s.pos(name), name.Name))
					}
				}
				return true
			})
		}
		for _, imp := range s.imports() {
			if imp == "math/rand" || strings.HasSuffix(imp, "/clock") ||
				strings.HasSuffix(imp, "/clockwork") {
				faults = append(faults, fmt.Sprintf("%s imports %s", s.name, imp))
			}
		}
	}
	return faults
}

func TestNoStandInsCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"locker/a.go": `package locker

import _ "github.com/benbjohnson/clock"

type Config struct {
	Clock func() int
	now   func() int
}

func WithClock() {}
func Nowhere() { var Now int; _ = Now }

var Rand int
`,
		"locker/a_test.go":         "package locker\nfunc SetClock() {}",
		"backend/backendtest/a.go": "package backendtest\nfunc Seed() {}",
	})
	expect(t, checkStandIns(tree), "Clock lets", "WithClock lets", "Rand lets", "benbjohnson/clock")
}
