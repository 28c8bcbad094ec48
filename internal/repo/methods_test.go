package repo

import (
	"fmt"
	"go/ast"
	"io/fs"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// counted is how a page says how many methods a backend has, and how many of them Base answers.
var counted = regexp.MustCompile("`backend\\.Backend`\\s+has\\s+(\\d+)\\s+methods,\\s+" +
	"of\\s+which\\s+`backend\\.Base`\\s+answers\\s+(\\d+)")

// miscounted is how a page or a comment says so without being held to it.
var miscounted = regexp.MustCompile(`(?i)\b(?:[a-z]+|\d+) (?:methods|verbs), (?:some|one attempt)`)

// TestMethodsAreCounted holds the pages to the number of methods that a backend has.
func TestMethodsAreCounted(t *testing.T) {
	report(t, checkMethods(tree()))
}

func checkMethods(tree fs.FS) (faults []string) {
	methods, base := 0, 0
	for _, s := range sources(tree) {
		if s.test || s.dir() != "backend" {
			continue
		}
		for _, decl := range s.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil && f.Name.IsExported() {
				if of, ok := f.Recv.List[0].Type.(*ast.Ident); ok && of.Name == "Base" {
					base++
				}
			}
		}
		ast.Inspect(s.File, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok || spec.Name.Name != "Backend" {
				return true
			}
			if of, ok := spec.Type.(*ast.InterfaceType); ok {
				for _, m := range of.Methods.List {
					if len(m.Names) == 1 && m.Names[0].IsExported() {
						methods++
					}
				}
			}
			return false
		})
	}
	said := 0
	for _, name := range files(tree) {
		if !strings.HasSuffix(name, ".md") && name != "backend/doc.go" {
			continue
		}
		text := read(tree, name)
		for _, m := range counted.FindAllStringSubmatch(text, -1) {
			if said++; m[1] != strconv.Itoa(methods) || m[2] != strconv.Itoa(base) {
				faults = append(faults, fmt.Sprintf("%s: %q, but it has %d, of which "+
					"Base answers %d", name, m[0], methods, base))
			}
		}
		for _, m := range miscounted.FindAllString(text, -1) {
			faults = append(faults, fmt.Sprintf("%s: %q is a count that nobody checks", name, m))
		}
	}
	if said == 0 {
		faults = append(faults, "no page says how many methods a backend has")
	}
	return faults
}

func TestCheckMethods(t *testing.T) {
	source := "// Package backend is.\npackage backend\n\ntype Backend interface " +
		"{\n\tA()\n\tB()\n\tmustEmbedBase()\n}\n\n" +
		"type Base struct{}\n\nfunc (Base) B() {}\nfunc (Base) mustEmbedBase() {}\n"
	page := func(text string) fs.FS {
		return fixture(map[string]string{"backend/backend.go": source, "docs/page.md": text})
	}
	expect(t, checkMethods(page("`backend.Backend` has 2 methods, of which "+
		"`backend.Base`\nanswers 1.")))
	expect(t, checkMethods(page("`backend.Backend` has 3 methods, of which "+
		"`backend.Base` answers 1.")), "but it has 2, of which Base answers 1")
	expect(t, checkMethods(page("`backend.Backend` has 2 methods, of which "+
		"`backend.Base` answers 2.")), "but it has 2, of which Base answers 1")
	expect(t, checkMethods(page("A backend is six methods, some 150 lines.")), "six methods",
		"no page says")
}
