package repo

import (
	"fmt"
	"go/ast"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// logKeys are the attributes of log lines. A time in one is a number of seconds, and its name says
// so: as a time.Duration it would be 1.5s in one line and 300ms in the next, and nanoseconds in
// JSON.
var logKeys = strings.Split(
	"blockers,cause,class,error,held_seconds,key,lease_seconds,locked "+
		"at,panic,releases,result,stack,store,token,variables,"+
		"waited_seconds,waits", ",")

// TestLogs holds log lines to one unit of time.
func TestLogs(t *testing.T) { report(t, checkLogs(tree(), logKeys)) }

func checkLogs(tree fs.FS, keys []string) (faults []string) {
	used := map[string]bool{}
	for _, s := range sources(tree) {
		for _, d := range s.Decls {
			if s.test || !anywhere(d, isLog) {
				continue
			}
			ast.Inspect(d, func(n ast.Node) bool {
				for i, all := 0, attributes(n); i+1 < len(all); i += 2 {
					lit, ok := all[i].(*ast.BasicLit)
					if !ok {
						continue
					}
					key, _ := strconv.Unquote(lit.Value)
					used[key] = true
					seconds := anywhere(all[i+1], func(n ast.Node) bool {
						return calls(n, "Seconds")
					})
					switch {
					case !slices.Contains(keys, key):
						faults = append(faults, fmt.Sprintf("%s: %q is not in logKeys", s.pos(lit),
							key))
					case seconds != strings.HasSuffix(key, "_seconds"):
						faults = append(faults, fmt.Sprintf("%s: %q is no number of seconds, or "+
							"its name does not say so", s.pos(lit), key))
					}
				}
				return true
			})
		}
	}
	for _, key := range keys {
		if !used[key] {
			faults = append(faults, key+" is not needed in logKeys")
		}
	}
	return faults
}

// attributes are the keys and values that n adds to a log line: of the call, of a list of any, or
// of an append to one.
func attributes(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.CompositeLit:
		if list, ok := n.Type.(*ast.ArrayType); ok {
			if of, ok := list.Elt.(*ast.Ident); ok && of.Name == "any" {
				return n.Elts
			}
		}
	case *ast.CallExpr:
		if f, ok := n.Fun.(*ast.Ident); ok && f.Name == "append" && len(n.Args) > 1 {
			return n.Args[1:]
		}
		if isLog(n) {
			return n.Args[1+slices.IndexFunc(n.Args, isMessage):]
		}
	}
	return nil
}

func isLog(n ast.Node) bool {
	return calls(n, "Debug", "DebugContext", "Info", "InfoContext", "Warn", "WarnContext", "Error",
		"ErrorContext") &&
		//nolint:forcetypeassert // as in calls
		slices.ContainsFunc(n.(*ast.CallExpr).Args, isMessage)
}

// isMessage reports whether e is what a line of ours says, of which each begins so.
func isMessage(e ast.Expr) bool {
	if sum, ok := e.(*ast.BinaryExpr); ok {
		e = sum.X
	}
	lit, ok := e.(*ast.BasicLit)
	return ok && strings.HasPrefix(lit.Value, `"holdfast: `)
}

// calls reports whether n is a call of a method of one of these names.
func calls(n ast.Node, names ...string) bool {
	call, ok := n.(*ast.CallExpr)
	if !ok {
		return false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	return ok && slices.Contains(names, f.Sel.Name)
}

func anywhere(in ast.Node, is func(ast.Node) bool) (found bool) {
	ast.Inspect(in, func(n ast.Node) bool {
		found = found || n != nil && is(n)
		return !found
	})
	return found
}

func TestLogsCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"a/a.go": `package a
func good() { log.Warn("holdfast: a", "key", k, "held_seconds", h.Seconds()) }
func bad() {
	args := []any{"waited_seconds", took}
	args = append(args, "key", took.Seconds())
	log.WarnContext(ctx, "holdfast: b", args...)
	log.Info("holdfast: c", "strange", 1)
}
func other() { args := []any{"nothing", took} }`,
	})
	expect(t, checkLogs(tree, []string{"key", "held_seconds", "waited_seconds", "gone"}),
		`a.go:4:16: "waited_seconds" is no number`, `a.go:5:22: "key" is no number`,
		`"strange" is not in`, "gone is not needed")
}
