package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"slices"

	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/ctrlflow"
	"golang.org/x/tools/go/analysis/passes/inspect"
	"golang.org/x/tools/go/ast/inspector"
	"golang.org/x/tools/go/cfg"
)

// analyzer reports the mistakes that the command's documentation names. It looks at one function at
// a time.
var analyzer = &analysis.Analyzer{
	Name:     "holdfast",
	Doc:      doc,
	URL:      "https://pkg.go.dev/github.com/holdfast-go/holdfast/cmd/holdfast-vet",
	Requires: []*analysis.Analyzer{inspect.Analyzer, ctrlflow.Analyzer},
	Run:      run,
}

const doc = `find guards that are not unlocked, and what goes on without its lock

Reported are: a guard of holdfast's package locker that is not unlocked; its
value used or returned after Unlock, kept in a field or a variable of the
package, or given to a goroutine that nobody waits for; and a loop that waits,
under a guard, and looks neither at a context nor at the guard.`

const lockerPath = "github.com/holdfast-go/holdfast/locker"

func run(pass *analysis.Pass) (any, error) {
	isTest := func(p *types.Package) bool { return p.Path() == "testing" }
	if !uses(pass.Pkg, lockerPath) || slices.ContainsFunc(pass.Pkg.Imports(), isTest) {
		return nil, nil
	}
	//nolint:errcheck,forcetypeassert // what Requires promises
	in := pass.ResultOf[inspect.Analyzer].(*inspector.Inspector)
	//nolint:errcheck,forcetypeassert // as above
	flow := pass.ResultOf[ctrlflow.Analyzer].(*ctrlflow.CFGs)
	in.Preorder([]ast.Node{(*ast.FuncDecl)(nil), (*ast.FuncLit)(nil), (*ast.CallExpr)(nil)},
		func(n ast.Node) {
			switch n := n.(type) {
			case *ast.FuncDecl:
				if n.Body != nil {
					check(pass, n.Body, flow.FuncDecl(n))
				}
			case *ast.FuncLit:
				check(pass, n.Body, flow.FuncLit(n))
			case *ast.CallExpr:
				checkCallback(pass, n)
			}
		})
	return nil, nil
}

// uses reports whether p imports the package of path, itself or by others: who has a guard from a
// package in between need not name it.
func uses(p *types.Package, path string) bool {
	seen := map[*types.Package]bool{}
	var look func(*types.Package) bool
	look = func(p *types.Package) bool {
		if p.Path() == path {
			return true
		}
		seen[p] = true
		return slices.ContainsFunc(p.Imports(), func(i *types.Package) bool {
			return !seen[i] && look(i)
		})
	}
	return look(p)
}

// A guard is a variable of one function, to which the function assigns a guard that it locked.
type guard struct {
	pass   *analysis.Pass
	body   *ast.BlockStmt
	flow   *cfg.CFG
	v      *types.Var
	locked ast.Node // the statement that locks
}

// check looks at the guards that a function locks, without the functions in it, which are looked at
// by themselves.
func check(pass *analysis.Pass, body *ast.BlockStmt, flow *cfg.CFG) {
	own(body, func(n ast.Node) {
		var names []ast.Expr
		var values []ast.Expr
		switch n := n.(type) {
		case *ast.ExprStmt:
			names, values = nil, []ast.Expr{n.X}
		case *ast.AssignStmt:
			names, values = n.Lhs, n.Rhs
		case *ast.ValueSpec:
			for _, name := range n.Names {
				names = append(names, name)
			}
			values = n.Values
		}
		if len(values) != 1 || !locks(pass, values[0]) {
			return
		}
		if len(names) == 0 {
			pass.Reportf(values[0].Pos(), "the guard is discarded: nobody can unlock it")
			return
		}
		id, ok := names[0].(*ast.Ident)
		if !ok {
			return // a field: who unlocks it is not seen here
		}
		if id.Name == "_" {
			pass.Reportf(id.Pos(), "the guard is discarded: nobody can unlock it")
			return
		}
		v, ok := pass.TypesInfo.ObjectOf(id).(*types.Var)
		if !ok || v.Pos() < body.Pos() || v.Pos() > body.End() {
			return // of an outer function, or a parameter
		}
		g := &guard{pass: pass, body: body, flow: flow, v: v, locked: n}
		g.unlocked(id)
		if !g.escapes() {
			g.values()
		}
		g.loops()
	})
}

// unlocked reports a guard that is not unlocked, on one way through the function or on all.
func (g *guard) unlocked(id *ast.Ident) {
	if !g.ended(g.body) {
		g.pass.Reportf(id.Pos(), "%s is never unlocked: defer %[1]s.Unlock()", id.Name)
		return
	}
	block, at := g.find(g.locked)
	if block == nil {
		return
	}
	type step struct {
		block *cfg.Block
		used  bool // the guard was used since it was locked, so it is one
	}
	seen := map[step]bool{}
	var walk func(b *cfg.Block, from int, used bool) *ast.ReturnStmt
	walk = func(b *cfg.Block, from int, used bool) *ast.ReturnStmt {
		for _, n := range b.Nodes[from:] {
			if n == g.locked || g.ended(n) {
				return nil
			}
			used = used || g.used(n)
		}
		if r := b.Return(); r != nil && used {
			return r
		}
		for _, next := range b.Succs {
			if s := (step{next, used}); !seen[s] {
				seen[s] = true
				if !used && !g.reaches(next) {
					continue // as where Lock has failed
				}
				if r := walk(next, 0, used); r != nil {
					return r
				}
			}
		}
		return nil
	}
	if r := walk(block, at+1, false); r != nil {
		g.pass.Reportf(id.Pos(),
			"%s is not unlocked on the way that returns in line %d: defer %[1]s.Unlock()",
			id.Name, g.line(r))
	}
}

func (g *guard) line(n ast.Node) int {
	pos := n.Pos()
	if r, ok := n.(*ast.ReturnStmt); ok && len(r.Results) == 0 && !pos.IsValid() {
		pos = g.body.Rbrace
	}
	return g.pass.Fset.Position(pos).Line
}

// find returns where a node is.
func (g *guard) find(n ast.Node) (*cfg.Block, int) {
	for _, b := range g.flow.Blocks {
		for i, m := range b.Nodes {
			if m == n {
				return b, i
			}
		}
	}
	return nil, 0
}

// reaches reports whether the guard is used in b or after it.
func (g *guard) reaches(b *cfg.Block) bool {
	seen := map[*cfg.Block]bool{}
	var look func(*cfg.Block) bool
	look = func(b *cfg.Block) bool {
		if seen[b] {
			return false
		}
		seen[b] = true
		for _, n := range b.Nodes {
			if n == g.locked {
				return false
			}
			if g.used(n) {
				return true
			}
		}
		for _, next := range b.Succs {
			if look(next) {
				return true
			}
		}
		return false
	}
	return look(b)
}

// A use of a guard is one of these, in the order of what it says about the guard's end.
const (
	noUse   = iota
	aUse    // a method is called
	anEnd   // of those that end it
	anOther // it is stored, returned or passed on: somebody else may end it
)

// use returns the most that n does with the guard. A comparison with nil is no use.
func (g *guard) use(n ast.Node) int {
	most := noUse
	parents(n, func(n, parent ast.Node) {
		id, ok := n.(*ast.Ident)
		if !ok || g.pass.TypesInfo.Uses[id] != g.v {
			return
		}
		what := anOther
		switch p := parent.(type) {
		case *ast.SelectorExpr:
			what = aUse
			if ends(p.Sel.Name) {
				what = anEnd
			}
		case *ast.BinaryExpr:
			what = noUse
		case *ast.AssignStmt:
			for _, left := range p.Lhs {
				if left == n {
					what = noUse
				}
			}
		}
		most = max(most, what)
	})
	return most
}

func (g *guard) used(n ast.Node) bool  { return g.use(n) > noUse }
func (g *guard) ended(n ast.Node) bool { return g.use(n) >= anEnd }
func (g *guard) escapes() bool         { return g.use(g.body) == anOther }

func ends(method string) bool {
	return method == "Unlock" || method == "Forgo" || method == "Detach"
}

// values reports what is done with the values of the guard that outlives it.
func (g *guard) values() {
	isValue := func(method string) bool { return method == "Value" }
	own(g.body, func(n ast.Node) {
		a, ok := n.(*ast.AssignStmt)
		if !ok || len(a.Rhs) != 1 || !g.isCall(a.Rhs[0], isValue) {
			return
		}
		if keeps(g.pass, g.body, a.Lhs[0]) && shared(g.pass.TypesInfo.TypeOf(a.Lhs[0])) {
			g.pass.Reportf(a.Pos(), "the value of %s is kept beyond its Unlock", g.v.Name())
		}
		id, ok := a.Lhs[0].(*ast.Ident)
		if !ok {
			return
		}
		v, ok := g.pass.TypesInfo.ObjectOf(id).(*types.Var)
		if !ok || !shared(v.Type()) {
			return
		}
		g.usedLater(v)
		outlives(g.pass, g.body, v, "the Unlock of "+g.v.Name())
		g.returned(v)
	})
}

// isCall reports whether e calls a method of the guard.
func (g *guard) isCall(e ast.Node, which func(method string) bool) bool {
	call, ok := e.(*ast.CallExpr)
	if !ok {
		return false
	}
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !which(sel.Sel.Name) {
		return false
	}
	id, ok := ast.Unparen(sel.X).(*ast.Ident)
	return ok && g.pass.TypesInfo.Uses[id] == g.v
}

// unlocks reports whether n ends the guard where it stands: no defer, and no function that is
// called later.
func (g *guard) unlocks(n ast.Node) (found bool) {
	if _, later := n.(*ast.DeferStmt); later {
		return false
	}
	own(n, func(n ast.Node) { found = found || g.isCall(n, ends) })
	return found
}

// usedLater reports a use of v that comes after the guard was unlocked, and before v has another
// value.
func (g *guard) usedLater(v *types.Var) {
	seen := map[*cfg.Block]bool{}
	var walk func(b *cfg.Block, from int)
	walk = func(b *cfg.Block, from int) {
		for _, n := range b.Nodes[from:] {
			use, assigned := mentions(g.pass, n, v)
			if use != nil {
				g.pass.Reportf(use.Pos(),
					"%s is used after %s was unlocked: another may hold the lock by now",
					v.Name(), g.v.Name())
				return
			}
			if assigned {
				return
			}
		}
		for _, next := range b.Succs {
			if !seen[next] {
				seen[next] = true
				walk(next, 0)
			}
		}
	}
	for _, b := range g.flow.Blocks {
		for i, n := range b.Nodes {
			if b.Live && g.unlocks(n) {
				walk(b, i+1)
			}
		}
	}
}

// returned reports a return of v by a function that unlocks the guard in the same statement, or by
// defer.
func (g *guard) returned(v *types.Var) {
	deferred := false
	own(g.body, func(n ast.Node) {
		d, ok := n.(*ast.DeferStmt)
		deferred = deferred || ok && g.use(d) == anEnd
	})
	own(g.body, func(n ast.Node) {
		r, ok := n.(*ast.ReturnStmt)
		if !ok || !deferred && !g.unlocks(r) {
			return
		}
		for _, e := range r.Results {
			if id, ok := ast.Unparen(e).(*ast.Ident); ok && g.pass.TypesInfo.Uses[id] == v {
				g.pass.Reportf(id.Pos(), "%s is returned, and %s unlocked before the caller has it",
					v.Name(), g.v.Name())
			}
		}
	})
}

// loops reports loops under the guard that wait and do not look at it.
func (g *guard) loops() {
	over := g.body.End() // where the guard is unlocked first
	own(g.body, func(n ast.Node) {
		switch n.(type) {
		case *ast.ExprStmt, *ast.AssignStmt:
			if n.Pos() > g.locked.End() && g.unlocks(n) {
				over = min(over, n.Pos())
			}
		}
	})
	own(g.body, func(n ast.Node) {
		if n.Pos() > g.locked.End() && n.Pos() < over {
			blind(g.pass, n)
		}
	})
}

// checkCallback looks at a function that is called under a lock, as by Do.
func checkCallback(pass *analysis.Pass, call *ast.CallExpr) {
	var name *ast.Ident
	switch f := ast.Unparen(call.Fun).(type) {
	case *ast.SelectorExpr:
		name = f.Sel
	case *ast.Ident:
		name = f
	}
	if name == nil {
		return
	}
	fn, ok := pass.TypesInfo.Uses[name].(*types.Func)
	if !ok || fn.Pkg() == nil || fn.Pkg().Path() != lockerPath {
		return
	}
	switch fn.Name() {
	case "Do", "Lead", "Once":
	default:
		return
	}
	for _, arg := range call.Args {
		f, ok := ast.Unparen(arg).(*ast.FuncLit)
		if !ok {
			continue
		}
		own(f.Body, func(n ast.Node) { blind(pass, n) })
		if p := f.Type.Params.List; len(p) > 0 && len(p[len(p)-1].Names) > 0 {
			last := p[len(p)-1].Names
			if v, ok := pass.TypesInfo.Defs[last[len(last)-1]].(*types.Var); ok &&
				shared(v.Type()) {
				outlives(pass, f.Body, v, "the function that "+fn.Name()+" calls")
			}
		}
	}
}

// blind reports n if it is a loop that waits and looks neither at a context nor at a guard.
func blind(pass *analysis.Pass, n ast.Node) {
	waits := false
	switch n := n.(type) {
	case *ast.ForStmt:
		if n.Init != nil || n.Post != nil {
			return // it counts
		}
	case *ast.RangeStmt:
		if waits = isChan(pass, n.X); !waits {
			return
		}
	default:
		return
	}
	looks := false
	ast.Inspect(n, func(m ast.Node) bool {
		waits = waits || sleeps(pass, m)
		if e, ok := m.(ast.Expr); ok {
			t := pass.TypesInfo.TypeOf(e)
			looks = looks || t != nil && (isGuard(t) || named(t, "context", "Context"))
		}
		return true
	})
	if waits && !looks {
		pass.Reportf(n.Pos(), "the loop looks neither at a context nor at the guard: "+
			"it goes on when the lock is lost")
	}
}

// sleeps reports whether n is a select, a receive or a call of time.Sleep.
func sleeps(pass *analysis.Pass, n ast.Node) bool {
	switch n := n.(type) {
	case *ast.SelectStmt:
		return true
	case *ast.UnaryExpr:
		return n.Op == token.ARROW
	case *ast.CallExpr:
		if sel, ok := n.Fun.(*ast.SelectorExpr); ok {
			f, ok := pass.TypesInfo.Uses[sel.Sel].(*types.Func)
			return ok && f.FullName() == "time.Sleep"
		}
	}
	return false
}

func isChan(pass *analysis.Pass, e ast.Expr) bool {
	_, is := pass.TypesInfo.TypeOf(e).Underlying().(*types.Chan)
	return is
}

// outlives reports where body keeps v, or gives it to a goroutine that it does not wait for. end is
// what v must not outlive.
func outlives(pass *analysis.Pass, body *ast.BlockStmt, v *types.Var, end string) {
	isV := func(e ast.Expr) bool {
		id, ok := ast.Unparen(e).(*ast.Ident)
		return ok && pass.TypesInfo.Uses[id] == v
	}
	waited := token.NoPos // the last wait for something
	ast.Inspect(body, func(n ast.Node) bool {
		wait := false
		switch n := n.(type) {
		case *ast.CallExpr:
			sel, ok := n.Fun.(*ast.SelectorExpr)
			wait = ok && sel.Sel.Name == "Wait"
		case *ast.UnaryExpr:
			wait = n.Op == token.ARROW
		case *ast.RangeStmt:
			wait = isChan(pass, n.X)
		}
		if wait {
			waited = max(waited, n.Pos())
		}
		return true
	})
	own(body, func(n ast.Node) {
		switch n := n.(type) {
		case *ast.AssignStmt:
			for i, e := range n.Rhs {
				if len(n.Lhs) == len(n.Rhs) && isV(e) && keeps(pass, body, n.Lhs[i]) {
					pass.Reportf(e.Pos(), "%s is kept beyond %s", v.Name(), end)
				}
			}
		case *ast.GoStmt:
			if use, _ := mentions(pass, n, v); use != nil && waited < n.Pos() {
				pass.Reportf(use.Pos(), "%s is given to a goroutine that may outlive %s",
					v.Name(), end)
			}
		}
	})
}

// keeps reports whether what is assigned to e stays when the function has ended: e is a variable of
// the package or of an outer function, or a field or an element of what is one or is reached by a
// pointer.
func keeps(pass *analysis.Pass, body *ast.BlockStmt, e ast.Expr) bool {
	pointer := false
	for {
		switch x := ast.Unparen(e).(type) {
		case *ast.Ident:
			v, ok := pass.TypesInfo.ObjectOf(x).(*types.Var)
			if !ok {
				return false
			}
			outer := v.Pos() < body.Pos() || v.Pos() > body.End()
			return outer && (pointer || !isParam(pass, body, v))
		case *ast.SelectorExpr:
			if _, isField := pass.TypesInfo.Selections[x]; !isField {
				return true // a variable of another package
			}
			_, isPointer := pass.TypesInfo.TypeOf(x.X).Underlying().(*types.Pointer)
			pointer, e = pointer || isPointer, x.X
		case *ast.IndexExpr:
			pointer, e = true, x.X
		case *ast.StarExpr:
			pointer, e = true, x.X
		default:
			return false
		}
	}
}

// isParam reports whether v is a parameter, receiver or result of the function of body.
func isParam(pass *analysis.Pass, body *ast.BlockStmt, v *types.Var) bool {
	for node, scope := range pass.TypesInfo.Scopes {
		if t, ok := node.(*ast.FuncType); ok && t.End() <= body.Pos() &&
			scope.Contains(body.Pos()) {
			if scope.Lookup(v.Name()) == v && scope.End() == body.End() {
				return true
			}
		}
	}
	return false
}

// mentions returns the first use of v in n that is no assignment to it, and whether n assigns to
// it.
func mentions(pass *analysis.Pass, n ast.Node, v *types.Var) (use *ast.Ident, assigned bool) {
	parents(n, func(n, parent ast.Node) {
		id, ok := n.(*ast.Ident)
		if !ok || pass.TypesInfo.ObjectOf(id) != v {
			return
		}
		if a, ok := parent.(*ast.AssignStmt); ok {
			for _, left := range a.Lhs {
				if left == n {
					assigned = true
					return
				}
			}
		}
		if use == nil && pass.TypesInfo.Uses[id] != nil {
			use = id
		}
	})
	return use, assigned
}

// shared reports whether a copy of a value of t is the same thing: a pointer, map, slice, channel,
// function or interface.
func shared(t types.Type) bool {
	if t == nil {
		return false
	}
	switch t.Underlying().(type) {
	case *types.Pointer, *types.Map, *types.Slice, *types.Chan, *types.Signature:
		return true
	case *types.Interface:
		_, param := t.(*types.TypeParam)
		return !param
	}
	return false
}

// locks reports whether e is a call that returns a guard, and maybe more.
func locks(pass *analysis.Pass, e ast.Expr) bool {
	call, ok := ast.Unparen(e).(*ast.CallExpr)
	if !ok {
		return false
	}
	t := pass.TypesInfo.TypeOf(call)
	if tuple, ok := t.(*types.Tuple); ok && tuple.Len() > 0 {
		t = tuple.At(0).Type()
	}
	return t != nil && isGuard(t)
}

// isGuard reports whether t is *locker.Guard or *locker.Guards, of any type.
func isGuard(t types.Type) bool {
	p, ok := t.(*types.Pointer)
	return ok && (named(p.Elem(), lockerPath, "Guard") || named(p.Elem(), lockerPath, "Guards"))
}

func named(t types.Type, path, name string) bool {
	n, ok := types.Unalias(t).(*types.Named)
	return ok && n.Obj().Name() == name && n.Obj().Pkg() != nil && n.Obj().Pkg().Path() == path
}

// own calls f for each node of n, without those of the functions in it.
func own(n ast.Node, f func(ast.Node)) {
	ast.Inspect(n, func(m ast.Node) bool {
		if _, inner := m.(*ast.FuncLit); inner && m != n {
			return false
		}
		if m != nil {
			f(m)
		}
		return true
	})
}

// parents calls f for each node under n, with the node above it; n itself has none.
func parents(n ast.Node, f func(n, parent ast.Node)) {
	ast.PreorderStack(n, nil, func(n ast.Node, stack []ast.Node) bool {
		var parent ast.Node
		for i := len(stack) - 1; i >= 0; i-- {
			if _, paren := stack[i].(*ast.ParenExpr); !paren {
				parent = stack[i]
				break
			}
		}
		f(n, parent)
		return true
	})
}
