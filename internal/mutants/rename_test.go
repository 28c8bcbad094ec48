package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/scanner"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/yuin/gopher-lua/parse"
)

// TestRenaming holds mutants to say nothing of what may be renamed or reworded. In all packages
// with a place, every name that no other package can use is another one, parameters and fields
// included, and no comment is left but the markers. Each mutant must still find its place, and must
// compile.
func TestRenaming(t *testing.T) {
	all := ours(t)
	renamed, check := rename(t, all)
	try := func(m mutant) error {
		file, changed, err := m.apply(renamed)
		if err == nil {
			err = check(file, changed)
		}
		return err
	}
	before := 0
	for _, m := range mutants() {
		if m.At == "" {
			before++
		} else if err := try(m); err != nil {
			t.Errorf("%s: it knows a name or a comment: %v", m.Name, err)
		}
	}
	if before > 0 {
		t.Logf("%d mutants have no marker", before)
	}

	// And it would find one that knows a name.
	for name, m := range map[string]mutant{
		"a package's": {Find: `driftRate`, Put: "50"}, "a parameter's": {
			Find: `return sent`,
			Put:  "return 0",
		},
		"a result's": {Find: `\w+ \+`, Put: "sent +"}, "a comment's": {Find: ` // `, Put: "/"},
	} {
		if m.At = "drift"; try(m) == nil {
			t.Errorf("a mutant that knows %s name is not found", name)
		}
	}
}

// A listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Export string
	GoFiles                 []string
}

// rename returns the sources with other names in all that has a marker, and a check that a file of
// them, changed, compiles.
func rename(t *testing.T, all sources) (renamed sources, check func(file, changed string) error) {
	t.Helper()
	renamed = maps.Clone(all)
	dirs := map[string]bool{}
	for path, text := range all {
		if marked[filepath.Ext(path)].MatchString(text) {
			dirs["./"+filepath.Dir(path)] = filepath.Ext(path) == ".go" ||
				dirs["./"+filepath.Dir(path)]
			if filepath.Ext(path) == ".lua" {
				renamed[path] = otherLua(text)
			}
		}
	}
	maps.DeleteFunc(dirs, func(_ string, go_ bool) bool { return !go_ })
	exports, packages := list(t, slices.Sorted(maps.Keys(dirs)))
	fset := token.NewFileSet()
	imports := importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) {
		return os.Open(exports[path])
	})
	files := map[string]listed{} // by path
	compile := func(p listed, texts sources,
		other map[string]string,
	) (*types.Package, []*ast.File, *types.Info, error) {
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			path := filepath.Join(p.Dir, name)
			text, changed := other[path]
			if !changed {
				text = texts[path]
			}
			file, err := parser.ParseFile(fset, path, text, parser.ParseComments)
			if err != nil {
				return nil, nil, nil, err
			}
			parsed = append(parsed, file)
		}
		info := &types.Info{
			Defs: map[*ast.Ident]types.Object{},
			Uses: map[*ast.Ident]types.Object{},
		}
		pkg, err := (&types.Config{Importer: imports}).Check(p.ImportPath, fset, parsed, info)
		return pkg, parsed, info, err
	}
	for _, p := range packages {
		pkg, parsed, info, err := compile(p, all, nil)
		if err != nil {
			t.Fatal(err)
		}
		for i, file := range parsed {
			path := filepath.Join(p.Dir, p.GoFiles[i])
			files[path] = p
			renamed[path] = withoutComments(t, otherNames(fset, pkg, file, info, all[path]))
		}
		if _, _, _, err := compile(p, renamed, nil); err != nil {
			t.Fatalf("%s does not compile when it is renamed: %v", p.ImportPath, err)
		}
	}
	return renamed, func(file, changed string) error {
		if filepath.Ext(file) == ".lua" {
			_, err := parse.Parse(strings.NewReader(changed), file)
			return err
		}
		p, ok := files[file]
		if !ok {
			return fmt.Errorf("%s is not compiled here", file)
		}
		_, _, _, err := compile(p, renamed, map[string]string{file: changed})
		return err
	}
}

// list returns the packages in dirs, by paths below root, and where their imports' export data are.
func list(t *testing.T, dirs []string) (exports map[string]string, packages []listed) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go",
		append([]string{"list", "-export", "-deps", "-json=ImportPath,Dir,Export,GoFiles"},
			dirs...)...)
	cmd.Dir = root
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, &stderr)
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	exports = map[string]string{}
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return exports, packages
		} else if err != nil {
			t.Fatal(err)
		}
		exports[p.ImportPath] = p.Export
		if below, err := filepath.Rel(absolute, p.Dir); err == nil &&
			slices.Contains(dirs, "./"+below) {
			p.Dir = below
			packages = append(packages, p)
		}
	}
}

// otherNames is a file of pkg with other names. All objects of one name get the same other one, so
// that what shadows, embeds or implements what stays as it is.
func otherNames(fset *token.FileSet, pkg *types.Package, file *ast.File, info *types.Info,
	text string,
) string {
	var idents []*ast.Ident
	ast.Inspect(file, func(n ast.Node) bool {
		ident, ok := n.(*ast.Ident)
		if !ok || ident == file.Name || ident.Name == "_" || ident.Name == "init" ||
			ident.Name == "main" ||
			token.IsExported(ident.Name) || types.Universe.Lookup(ident.Name) != nil {
			return true
		}
		object, defined := info.Defs[ident]
		if !defined {
			object = info.Uses[ident]
		}
		_, imported := object.(*types.PkgName)
		// nil is the x of switch x := y.(type).
		if defined && object == nil || object != nil && object.Pkg() == pkg && !imported {
			idents = append(idents, ident)
		}
		return true
	})
	slices.SortFunc(idents, func(a, b *ast.Ident) int { return int(b.Pos() - a.Pos()) })
	for _, ident := range idents {
		at := fset.Position(ident.Pos()).Offset
		text = text[:at] + another(ident.Name) + text[at+len(ident.Name):]
	}
	return text
}

func another(name string) string {
	return "another" + string(unicode.ToUpper(rune(name[0]))) + name[1:]
}

// withoutComments is a file of Go with the comments that say something to the compiler, and of the
// others their markers alone.
func withoutComments(t *testing.T, text string) string {
	t.Helper()
	var s scanner.Scanner
	var b strings.Builder
	fset, end := token.NewFileSet(), 0
	s.Init(fset.AddFile("", fset.Base(), len(text)), []byte(text),
		func(at token.Position, msg string) {
			t.Errorf("%v: %s", at, msg)
		}, scanner.ScanComments)
	for {
		at, tok, literal := s.Scan()
		if tok == token.EOF {
			return b.String() + text[end:]
		}
		if from := fset.Position(at).Offset; tok == token.COMMENT &&
			!strings.HasPrefix(literal, "//go:") {
			b.WriteString(text[end:from])
			end = from + len(literal)
			if marker := markerIn.FindString(literal); marker != "" {
				b.WriteString("//" + marker)
			}
		}
	}
}

var markerIn = regexp.MustCompile(` safeguard: [\w-]+$`)

var (
	luaTokens = regexp.MustCompile(`--[^\n]*|'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*"|\d\w*|` +
		`(?:\b(?:redis|string|table|math)\.)?[A-Za-z_]\w*`)
	luaStays = regexp.MustCompile(`^(?:["'].*|\d.*|(?:redis|string|table|math)\..*|` +
		`and|break|do|else|elseif|end|false|for|function|if|in|local|nil|not|or|` +
		`repeat|return|then|true|until|while|KEYS|ARGV|type|tonumber|tostring|` +
		`ipairs|pairs|next|unpack|select|error|err|ok)$`)
)

// otherLua is a file of Lua with other names for variables and fields, and without comments but the
// markers. What of a name is in another file is not looked at: nothing is run.
func otherLua(text string) string {
	return luaTokens.ReplaceAllStringFunc(text, func(s string) string {
		switch {
		case strings.HasPrefix(s, "--"):
			if marker := markerIn.FindString(s); marker != "" {
				return "--" + marker
			}
			return ""
		case luaStays.MatchString(s):
			return s
		}
		return another(s)
	})
}
