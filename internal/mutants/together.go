package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
)

// Most of the time of a mutant would be its build, so those that change the body of one Go function
// are built together: their functions begin with
//
//	if mutantTried == "its name" { what the mutant makes of the body; return }
//
// and a run chooses one by this variable of its environment.
const chosenBy = "MUTANT_TRIED"

// together are mutants in one overlay, whose tests are built once for each package.
type together struct {
	overlay string
	has     map[string]bool // the names of the mutants that are in it

	mu    sync.Mutex
	built map[string]*built // by package
}

// A built is the test binary of a package, or why there is none.
type built struct {
	once   sync.Once
	binary string
	err    error

	mu     sync.Mutex
	honest map[string]bool // whether tests pass in it without a mutant, by pattern
}

// join writes, below dir, the overlay of those mutants that can be built together. Two mutants of
// one function are two such statements.
func (r *runner) join(dir string, chosen []mutant) (*together, error) {
	t := &together{
		overlay: filepath.Join(dir, "overlay.json"), has: map[string]bool{},
		built: map[string]*built{},
	}
	inserts := map[string]map[int]string{} // by file and offset
	packages := map[string]string{}        // names of packages, by directory
	for _, m := range chosen {
		file, changed, err := m.apply(r.sources)
		if err != nil || filepath.Ext(file) != ".go" {
			continue
		}
		at, body, name, ok := bodyOf(r.sources[file], changed)
		if !ok {
			continue
		}
		if inserts[file] == nil {
			inserts[file] = map[int]string{}
		}
		inserts[file][at] += fmt.Sprintf("\nif mutantTried == %q %s\n", m.Name, body)
		packages[filepath.Dir(file)] = name
		t.has[m.Name] = true
	}
	replace := map[string]string{}
	write := func(file, text string) error {
		to := filepath.Join(dir, strings.ReplaceAll(file, string(filepath.Separator), "_"))
		replace[filepath.Join(r.root, file)] = to
		return os.WriteFile(to, []byte(text), 0o600)
	}
	var err error
	for file, at := range inserts {
		text := r.sources[file]
		for _, offset := range slices.Backward(slices.Sorted(maps.Keys(at))) {
			text = text[:offset] + at[offset] + text[offset:]
		}
		err = errors.Join(err, write(file, text))
	}
	for pkg, name := range packages {
		err = errors.Join(err, write(filepath.Join(pkg, "mutant_tried.go"), fmt.Sprintf(
			"package %s\n\nimport \"os\"\n\nvar mutantTried = os.Getenv(%q)\n", name, chosenBy)))
	}
	overlay, marshal := json.Marshal(map[string]any{"Replace": replace})
	return t, errors.Join(err, marshal, os.WriteFile(t.overlay, overlay, 0o600))
}

// tests are the test binary of a package with all its mutants.
func (t *together) tests(ctx context.Context, root, pkg string) *built {
	t.mu.Lock()
	b := t.built[pkg]
	if b == nil {
		b = &built{
			binary: filepath.Join(filepath.Dir(t.overlay), strings.ReplaceAll(pkg, "/", "_")),
			honest: map[string]bool{},
		}
		t.built[pkg] = b
	}
	t.mu.Unlock()
	b.once.Do(func() {
		if out, err := build(ctx, t.overlay, root, pkg, b.binary); err != nil {
			b.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	return b
}

// passes returns whether tests pass without a mutant: what fails anyway shows nothing.
func (b *built) passes(tests string, run func(tests string) (string, error)) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	passes, known := b.honest[tests]
	if !known {
		_, err := run(tests)
		passes = errors.Is(err, errSurvived)
		b.honest[tests] = passes
	}
	return passes
}

// bodyOf returns what changed makes of the body of the only function in which it differs from
// original, and the offset at which that body begins there. It is not ok if something else changed,
// and where a body cannot be there twice, as it has labels.
func bodyOf(original, changed string) (offset int, body, pkg string, ok bool) {
	files := token.NewFileSet()
	was, err := parser.ParseFile(files, "original.go", original, parser.SkipObjectResolution)
	is, err2 := parser.ParseFile(files, "changed.go", changed, parser.SkipObjectResolution)
	if err != nil || err2 != nil || len(was.Decls) != len(is.Decls) {
		return 0, "", "", false
	}
	for i := range was.Decls {
		if text(was.Decls[i]) == text(is.Decls[i]) {
			continue
		}
		before, isFunc := was.Decls[i].(*ast.FuncDecl)
		after, isFunc2 := is.Decls[i].(*ast.FuncDecl)
		if ok || !isFunc || !isFunc2 || before.Body == nil || labelled(before.Body) ||
			text(&ast.FuncDecl{Recv: before.Recv, Name: before.Name, Type: before.Type}) !=
				text(&ast.FuncDecl{Recv: after.Recv, Name: after.Name, Type: after.Type}) {
			return 0, "", "", false
		}
		if after.Type.Results == nil {
			after.Body.List = append(after.Body.List, &ast.ReturnStmt{})
		}
		offset, body, ok = files.Position(before.Body.Lbrace).Offset+1, text(after.Body), true
	}
	return offset, body, was.Name.Name, ok
}

// text is a node as Go writes it, without comments. Where it was does not matter.
func text(node ast.Node) string {
	var out bytes.Buffer
	if err := printer.Fprint(&out, token.NewFileSet(), node); err != nil {
		return err.Error()
	}
	return out.String()
}

func labelled(body *ast.BlockStmt) (found bool) {
	ast.Inspect(body, func(n ast.Node) bool {
		_, label := n.(*ast.LabeledStmt)
		found = found || label
		return true
	})
	return found
}
