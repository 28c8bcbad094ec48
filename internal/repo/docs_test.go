package repo

import (
	"fmt"
	"go/ast"
	"go/doc"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"strings"
	"testing"
	"unicode"
)

// undocumented are groups of fields that need no comment of their own. A group is what blank lines
// set apart in a struct; a comment at one of its fields is enough.
const undocumented = `
backend.Waiter.Owner # each field is what the claim's field of the same name says
waiting.Config.Mode  # the type says it all
`

// TestDocComments holds every package to a package comment, and every export of what others can
// import to a comment.
func TestDocComments(t *testing.T) {
	report(t, checkDocs(tree(), undocumented))
}

func checkDocs(tree fs.FS, allow string) (faults []string) {
	exceptions, faults := newList("undocumented", allow)
	packageComment := map[string]bool{}
	var dirs []string
	for _, s := range sources(tree) {
		if s.test {
			continue
		}
		if _, seen := packageComment[s.dir()]; !seen {
			dirs = append(dirs, s.dir())
		}
		packageComment[s.dir()] = packageComment[s.dir()] || s.Doc != nil
		if s.internal() || s.Name.Name == "main" {
			continue
		}
		d := docs{source: s, exceptions: exceptions}
		for _, decl := range s.Decls {
			d.declaration(decl)
		}
		faults = append(faults, d.faults...)
	}
	for _, dir := range dirs {
		if !packageComment[dir] {
			faults = append(faults, dir+" has no package comment")
		}
	}
	return append(faults, exceptions.unused()...)
}

// docs looks for exports without a comment in one file.
type docs struct {
	source
	exceptions list
	faults     []string
}

func (d *docs) fault(at ast.Node, what string) {
	if what = d.Name.Name + "." + what; !d.exceptions.allows(what) {
		d.faults = append(d.faults, fmt.Sprintf("%s: %s has no comment", d.pos(at), what))
	}
}

func (d *docs) declaration(decl ast.Decl) {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		receiver := receiverName(decl)
		if decl.Doc == nil && decl.Name.IsExported() &&
			(receiver == "" || ast.IsExported(receiver)) {
			d.fault(decl, dotted(receiver, decl.Name.Name))
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				d.typeSpec(decl, spec)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() && decl.Doc == nil && spec.Doc == nil &&
						spec.Comment == nil {
						d.fault(name, name.Name)
					}
				}
			}
		}
	}
}

func (d *docs) typeSpec(decl *ast.GenDecl, spec *ast.TypeSpec) {
	if !spec.Name.IsExported() {
		return
	}
	if spec.Doc == nil && (decl.Doc == nil || decl.Lparen.IsValid()) {
		d.fault(spec, spec.Name.Name)
	}
	switch typ := spec.Type.(type) {
	case *ast.StructType:
		for _, group := range d.groups(typ.Fields.List) {
			if first := exportedField(group); first != "" &&
				!slices.ContainsFunc(group, commented) {
				d.fault(group[0], dotted(spec.Name.Name, first))
			}
		}
	case *ast.InterfaceType:
		for _, method := range typ.Methods.List {
			for _, name := range method.Names {
				if name.IsExported() && !commented(method) {
					d.fault(method, dotted(spec.Name.Name, name.Name))
				}
			}
		}
	}
}

// groups cuts fields where a blank line stands between them.
func (d *docs) groups(fields []*ast.Field) (groups [][]*ast.Field) {
	last := 0
	for _, f := range fields {
		begin := f.Pos()
		if f.Doc != nil {
			begin = f.Doc.Pos()
		}
		if groups == nil || d.line(begin) > last+1 {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], f)
		last = d.line(f.End())
	}
	return groups
}

func exportedField(group []*ast.Field) string {
	for _, f := range group {
		for _, name := range f.Names {
			if name.IsExported() {
				return name.Name
			}
		}
	}
	return "" // embedded types speak for themselves
}

func commented(f *ast.Field) bool { return f.Doc != nil || f.Comment != nil }

func receiverName(f *ast.FuncDecl) string {
	if f.Recv == nil {
		return ""
	}
	typ := f.Recv.List[0].Type
	for {
		switch t := typ.(type) {
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.Ident:
			return t.Name
		default:
			panic(fmt.Sprintf("receiver of type %T", typ))
		}
	}
}

func dotted(receiver, name string) string {
	if receiver == "" {
		return name
	}
	return receiver + "." + name
}

func TestDocCommentsCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"a/doc.go": "// Package a is good.\npackage a",
		"a/a.go": `package a

// F is good.
func F() {}
func G() {}
func (t *T[K]) M() {}
func (u hidden) N() {}

// T is good.
type T[K any] struct {
	A int // good
	B int

	C, D int

	hidden int
	F
}

type U interface {
	// P is good.
	P()
	Q()
	q()
}

// Good for all.
const (
	X = 1
	Y = 2
)

var (
	V = 1 // good
	W = 2
)
`,
		"b/b.go":          "package b",
		"internal/i/i.go": "// Package i is good.\npackage i\nfunc Free() {}",
		"internal/j/j.go": "package j",
		"cmd/c/main.go":   "// Command c is good.\npackage main\nfunc Free() {}",
	})
	expect(t, checkDocs(tree, "a.T.C # reason\na.T.A # not needed\na.G #"),
		"b has no package comment", "internal/j has no package comment",
		"a.T.M has no", "a.U has no", "a.U.Q has no", "a.W has no", "a.G gives no reason",
		"a.T.A is not needed")
}

// TestLockersPage holds the page of package locker on pkg.go.dev to begin with a program, and to
// have no constants before its functions but those of callers: names for observers stand with a
// type.
func TestLockersPage(t *testing.T) {
	report(t, checkLockersPage(tree()))
}

func checkLockersPage(tree fs.FS) (faults []string) {
	fset, files := token.NewFileSet(), []*ast.File(nil)
	for _, s := range sources(tree) {
		if s.dir() != "locker" || s.test {
			continue
		}
		f, err := parser.ParseFile(fset, s.name, read(tree, s.name), parser.ParseComments)
		if err != nil {
			return []string{err.Error()}
		}
		files = append(files, f)
	}
	page, err := doc.NewFromFiles(fset, files, module+"/locker")
	if err != nil {
		return []string{err.Error()}
	}
	if _, code, _ := strings.Cut(page.Doc, "\n\n"); !strings.HasPrefix(code, "\tpackage main\n") {
		faults = append(faults, "locker: the first paragraph of the package comment is not "+
			"followed by a program")
	}
	for _, group := range page.Consts {
		for _, name := range group.Names {
			if name != "DefaultTTL" && name != "MinTTL" {
				faults = append(faults, fmt.Sprintf("locker.%s stands before Lock on pkg.go.dev; "+
					"give it a type of the package", name))
			}
		}
	}
	return faults
}

func TestLockersPageCanFail(t *testing.T) {
	const good = "// Package locker locks.\n//\n//\tpackage main\n//\n//\tfunc main() " +
		"{}\npackage locker\n\n"
	expect(t, checkLockersPage(
		fixture(map[string]string{"locker/a.go": good + "type Op = string\nconst OpA Op = " +
			"`a`\nconst DefaultTTL = 1\n"})))
	expect(t, checkLockersPage(fixture(map[string]string{
		"locker/a.go": good + "const OpA = `a`\n",
		"x/x.go":      "package x\nconst X = 1",
	})), "locker.OpA stands")
	expect(t, checkLockersPage(
		fixture(map[string]string{"locker/a.go": "// Package locker locks.\n//\n// " +
			"Much.\npackage locker\n"})), "not followed by")
}

// TestPicture holds the picture of docs/ARCHITECTURE.md to have every verb of a backend and every
// package that a URL opens.
func TestPicture(t *testing.T) {
	report(t, checkPicture(tree()))
}

func checkPicture(tree fs.FS) (faults []string) {
	pictures := snippets("docs/ARCHITECTURE.md", read(tree, "docs/ARCHITECTURE.md"), "text")
	if len(pictures) == 0 {
		return []string{"docs/ARCHITECTURE.md has no picture"}
	}
	lack := func(name string) {
		if !slices.Contains(strings.FieldsFunc(pictures[0].text, func(r rune) bool {
			return !unicode.IsLetter(r)
		}), name) {
			faults = append(faults, fmt.Sprintf("%v: the picture lacks %s", pictures[0], name))
		}
	}
	for _, s := range sources(tree) {
		ast.Inspect(s.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.TypeSpec:
				if verbs, ok := n.Type.(*ast.InterfaceType); ok && s.dir() == "backend" &&
					n.Name.Name == "Backend" {
					for _, m := range exportedMethods(verbs) {
						lack(m)
					}
				}
			case *ast.FuncDecl:
				if n.Name.Name == "init" && !s.test && !s.internal() && registers(n) {
					lack(s.Name.Name)
				}
			}
			return true
		})
	}
	return faults
}

func exportedMethods(of *ast.InterfaceType) (names []string) {
	for _, m := range of.Methods.List {
		for _, name := range m.Names {
			if name.IsExported() {
				names = append(names, name.Name)
			}
		}
	}
	return names
}

// registers reports whether f calls backend.Register.
func registers(f *ast.FuncDecl) (found bool) {
	ast.Inspect(f, func(n ast.Node) bool {
		call, ok := n.(*ast.SelectorExpr)
		found = found || ok && call.Sel.Name == "Register"
		return !found
	})
	return found
}

func TestPictureCanFail(t *testing.T) {
	files := map[string]string{
		"backend/backend.go": "package backend\ntype Backend interface " +
			"{\n\tTryAcquire()\n\tRenew()\n\tmustEmbedBase()\n}\ntype Other interface { Free() }\n",
		"some/x.go":       "package somebackend\nfunc init() { backend.Register(\"x\", nil) }\n",
		"other/x.go":      "package other\nfunc init() { free() }\n",
		"other/x_test.go": "package other\nfunc init() { backend.Register(\"y\", nil) }\n",
	}
	files["docs/ARCHITECTURE.md"] = "```text\nTryAcquire Renew somebackend\n```\n"
	expect(t, checkPicture(fixture(files)))
	files["docs/ARCHITECTURE.md"] = "x\n```text\nTryAcquire Renewal\n```\n"
	expect(t, checkPicture(fixture(files)), "docs/ARCHITECTURE.md:2: the picture lacks Renew",
		"lacks somebackend")
	files["docs/ARCHITECTURE.md"] = "x\n"
	expect(t, checkPicture(fixture(files)), "has no picture")
}
