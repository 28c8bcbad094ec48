package repo

import (
	"cmp"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A member is a module of go.work.
type member struct {
	dir   string
	knows []string // the folders of the modules of this repository that it may require
}

// The modules, so that each comes behind those that it knows. Whoever adds one says here whose
// users get it.
var members = []member{
	{".", nil},
	{"etcdbackend", []string{"."}},
	{"backend/pgbackend", []string{"."}},
	{"cmd/holdfast-vet", nil}, // it knows the library by its name alone
	{"cmd", []string{".", "etcdbackend", "backend/pgbackend"}},
}

// TestModules holds the modules of go.work to what docs/adr/modules.md promises: who imports one
// gets no other than those it knows, their tests included, as go mod tidy does not tell them apart;
// no go.mod replaces anything, as go install refuses that; and the command, which nobody imports,
// is on versions that are at least as new as those of the others.
func TestModules(t *testing.T) {
	report(t, checkModules(tree(), members))
}

func checkModules(tree fs.FS, members []member) (faults []string) {
	dirs := append([]string{"."}, workspace(tree)...)
	for _, m := range members {
		if !slices.Contains(dirs, m.dir) {
			faults = append(faults, "go.work lacks "+m.dir)
		}
	}
	of := func(pkg string) string { // the folder of the module that has a package
		for i := len(dirs) - 1; i > 0; i-- {
			if pkg == dirs[i] || strings.HasPrefix(pkg, dirs[i]+"/") {
				return dirs[i]
			}
		}
		return "."
	}
	knows := map[string][]string{}
	for _, m := range members {
		knows[m.dir] = append(m.knows, m.dir)
	}
	for _, s := range sources(tree) {
		for _, imp := range s.imports() {
			local, ours := strings.CutPrefix(imp, module+"/")
			if from := of(s.dir()); ours && !slices.Contains(knows[from], of(local)) {
				faults = append(faults, fmt.Sprintf("%s imports %s, which makes users of the "+
					"module %s need that of %s", s.name, imp, from, of(local)))
			}
		}
	}
	newest := map[string]string{}
	for i := len(members) - 1; i >= 0; i-- { // the command first
		mod := read(tree, path.Join(members[i].dir, "go.mod"))
		if strings.Contains(mod, "replace ") {
			faults = append(faults, members[i].dir+"/go.mod has a replace directive")
		}
		for required, version := range requirements(mod) {
			if i == len(members)-1 {
				newest[required] = version
			} else if current, ok := newest[required]; ok && compareVersions(current, version) < 0 {
				faults = append(faults, fmt.Sprintf("the command's %s %s is older than %s, of %s",
					required, current, version, members[i].dir))
			}
		}
	}
	return faults
}

// requirements are the versions of a go.mod by module, indirect ones included.
func requirements(mod string) map[string]string {
	all := map[string]string{}
	for _, m := range regexp.MustCompile(
		`(?m)^(?:require )?\s*(\S+\.\S+/\S+) (v\S+)`).FindAllStringSubmatch(mod, -1) {
		all[m[1]] = m[2]
	}
	return all
}

// compareVersions is cmp.Compare of two versions of one module: by numbers as far as they have
// them, and a pre-release comes before its release.
func compareVersions(a, b string) int {
	a, preA, _ := strings.Cut(a, "-")
	b, preB, _ := strings.Cut(b, "-")
	numbersA, numbersB := strings.Split(a[1:], "."), strings.Split(b[1:], ".")
	for i := range min(len(numbersA), len(numbersB)) {
		x, _ := strconv.Atoi(numbersA[i])
		y, _ := strconv.Atoi(numbersB[i])
		if x != y {
			return cmp.Compare(x, y)
		}
	}
	if (preA == "") != (preB == "") {
		return cmp.Compare(len(preB), len(preA))
	}
	return strings.Compare(preA, preB)
}

func TestModulesCanFail(t *testing.T) {
	check := func(more map[string]string) []string {
		files := map[string]string{
			"go.work": "go 1.26.0\n\nuse (\n\t.\n\t./store\n\t./tool\n)\n",
			"go.mod": "module m\n\nrequire (\n\ta.org/a v1.9.0\n" +
				"\ta.org/b v0.0.0-20260101000000-abc // indirect\n)\n",
			"store/go.mod": "module s\n",
			"tool/go.mod": "module t\n\nrequire (\n\ta.org/a v1.10.0\n" +
				"\ta.org/b v0.0.0-20260201000000-abc // indirect\n)\n",
			"store/a.go": "package store\nimport _ \"" + module + "/lock\"",
			"tool/a.go":  "package main\nimport _ \"" + module + "/store\"",
		}
		for name, text := range more {
			files[name] = text
		}
		return checkModules(fixture(files),
			[]member{{".", nil}, {"store", []string{"."}}, {"tool", []string{".", "store"}}})
	}
	expect(t, check(nil))
	expect(t, check(map[string]string{"go.work": "use (\n\t./store\n)\n"}), "go.work lacks tool")
	expect(t, check(map[string]string{"lock/a_test.go": "package lock\nimport _ \"" + module +
		"/store/sub\""}), "lock/a_test.go imports")
	expect(t, check(map[string]string{"store/a_test.go": "package lock\nimport _ \"" + module +
		"/tool\""}), "store/a_test.go imports")
	expect(t, check(map[string]string{"store/go.mod": "module s\n\nreplace m => ..\n"}),
		"store/go.mod has a replace")
	for newer, fault := range map[string]string{
		"require a.org/a v1.8.9\n":      "a.org/a v1.8.9 is older",
		"require a.org/a v1.9.0-rc.1\n": "a.org/a v1.9.0-rc.1 is older",
		"require a.org/b v0.0.0-20251231000000-abc\n": "a.org/b v0.0.0-20251231000000-abc " +
			"is older",
		"require a.org/b v0.0.0-20260101000000-abc // same\n": "",
	} {
		var want []string
		if fault != "" {
			want = append(want, fault)
		}
		expect(t, check(map[string]string{"tool/go.mod": newer}), want...)
	}
}
