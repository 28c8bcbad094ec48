package repo

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const module = "github.com/holdfast-go/holdfast"

// tree is the root of the repository.
func tree() fs.FS { return os.DirFS("../..") }

// report fails t with each fault that a checker found.
func report(t *testing.T, faults []string) {
	t.Helper()
	for _, f := range faults {
		t.Error(f)
	}
}

// expect checks what a checker found in a fixture: a fault per want, in any order, that contains
// it.
func expect(t *testing.T, faults []string, want ...string) {
	t.Helper()
	rest := slices.Clone(faults)
	for _, w := range want {
		i := slices.IndexFunc(rest, func(f string) bool { return strings.Contains(f, w) })
		if i < 0 {
			t.Errorf("no fault about %q in %q", w, faults)
			continue
		}
		rest = slices.Delete(rest, i, i+1)
	}
	for _, f := range rest {
		t.Errorf("unexpected fault %q", f)
	}
}

// fixture makes a tree of names and contents.
func fixture(files map[string]string) fs.FS {
	tree := fstest.MapFS{}
	for name, data := range files {
		tree[name] = &fstest.MapFile{Data: []byte(data)}
	}
	return tree
}

// ignored says whether a path is not part of what is committed; it follows .gitignore.
func ignored(name string) bool {
	switch path.Ext(name) {
	case ".test", ".out", ".prof":
		return true
	}
	return name == ".git" || name == "bin" || name == ".cache" || path.Base(name) == "node_modules"
}

// files returns every file of the tree, sorted, without fixtures of tests.
func files(tree fs.FS) []string {
	var names []string
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case ignored(name) || d.IsDir() && d.Name() == "testdata":
			if d.IsDir() {
				return fs.SkipDir
			}
		case !d.IsDir():
			names = append(names, name)
		}
		return nil
	})
	if err != nil {
		panic(err) // a tree that cannot be walked cannot be judged
	}
	return names
}

// foreign are folders of other people's files, which a package manager restores.
var foreign = []string{"node_modules", "vendor", "__pycache__", "site-packages"}

// TestNothingForeign finds other people's files among ours. It asks git, as tests and builds leave
// such files beside.
func TestNothingForeign(t *testing.T) {
	if _, err := os.Stat("../../.git"); err != nil {
		return // a copy of the tree without its history
	}
	tracked, err := exec.CommandContext(t.Context(), "git", "-C", "../..", "ls-files",
		"-z").Output()
	if err != nil {
		t.Fatal(err)
	}
	report(t, checkForeign(strings.Split(strings.TrimSuffix(string(tracked), "\x00"), "\x00")))
}

func checkForeign(tracked []string) (faults []string) {
	if !slices.Contains(tracked, "go.mod") {
		faults = append(faults, "go.mod is not among the files that git tracks")
	}
	for _, name := range tracked {
		for dir := range strings.SplitSeq(path.Dir(name), "/") {
			if slices.Contains(foreign, dir) {
				faults = append(faults, name+" belongs to somebody else, and is tracked")
			}
		}
	}
	return faults
}

func TestNothingForeignCanFail(t *testing.T) {
	expect(t, checkForeign([]string{
		"go.mod", "a/node_modules/b/c.js", "a/node_modules.md",
		"docs/vendor.md",
	}), "b/c.js belongs")
	expect(t, checkForeign(nil), "go.mod is not")
}

func read(tree fs.FS, name string) string {
	data, err := fs.ReadFile(tree, name)
	if err != nil {
		panic(err)
	}
	return string(data)
}

// A source is a parsed Go file of a module of go.work.
type source struct {
	name string // in the tree
	test bool
	fset *token.FileSet
	*ast.File
}

func (s source) dir() string           { return path.Dir(s.name) }
func (s source) pos(n ast.Node) string { return s.fset.Position(n.Pos()).String() }
func (s source) line(p token.Pos) int  { return s.fset.Position(p).Line }
func (s source) internal() bool {
	return strings.Contains("/"+s.dir()+"/", "/internal/")
}
func (s source) imports() (paths []string) { return importPaths(s.File) }

// sources parses every Go file of the modules of go.work. A file that does not parse is a fault of
// its own, told by the compiler.
func sources(tree fs.FS) (all []source) {
	others := otherModules(tree)
	for _, name := range files(tree) {
		if path.Ext(name) != ".go" || slices.ContainsFunc(others, func(dir string) bool {
			return strings.HasPrefix(name, dir+"/")
		}) {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, read(tree, name),
			parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			continue
		}
		all = append(all, source{name, strings.HasSuffix(name, "_test.go"), fset, f})
	}
	return all
}

// otherModules are the folders with a module that go.work does not have.
func otherModules(tree fs.FS) (dirs []string) {
	ours := workspace(tree)
	for _, name := range files(tree) {
		if dir := path.Dir(name); path.Base(name) == "go.mod" && dir != "." &&
			!slices.Contains(ours, dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

var useForm = regexp.MustCompile(`(?m)^\s+\./(\S+)$`)

// workspace are the folders of go.work's modules, the root's apart.
func workspace(tree fs.FS) (dirs []string) {
	if _, err := fs.Stat(tree, "go.work"); err != nil {
		return nil
	}
	for _, m := range useForm.FindAllStringSubmatch(read(tree, "go.work"), -1) {
		dirs = append(dirs, m[1])
	}
	return dirs
}

func importPaths(f *ast.File) (paths []string) {
	for _, spec := range f.Imports {
		paths = append(paths, strings.Trim(spec.Path.Value, "\"`"))
	}
	return paths
}

// A list allows exceptions, each with its reason: lines of "what # why". Exceptions that are not
// needed are faults too.
type list struct {
	name  string
	allow map[string]bool // whether it was needed
}

func newList(name, text string) (l list, faults []string) {
	l = list{name, map[string]bool{}}
	for line := range strings.Lines(text) {
		what, why, _ := strings.Cut(strings.TrimSpace(line), "#")
		what = strings.TrimSpace(what)
		if what != "" && strings.TrimSpace(why) == "" {
			faults = append(faults, l.name+": "+what+" gives no reason")
		}
		if what != "" {
			l.allow[what] = false
		}
	}
	return l, faults
}

// allows reports whether what is on the list.
func (l list) allows(what string) bool {
	_, ok := l.allow[what]
	if ok {
		l.allow[what] = true
	}
	return ok
}

// unused returns a fault for each exception that nothing needed.
func (l list) unused() (faults []string) {
	for what, used := range l.allow {
		if !used {
			faults = append(faults, l.name+": "+what+" is not needed on the list any more")
		}
	}
	slices.Sort(faults)
	return faults
}
