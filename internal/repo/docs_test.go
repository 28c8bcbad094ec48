package repo

import (
	"fmt"
	"go/ast"
	"io/fs"
	"slices"
	"testing"
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
		if decl.Doc == nil && decl.Name.IsExported() && (receiver == "" || ast.IsExported(receiver)) {
			d.fault(decl, dotted(receiver, decl.Name.Name))
		}
	case *ast.GenDecl:
		for _, spec := range decl.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				d.typeSpec(decl, spec)
			case *ast.ValueSpec:
				for _, name := range spec.Names {
					if name.IsExported() && decl.Doc == nil && spec.Doc == nil && spec.Comment == nil {
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
			if first := exportedField(group); first != "" && !slices.ContainsFunc(group, commented) {
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
	expect(t, checkDocs(tree, "a.T.C # reason\na.T.A # not needed\na.G #"), "b has no package comment", "internal/j has no package comment",
		"a.T.M has no", "a.U has no", "a.U.Q has no", "a.W has no", "a.G gives no reason", "a.T.A is not needed")
}
