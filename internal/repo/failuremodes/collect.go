package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
)

// A test is a function, or a table, with a covers comment.
type test struct{ file, name string }

func (t test) dir() string { return path.Dir(t.file) }

var (
	idForm     = regexp.MustCompile(`^[A-Z][0-9]+$`)
	coversForm = regexp.MustCompile(`(?m)^\s*covers:(.*)$`)
)

// collect reads the comments of every Go file, and returns the tests by id. A fault is a comment
// that cannot be read or belongs to nothing.
func collect(tree fs.FS) (covers map[string][]test, faults []string) {
	covers = map[string][]test{}
	err := fs.WalkDir(tree, ".", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == "testdata" || d.Name() != "." && strings.HasPrefix(d.Name(),
			".")) {
			return fs.SkipDir
		}
		if d.IsDir() || path.Ext(file) != ".go" {
			return nil
		}
		src, err := fs.ReadFile(tree, file)
		if err != nil || !strings.Contains(string(src), "covers:") {
			return err
		}
		faults = append(faults, collectFile(covers, file, src)...)
		return nil
	})
	if err != nil {
		faults = append(faults, err.Error())
	}
	for id := range covers {
		slices.SortFunc(covers[id], func(a, b test) int {
			return strings.Compare(a.file+a.name, b.file+b.name)
		})
		covers[id] = slices.Compact(covers[id])
	}
	return covers, faults
}

func collectFile(covers map[string][]test, file string, src []byte) (faults []string) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, file, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return []string{err.Error()}
	}
	for _, group := range f.Comments {
		for _, match := range coversForm.FindAllStringSubmatch(group.Text(), -1) {
			ids := ids(match[1])
			name := enclosing(f, group)
			if len(ids) == 0 || name == "" {
				faults = append(faults, fmt.Sprintf("%v: this covers comment names no id or "+
					"stands at no test", fset.Position(group.Pos())))
			}
			for _, id := range ids {
				covers[id] = append(covers[id], test{file, name})
			}
		}
	}
	return faults
}

// ids returns the words of a list up to the first that is no id: what follows may be prose.
func ids(list string) []string {
	words := strings.FieldsFunc(list, func(r rune) bool {
		return r == ',' || r == ' ' || r == '\t'
	})
	end := slices.IndexFunc(words, func(w string) bool {
		return !idForm.MatchString(strings.Trim(w, ".:;"))
	})
	if end < 0 {
		end = len(words)
	}
	for i := range words[:end] {
		words[i] = strings.Trim(words[i], ".:;")
	}
	return words[:end]
}

// enclosing returns the name of the declaration that a comment is in, or that it is the doc comment
// of.
func enclosing(f *ast.File, group *ast.CommentGroup) string {
	for _, decl := range f.Decls {
		begin := decl.Pos()
		switch d := decl.(type) {
		case *ast.FuncDecl:
			if d.Doc != nil {
				begin = d.Doc.Pos()
			}
			if begin <= group.Pos() && group.End() <= d.End() {
				return d.Name.Name
			}
		case *ast.GenDecl:
			if d.Doc != nil {
				begin = d.Doc.Pos()
			}
			if v, ok := d.Specs[0].(*ast.ValueSpec); ok && begin <= group.Pos() &&
				group.End() <= d.End() {
				return v.Names[0].Name
			}
		}
	}
	return ""
}

// unknown returns a fault for every id that no row of the catalogue has.
func unknown(modes []mode, covers map[string][]test) (faults []string) {
	for id, tests := range covers {
		if !slices.ContainsFunc(modes, func(m mode) bool { return m.id == id }) {
			faults = append(faults, fmt.Sprintf("%s: %s covers %s, which failures.txt "+
				"does not have", tests[0].file, tests[0].name, id))
		}
	}
	slices.Sort(faults)
	return faults
}
