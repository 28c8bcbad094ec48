package repo

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/doc/comment"
	"go/format"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A snippet is a fenced block of a page.
type snippet struct {
	page string
	line int
	lang string
	text string
}

func (s snippet) String() string { return fmt.Sprintf("%s:%d", s.page, s.line) }

var fenceForm = regexp.MustCompile("(?ms)^```([a-z]*)[^\n]*(\n.*?\n)```")

func snippets(page, text string, langs ...string) (all []snippet) {
	for _, m := range fenceForm.FindAllStringSubmatchIndex(text, -1) {
		if lang := text[m[2]:m[3]]; slices.Contains(langs, lang) {
			all = append(all, snippet{
				page, 1 + strings.Count(text[:m[0]], "\n"), lang,
				text[m[4]+1 : m[5]],
			})
		}
	}
	return all
}

// pages are what users read: the README and docs/, the decisions apart, which quote code as it was.
func pages(tree fs.FS) (names []string) {
	for _, name := range files(tree) {
		if name == "README.md" || path.Ext(name) == ".md" && path.Dir(name) == "docs" {
			names = append(names, name)
		}
	}
	return names
}

// docPrograms are the whole programs in package comments, which pkg.go.dev shows.
func docPrograms(tree fs.FS) (all []snippet) {
	for _, s := range sources(tree) {
		if s.Doc == nil {
			continue
		}
		for _, block := range new(comment.Parser).Parse(s.Doc.Text()).Content {
			if code, ok := block.(*comment.Code); ok &&
				strings.HasPrefix(code.Text, "package main\n") {
				all = append(all, snippet{s.name, s.line(s.Doc.Pos()), "go", code.Text})
			}
		}
	}
	return all
}

// TestGoSnippets compiles what the pages show, and the programs of package comments. A snippet that
// stands in a Go file of the tree, line by line, is compiled there; the others are compiled here.
func TestGoSnippets(t *testing.T) {
	known := packagePaths(tree())
	sourcesText := goLines(tree())
	overlay := map[string]string{}
	var origin []string
	for _, page := range pages(tree()) {
		for _, s := range snippets(page, read(tree(), page), "go") {
			if slices.ContainsFunc(sourcesText, func(text string) bool {
				return contains(text, s.text)
			}) {
				continue
			}
			src, err := wrap(s.text, known)
			if err != nil {
				t.Errorf("%v: %v", s, err)
				continue
			}
			overlay[fmt.Sprintf("snippet%d", len(origin))] = src
			origin = append(origin, s.String())
		}
	}
	for _, s := range docPrograms(tree()) {
		overlay[fmt.Sprintf("snippet%d", len(origin))] = s.text
		origin = append(origin, s.String())
	}
	for i, s := range origin {
		t.Logf("snippet%d is %s", i, s)
	}
	if out, err := compile(t, "../..", overlay); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}

// lines makes texts equal that differ in indentation and blank lines only.
func lines(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "\n") + "\n"
}

func contains(file, part string) bool { return strings.Contains("\n"+file, "\n"+lines(part)) }

// goLines has the Go files of nested modules too: what pages show of other libraries is compiled
// there.
func goLines(tree fs.FS) (texts []string) {
	for _, name := range files(tree) {
		if path.Ext(name) == ".go" {
			texts = append(texts, lines(read(tree, name)))
		}
	}
	return texts
}

// packagePaths maps the names by which snippets call packages to their import paths.
func packagePaths(tree fs.FS) map[string]string {
	known := map[string]string{
		"http": "net/http", "slog": "log/slog", "url": "net/url", "signal": "os/signal",
		"sql":   "database/sql",
		"redis": "github.com/redis/go-redis/v9",
	}
	for _, name := range strings.Fields(
		"bytes context errors fmt io log os strings sync testing time") {
		known[name] = name
	}
	for _, s := range sources(tree) {
		if !s.test && s.Name.Name != "main" {
			known[s.Name.Name] = module + "/" + s.dir()
		}
	}
	return known
}

// wrap makes a file of a snippet: of declarations, or of statements, which may use a ctx and a
// backend b, and leave variables unused.
func wrap(text string, known map[string]string) (string, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "package ") {
		return text, nil
	}
	src := "package snippet\n\n" + text
	if !parses(src) {
		src = "package snippet\n\nfunc _(ctx context.Context, b backend.Backend) (err " +
			"error) {\n{\n" + text + "\n" + uses(text) + "}\nreturn err\n}\n"
	}
	f, err := parser.ParseFile(token.NewFileSet(), "", src, 0)
	if err != nil {
		return "", fmt.Errorf("neither declarations nor statements: %w", err)
	}
	var imports strings.Builder
	for _, name := range f.Unresolved {
		if imp, ok := known[name.Name]; ok &&
			!strings.Contains(imports.String(), "\t"+name.Name+" ") {
			fmt.Fprintf(&imports, "\t%s %q\n", name.Name, imp)
		}
	}
	src = strings.Replace(src, "package snippet\n",
		"package snippet\n\nimport (\n"+imports.String()+")\n", 1)
	formatted, err := format.Source([]byte(src))
	return string(formatted), err
}

func parses(src string) bool {
	_, err := parser.ParseFile(token.NewFileSet(), "", src, 0)
	return err == nil
}

// uses assigns every variable that the statements declare at their top level to nothing.
func uses(text string) string {
	f, err := parser.ParseFile(token.NewFileSet(), "", "package p\nfunc _() {\n"+text+"\n}",
		parser.SkipObjectResolution)
	if err != nil {
		return ""
	}
	var b strings.Builder
	fn, ok := f.Decls[0].(*ast.FuncDecl)
	if !ok {
		return ""
	}
	for _, stmt := range fn.Body.List {
		assign, ok := stmt.(*ast.AssignStmt)
		if !ok || assign.Tok != token.DEFINE {
			continue
		}
		for _, left := range assign.Lhs {
			if name, ok := left.(*ast.Ident); ok && name.Name != "_" {
				fmt.Fprintf(&b, "_ = %s\n", name.Name)
			}
		}
	}
	return b.String()
}

// compile runs go build on packages that exist for it only, each of one file, inside of the module
// at root.
func compile(t *testing.T, root string, packages map[string]string) (string, error) {
	if len(packages) == 0 {
		return "", nil
	}
	root, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	dir := t.TempDir()
	replace := map[string]string{}
	args := append([]string{
		"build", "-o", os.DevNull,
		"-overlay=" + filepath.Join(dir, "overlay.json"),
	}, testserver.BuildFlags()...)
	flags := len(args)
	for pkg, src := range packages {
		file := filepath.Join(dir, pkg+".go")
		if err := os.WriteFile(file, []byte(src), 0o600); err != nil {
			return "", err
		}
		replace[filepath.Join(root, "internal", "repo", pkg, "snippet.go")] = file
		args = append(args, "./internal/repo/"+pkg)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o600); err != nil {
		return "", err
	}
	slices.Sort(args[flags:])
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir = root
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func TestGoSnippetsCanFail(t *testing.T) {
	const good = "b, err := backend.Open(ctx, \"mem://\")\nif err != nil {\n\treturn " +
		"err\n}\ndefer b.Close()\nstarted := time.Now()\n"
	const declared = "type mine struct{ backend.Base }\n"
	const bad = "b, err := backend.Open(\"mem://\")\n"
	for text, wantErr := range map[string]bool{good: false, declared: false, bad: true} {
		src, err := wrap(text, packagePaths(tree()))
		if err != nil {
			t.Fatal(err)
		}
		out, err := compile(t, "../..", map[string]string{"snippet0": src})
		if (err != nil) != wantErr {
			t.Errorf("build of\n%s: %v\n%s", src, err, out)
		}
	}
	commented := fixture(map[string]string{"a/doc.go": "// Package a\n//\n//\tpackage " +
		"main\n//\n//\tfunc main() {}\n//\n//\tx()\npackage a\n"})
	if got := docPrograms(commented); len(got) != 1 ||
		got[0].text != "package main\n\nfunc main() {}\n\nx()\n" {
		t.Errorf("the program in a package comment is %v", got)
	}
	if _, err := wrap("this is not Go\n", nil); err == nil {
		t.Error("wrap took prose for Go")
	}
	if !contains(lines("a()\n\n\tb()\nc()\n"), "  b()\n\n  c()\n") ||
		contains(lines("ab()\n"), "b()\n") {
		t.Error("contains is not by whole lines")
	}
}
