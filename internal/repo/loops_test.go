package repo

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"slices"
	"testing"
)

// TestLoopsLook holds what is shown to users to what they are told: whoever works in a loop under a
// lock looks in each turn whether it is still held, as nothing else ends a loop when the lock is
// lost.
func TestLoopsLook(t *testing.T) {
	shown, faults := checkLoops(tree())
	report(t, faults)
	if shown == 0 {
		t.Error("no loop under a lock is shown to anybody")
	}
}

// checkLoops looks at examples, at the programs of package comments, and at what pages show.
func checkLoops(tree fs.FS) (shown int, faults []string) {
	check := func(where string, fset *token.FileSet, f *ast.File, of func(ast.Decl) bool) {
		for _, loop := range lockedLoops(f, of) {
			if shown++; !loop.looks {
				faults = append(faults, fmt.Sprintf("%s: line %d: a loop under a lock that does "+
					"not look whether it is lost", where, fset.Position(loop.at).Line))
			}
		}
	}
	for _, s := range sources(tree) {
		if s.test {
			check(s.name, s.fset, s.File, isExample)
		}
	}
	all, known := docPrograms(tree), packagePaths(tree)
	for _, page := range pages(tree) {
		all = append(all, snippets(page, read(tree, page), "go")...)
	}
	for _, s := range all {
		if text, err := wrap(s.text, known); err == nil { // else TestGoSnippets says so
			fset := token.NewFileSet()
			if f, err := parser.ParseFile(fset, "", text, parser.SkipObjectResolution); err == nil {
				check(s.String(), fset, f, func(ast.Decl) bool { return true })
			}
		}
	}
	return shown, faults
}

// locking are the functions that run a function under a lock, with the context of the hold.
var locking = []string{"Do", "Once", "Lead", "Update"}

// A lockedLoop is a loop that works under a lock. It looks if it uses the hold, or a context of it.
type lockedLoop struct {
	at    token.Pos
	looks bool
}

// lockedLoops are the loops of the functions that are run under a lock, and those behind a Lock and
// ahead of the Unlock of its guard.
func lockedLoops(f *ast.File, of func(ast.Decl) bool) (all []lockedLoop) {
	run := map[string]bool{} // functions that are given to those of locking by name
	inLoops := func(body ast.Node, from, to token.Pos, held map[string]bool) {
		ast.Inspect(body, func(n ast.Node) bool {
			switch n.(type) {
			case *ast.ForStmt, *ast.RangeStmt:
				if n.Pos() > from && n.Pos() < to {
					all = append(all, lockedLoop{n.Pos(), mentions(n, held)})
				}
			}
			return true
		})
	}
	under := func(fn *ast.FuncType, body *ast.BlockStmt) {
		held := map[string]bool{}
		for _, p := range fn.Params.List[:min(1, len(fn.Params.List))] {
			for _, name := range p.Names {
				held[name.Name] = name.Name != "_"
			}
		}
		inLoops(body, body.Pos(), body.End(), held)
	}
	for _, d := range f.Decls {
		fn, is := d.(*ast.FuncDecl)
		if !is || fn.Body == nil || !of(d) {
			continue
		}
		ast.Inspect(fn.Body, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				if !slices.Contains(locking, selected(n)) {
					return true
				}
				for _, arg := range n.Args {
					switch arg := arg.(type) {
					case *ast.FuncLit:
						under(arg.Type, arg.Body)
					case *ast.Ident:
						run[arg.Name] = true
					}
				}
			case *ast.BlockStmt:
				for _, stmt := range n.List {
					if guard, at := locked(stmt); guard != "" {
						held := map[string]bool{guard: true}
						end := unlocked(n, guard, at)
						contextsOf(n, held)
						inLoops(n, at, end, held)
					}
				}
			}
			return true
		})
	}
	for _, d := range f.Decls {
		if fn, is := d.(*ast.FuncDecl); is && fn.Body != nil && fn.Recv == nil &&
			run[fn.Name.Name] {
			under(fn.Type, fn.Body)
		}
	}
	return all
}

// selected is the name of the method or function of a package that is called.
func selected(n ast.Node) string {
	if call, is := n.(*ast.CallExpr); is {
		if sel, is := call.Fun.(*ast.SelectorExpr); is {
			return sel.Sel.Name
		}
	}
	return ""
}

// locked is the guard that a statement gets by a Lock or TryLock.
func locked(stmt ast.Stmt) (guard string, at token.Pos) {
	assign, is := stmt.(*ast.AssignStmt)
	if !is || len(assign.Lhs) != 2 || len(assign.Rhs) != 1 ||
		!slices.Contains([]string{"Lock", "TryLock"}, selected(assign.Rhs[0])) {
		return "", 0
	}
	if name, is := assign.Lhs[0].(*ast.Ident); is && name.Name != "_" {
		return name.Name, assign.End()
	}
	return "", 0
}

// unlocked is where a guard is unlocked in a block, or the end of the block.
func unlocked(block *ast.BlockStmt, guard string, from token.Pos) (at token.Pos) {
	at = block.End()
	ast.Inspect(block, func(n ast.Node) bool {
		if _, deferred := n.(*ast.DeferStmt); deferred {
			return false
		}
		if name := selected(n); (name == "Unlock" || name == "Forgo") && n.Pos() > from &&
			mentions(n, map[string]bool{guard: true}) {
			at = min(at, n.Pos())
		}
		return true
	})
	return at
}

// contextsOf adds the variables that are made of what a block holds.
func contextsOf(block *ast.BlockStmt, held map[string]bool) {
	ast.Inspect(block, func(n ast.Node) bool {
		if assign, is := n.(*ast.AssignStmt); is && len(assign.Rhs) == 1 &&
			selected(assign.Rhs[0]) != "" && mentions(assign.Rhs[0], held) {
			if name, is := assign.Lhs[0].(*ast.Ident); is && name.Name != "_" {
				held[name.Name] = true
			}
		}
		return true
	})
}

func mentions(n ast.Node, names map[string]bool) (yes bool) {
	ast.Inspect(n, func(n ast.Node) bool {
		name, is := n.(*ast.Ident)
		yes = yes || is && names[name.Name]
		return !yes
	})
	return yes
}

func TestLoopsLookCanFail(t *testing.T) {
	const head = "package main\n\nfunc main() {\n"
	shown, faults := checkLoops(fixture(map[string]string{
		"README.md": "```go\n" + head +
			"g, err := l.Lock(ctx, `k`)\nfor range 3 {\nwork()\n}\n_ = g.Unlock()\nfor range 3 " +
			"{\nwork()\n}\n}\n```\n" +
			"```go\n" + head + "g, err := l.Lock(ctx, `k`)\ndefer g.Unlock()\nctx := " +
			"g.Context()\nfor ctx.Err() == nil {\nwork()\n}\n}\n```\n",
		"docs/a.md": "```go\nlocker.Do(ctx, l, `k`, func(_ context.Context, v T) error {\nfor " +
			"{\nwork()\n}\n})\n```\n" +
			"```go\n" + head + "locker.Once(ctx, l, `k`, d, job)\n}\n\nfunc job(ctx " +
			"context.Context, v T) error {\nfor range 3 {\nwork(v)\n}\nreturn ctx.Err()\n}\n```\n" +
			"```go\nfor {\nlocker.Do(ctx, l, `k`, func(ctx context.Context, v T) error {\nfor " +
			"{\nwork(ctx)\n}\n})\n}\n```\n",
		"a/a_test.go": "package a\n\nfunc ExampleA() {\ng, err := l.TryLock(ctx, `k`)\nfor range " +
			"3 {\n}\n}\n\nfunc TestA() {\ng, err := l.Lock(ctx, `k`)\nfor range 3 {\n}\n}\n",
	}))
	if shown != 6 {
		t.Errorf("%d loops are under a lock", shown)
	}
	expect(t, faults, "README.md:1: line 5", "docs/a.md:1: ", "docs/a.md:8: line 8",
		"a/a_test.go: line 5")
}
