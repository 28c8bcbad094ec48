package repo

import (
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// topLevel is what the root holds beside dot files. What does not fit under one of these names has
// no place yet.
var topLevel = strings.Fields(`go.mod go.sum go.work go.work.sum
	locker backend redisbackend rueidisbackend etcdbackend redlock waiting tracing
	internal docs cmd README.md LICENSE Makefile CONTRIBUTING.md SECURITY.md CHANGELOG.md`)

// TestTopLevel keeps the root as short as it is.
func TestTopLevel(t *testing.T) {
	report(t, checkTopLevel(tree()))
}

func checkTopLevel(tree fs.FS) (faults []string) {
	entries, err := fs.ReadDir(tree, ".")
	if err != nil {
		return []string{err.Error()}
	}
	for _, e := range entries {
		if name := e.Name(); !slices.Contains(topLevel, name) && !strings.HasPrefix(name, ".") &&
			!ignored(name) {
			faults = append(faults, name+" is not one of the names that the root may hold")
		}
	}
	for _, needed := range []string{
		"README.md", "LICENSE", "Makefile", "CONTRIBUTING.md",
		"SECURITY.md", "CHANGELOG.md",
	} {
		if _, err := fs.Stat(tree, needed); err != nil {
			faults = append(faults, needed+" is missing")
		}
	}
	return faults
}

// machinePath finds paths of somebody's machine. The pattern is put together so that it does not
// find itself.
var machinePath = regexp.MustCompile(`(?m)(?:^|[\s"'` + "`" + `(=:,])(/(?:` +
	strings.Join([]string{"work", "root", `home/\w+`, `Users/\w+`}, "|") + `)(?:/[^\s"'` + "`" +
	`)]*)?)(?:[\s"'` + "`" + `),:;]|$)`)

// TestMachinePaths finds what holds on one machine only.
func TestMachinePaths(t *testing.T) {
	report(t, checkMachinePaths(tree()))
}

func checkMachinePaths(tree fs.FS) (faults []string) {
	for _, name := range files(tree) {
		text := read(tree, name)
		if strings.ContainsRune(text, 0) {
			continue // binary
		}
		for _, m := range machinePath.FindAllStringSubmatchIndex(text, -1) {
			line := 1 + strings.Count(text[:m[2]], "\n")
			faults = append(faults, fmt.Sprintf("%s:%d mentions %s, a path of one machine", name,
				line, text[m[2]:m[3]]))
		}
	}
	return faults
}

func TestTopLevelCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"locker/x.go": "", ".ci/run": "", "bin/x": "", "cover.out": "", "pkg/x.go": "",
		"NOTES.md":  "",
		"README.md": "", "LICENSE": "", "Makefile": "", "CONTRIBUTING.md": "", "SECURITY.md": "",
	})
	expect(t, checkTopLevel(tree), "pkg is not", "NOTES.md is not", "CHANGELOG.md is missing")
}

func TestMachinePathsCanFail(t *testing.T) {
	const slash = "/"
	tree := fixture(map[string]string{
		"a.md": "see " + slash + "work/main/x.go for more",
		"b.go": "dir = \"" + slash + "root\"",
		"c.go": "x\n// in `" + slash + "home/jo/src`",
		"d.md": "https://example.org/work/x and docs/work/ and a " + slash + "workflow and " +
			slash + "var/lib",
		"bin/x":  slash + "work/main",
		"e.bin":  "\x00 " + slash + "work/main",
		"sub/.f": "cd " + slash + "work/main",
	})
	expect(t, checkMachinePaths(tree), "a.md:1 mentions", "b.go:1 mentions", "c.go:2 mentions",
		"sub/.f:1 mentions")
}
