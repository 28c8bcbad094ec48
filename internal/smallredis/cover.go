package smallredis

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	lua "github.com/yuin/gopher-lua"
	"github.com/yuin/gopher-lua/ast"
	"github.com/yuin/gopher-lua/parse"
)

// A Cover counts how often each statement of scripts is run, by servers of which it is the Cover.
// It is safe for concurrent use.
type Cover struct{ scripts sync.Map } // by source: *covered

// covered is a script that counts its statements: each is behind a call of the function counter.
type covered struct {
	code  *lua.FunctionProto
	lines []int // of the statements
	runs  []atomic.Int64
}

// counter is the name of the function that is called with a statement's number.
const counter = "a statement" // which is no name that a script can have

func (c *Cover) compile(source string) (*covered, error) {
	if s, ok := c.scripts.Load(source); ok {
		return s.(*covered), nil //nolint:errcheck,forcetypeassert // nothing else is stored
	}
	chunk, err := parse.Parse(strings.NewReader(source), "script")
	if err != nil {
		return nil, err
	}
	s := &covered{}
	code, err := lua.Compile(s.block(chunk), "script")
	if err != nil {
		return nil, err
	}
	s.code, s.runs = code, make([]atomic.Int64, len(s.lines))
	first, _ := c.scripts.LoadOrStore(source, s)
	return first.(*covered), nil //nolint:errcheck,forcetypeassert // as above
}

// block returns the statements with a call before each.
func (s *covered) block(statements []ast.Stmt) []ast.Stmt {
	var all []ast.Stmt
	for _, statement := range statements {
		call := &ast.FuncCallStmt{Expr: &ast.FuncCallExpr{
			Func: &ast.IdentExpr{Value: counter},
			Args: []ast.Expr{&ast.NumberExpr{Value: strconv.Itoa(len(s.lines))}},
		}}
		call.SetLine(statement.Line())
		call.Expr.SetLine(statement.Line())
		s.lines = append(s.lines, statement.Line())
		all = append(all, call, statement)
		switch st := statement.(type) {
		case *ast.DoBlockStmt:
			st.Stmts = s.block(st.Stmts)
		case *ast.WhileStmt:
			st.Stmts = s.block(st.Stmts)
		case *ast.RepeatStmt:
			st.Stmts = s.block(st.Stmts)
		case *ast.IfStmt:
			st.Then, st.Else = s.block(st.Then), s.block(st.Else)
		case *ast.NumberForStmt:
			st.Stmts = s.block(st.Stmts)
		case *ast.GenericForStmt:
			st.Stmts = s.block(st.Stmts)
		case *ast.FuncDefStmt:
			st.Func.Stmts = s.block(st.Func.Stmts)
		case *ast.LocalAssignStmt:
			s.functions(st.Exprs)
		case *ast.AssignStmt:
			s.functions(st.Rhs)
		case *ast.ReturnStmt:
			s.functions(st.Exprs)
		}
	}
	return all
}

func (s *covered) functions(exprs []ast.Expr) {
	for _, e := range exprs {
		if f, ok := e.(*ast.FunctionExpr); ok {
			f.Stmts = s.block(f.Stmts)
		}
	}
}

func (s *covered) count(l *lua.LState) int {
	s.runs[l.CheckInt(1)].Add(1)
	return 0
}

// Report returns how many statements the scripts that were run have, and those that no script ran:
// each by its line, and which of the line's it is if it is not the first. What several scripts have
// of one library is one statement.
func (c *Cover) Report() (total int, never []string) {
	runs := map[string]int64{}
	c.scripts.Range(func(source, script any) bool {
		s := script.(*covered)                        //nolint:errcheck,forcetypeassert // as above
		lines := strings.Split(source.(string), "\n") //nolint:errcheck,forcetypeassert // as above
		of := map[int]int{}
		for i, line := range s.lines {
			name := strings.TrimSpace(lines[line-1])
			if of[line]++; of[line] > 1 {
				name += fmt.Sprintf(" (statement %d)", of[line])
			}
			runs[name] += s.runs[i].Load()
		}
		return true
	})
	for name, n := range runs {
		if n == 0 {
			never = append(never, name)
		}
	}
	slices.Sort(never)
	return len(runs), never
}
