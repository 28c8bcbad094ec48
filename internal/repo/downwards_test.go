package repo

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// lockerFiles are the files of package locker from what users call down to what knows nothing of
// the rest. A file uses functions of those below it. The recipes are the first row, the typed face
// the second, the engine the rest.
const lockerFiles = `
all.go lead.go once.go do.go store.go
locker.go close.go guard.go detach.go inspect.go holders.go scoped.go perkey.go
early.go
lock.go
cohort.go
hold.go
wait.go
batch.go
deadlock.go heartbeat.go
renewal.go
lease.go
context.go
release.go
estimate.go observe.go
core.go
deadline.go
heap.go site.go options.go config.go class.go errors.go doc.go
`

// TestLockerCallsDownwards counts the pairs of a function and another, of a file above its own,
// that it calls or takes as a value. Interfaces and function values that lower files declare are
// how the lower ones reach what is above: lease.sharer, hold.onEnd.
func TestLockerCallsDownwards(t *testing.T) {
	dir := filepath.Join("..", "..", "locker")
	up, all, faults := arrows(t, dir, "./locker", lockerFiles)
	report(t, faults)
	if len(up) > 0 {
		t.Errorf("%d of %d calls between files of locker go back up; move the function, or let "+
			"the lower file say what it needs:\n%s",
			len(up), all, strings.Join(up, "\n"))
	}

	// And it would find them.
	rows := strings.Split(strings.TrimSpace(lockerFiles), "\n")
	slices.Reverse(rows)
	if down, _, _ := arrows(t, dir, "./locker", strings.Join(rows, "\n")); len(down) < all/2 {
		t.Errorf("of %d calls %d go up in the reverse order", all, len(down))
	}
	if _, _, faults := arrows(t, dir, "./locker", rows[0]); len(faults) == 0 {
		t.Error("files without a place in the order are not found")
	}
}

// arrows returns the calls that go up, and how many there are between files in all.
func arrows(t *testing.T, dir, pkg, order string) (up []string, all int, faults []string) {
	t.Helper()
	row := map[string]int{}
	for i, line := range strings.Split(strings.TrimSpace(order), "\n") {
		for _, name := range strings.Fields(line) {
			row[name] = i
		}
	}
	cmd := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps",
		"-json=ImportPath,Export,GoFiles", pkg)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	exports, last := map[string]string{}, struct {
		ImportPath, Export string
		GoFiles            []string
	}{}
	for d := json.NewDecoder(
		strings.NewReader(string(out))); d.More(); exports[last.ImportPath] = last.Export {
		if err := d.Decode(&last); err != nil {
			t.Fatal(err)
		}
	}
	fset := token.NewFileSet()
	var files []*ast.File
	for _, name := range last.GoFiles { // of the package itself, which comes behind what it needs
		f, err := parser.ParseFile(fset, filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := row[name]; !ok {
			faults = append(faults, fmt.Sprintf("%s of %s has no place in the order", name, pkg))
		}
		files = append(files, f)
	}
	info := &types.Info{Uses: map[*ast.Ident]types.Object{}}
	config := types.Config{Importer: importer.ForCompiler(fset, "gc",
		func(path string) (io.ReadCloser, error) {
			return os.Open(exports[path])
		})}
	checked, err := config.Check(last.ImportPath, fset, files, info)
	if err != nil {
		t.Fatal(err)
	}
	between := map[string]bool{}
	for _, f := range files {
		from := filepath.Base(fset.Position(f.Pos()).Filename)
		for _, d := range f.Decls {
			ast.Inspect(d, func(n ast.Node) bool {
				id, _ := n.(*ast.Ident)
				called, _ := info.Uses[id].(*types.Func)
				if called == nil || called.Pkg() != checked {
					return true
				}
				if r := called.Signature().Recv(); r != nil && types.IsInterface(r.Type()) {
					return true // whoever implements it
				}
				to := filepath.Base(fset.Position(called.Pos()).Filename)
				arrow := fmt.Sprintf("%s: %s → %s: %s", from, declared(d), to, called.Name())
				if to != from && !between[arrow] {
					between[arrow] = true
					if row[to] < row[from] {
						up = append(up, arrow)
					}
				}
				return true
			})
		}
	}
	slices.Sort(up)
	return up, len(between), faults
}

// declared is the name of a function, or what else a declaration is.
func declared(d ast.Decl) string {
	if f, ok := d.(*ast.FuncDecl); ok {
		return f.Name.Name
	}
	return "a declaration"
}
