package repo

import (
	"fmt"
	"io/fs"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestLeftTestsAreListed holds the table in CONTRIBUTING.md of what make test leaves out to the
// functions that call testserver.OnlyInAll.
func TestLeftTestsAreListed(t *testing.T) {
	report(t, checkLeft(tree()))
}

var (
	packageForm = regexp.MustCompile(`(?m)^package (\w+)$`)
	funcForm    = regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)\(`)
	leftForm    = regexp.MustCompile("`([a-z]+\\.\\w+)`")
)

const leftHead = "| left out | what keeps its rule in `make test` |\n|---|---|\n"

func checkLeft(tree fs.FS) (faults []string) {
	_, table, _ := strings.Cut(read(tree, "CONTRIBUTING.md"), leftHead)
	table, _, _ = strings.Cut(table, "\n\n")
	listed := map[string]bool{}
	for row := range strings.Lines(table) {
		cells := strings.Split(row, "|")
		if len(cells) != 4 || len(strings.TrimSpace(cells[2])) == 0 {
			faults = append(faults, fmt.Sprintf("CONTRIBUTING.md: %q has not two cells", row))
			continue
		}
		for _, m := range leftForm.FindAllStringSubmatch(cells[1], -1) {
			listed[m[1]] = true
		}
	}
	for _, file := range files(tree) {
		text := read(tree, file)
		if path.Ext(file) != ".go" || !strings.Contains(text, "testserver.OnlyInAll(t") ||
			strings.HasPrefix(file, "internal/repo/") {
			continue
		}
		name := packageForm.FindStringSubmatch(text)[1]
		if name = strings.TrimSuffix(name, "_test"); name == "main" {
			name = path.Base(path.Dir(file))
		}
		for rest := text; ; {
			before, after, more := strings.Cut(rest, "testserver.OnlyInAll(t")
			if !more {
				break
			}
			all := funcForm.FindAllStringSubmatch(text[:len(text)-len(rest)+len(before)], -1)
			what := name + "." + all[len(all)-1][1]
			if _, ok := listed[what]; !ok {
				faults = append(faults, fmt.Sprintf("CONTRIBUTING.md does not say what make test "+
					"has of %s, which it leaves out", what))
			}
			listed[what] = false // seen
			rest = after
		}
	}
	for _, what := range slices.Sorted(maps.Keys(listed)) {
		if listed[what] {
			faults = append(faults, fmt.Sprintf("CONTRIBUTING.md says that make test leaves out "+
				"%s, and it does not", what))
		}
	}
	return faults
}

func TestLeftTestsAreListedCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"a/x_test.go": "package a_test\n\nfunc TestOne(t *testing.T) " +
			"{\n\ttestserver.OnlyInAll(t, \"one\")\n}\n\nfunc TestTwo(t *testing.T) " +
			"{\n\ttestserver.OnlyInAll(t, \"two\")\n}\n",
		"cmd/b/y_test.go": "package main\n\nfunc TestThree(t *testing.T) " +
			"{\n\ttestserver.OnlyInAll(t, \"three\")\n}\n",
		"CONTRIBUTING.md": leftHead +
			"| `a.TestOne`, `a.TestGone` | `a.TestFour` |\n| `b.TestThree` | |\n\n| " +
			"`a.TestTwo` | x |\n",
	})
	expect(t, checkLeft(tree), "has not two cells", "what make test has of a.TestTwo",
		"what make test has of b.TestThree", "leaves out a.TestGone, and it does not")
}
