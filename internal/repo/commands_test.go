package repo

import (
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestCommands holds the shell commands of the pages to what is there: make's targets, and paths of
// the tree.
func TestCommands(t *testing.T) {
	report(t, checkCommands(tree()))
}

var targetForm = regexp.MustCompile(`(?m)^([a-z][a-z-]*):`)

func checkCommands(tree fs.FS) (faults []string) {
	targets := map[string]bool{}
	for _, m := range targetForm.FindAllStringSubmatch(read(tree, "Makefile"), -1) {
		targets[m[1]] = true
	}
	for _, page := range append(pages(tree), "CONTRIBUTING.md") {
		if _, err := fs.Stat(tree, page); err != nil {
			continue // TestTopLevel tells
		}
		for _, s := range snippets(page, read(tree, page), "sh", "shell", "bash", "console") {
			for line := range strings.Lines(s.text) {
				faults = append(faults, checkCommand(tree, targets, s, line)...)
			}
		}
	}
	return faults
}

func checkCommand(tree fs.FS, targets map[string]bool, s snippet, line string) (faults []string) {
	line, _, _ = strings.Cut(strings.TrimPrefix(strings.TrimSpace(line), "$ "), " #")
	words := strings.Fields(line)
	if make := slices.Index(words, "make"); make == 0 {
		for _, w := range words[1:] {
			if !strings.ContainsAny(w, "=-") && !targets[w] {
				faults = append(faults, fmt.Sprintf("%v: make has no target %s", s, w))
			}
		}
	}
	for _, w := range words {
		if !strings.HasPrefix(w, "./") && !strings.HasPrefix(w, ".ci/") ||
			strings.HasPrefix(w, "./bin/") {
			continue
		}
		if _, err := fs.Stat(tree, path.Clean(strings.TrimSuffix(w, "..."))); err != nil {
			faults = append(faults, fmt.Sprintf("%v: %s does not exist", s, w))
		}
	}
	return faults
}

func TestCommandsCanFail(t *testing.T) {
	tree := fixture(map[string]string{
		"Makefile":          "test: deps ## all\n\tgo test\nfmt-check:\n",
		"cmd/holdfast/x.go": "package main",
		"README.md": "```sh\nmake test\nmake fmt-check # or not\n$ make tset X=1\ngo run " +
			"./cmd/holdfast demo\n./bin/holdfast\n```\n```text\nmake nothing\n```\n",
		"docs/a.md": "```bash\ngo test ./... -race\ngo run ./cmd/nothing\n.ci/run\n```\n",
	})
	expect(t, checkCommands(tree), "README.md:1: make has no target tset",
		"docs/a.md:1: ./cmd/nothing does not", "docs/a.md:1: .ci/run does not")
}
