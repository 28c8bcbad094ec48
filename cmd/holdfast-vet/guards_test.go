package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/tools/go/analysis/analysistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The comments of the programs say what is to be found in them, and that nothing else is.
func TestPrograms(t *testing.T) {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		t.Fatal(err)
	}
	analysistest.Run(t, dir, analyzer, "./programs")
}

var program = regexp.MustCompile("(?s)```go\n(package main\n.*?)```\n")

// The command, as go vet runs it, finds nothing in the programs of the cookbook, and something in a
// program of which an Unlock is taken.
func TestCommand(t *testing.T) {
	dir := t.TempDir()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "cookbook.md"))
	if err != nil {
		t.Fatal(err)
	}
	tool := filepath.Join(dir, "holdfast-vet")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", tool,
		".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	write := func(name, text string) {
		t.Helper()
		name = filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("go.mod", "module example.com/cookbook\n\ngo 1.26.0\n")
	write("go.work", "go 1.26.0\n\nuse (\n\t.\n\t"+strconv.Quote(filepath.ToSlash(root))+"\n)\n")
	vet := func() (string, error) {
		cmd := exec.CommandContext(t.Context(), "go", "vet", "-vettool="+tool, "./...")
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=", "GOFLAGS=")
		out, err := cmd.CombinedOutput()
		return string(out), err
	}
	const unlock = "defer g.Unlock()"
	all, broken := program.FindAllStringSubmatch(string(page), -1), ""
	for i, found := range all {
		text := found[1]
		if strings.Contains(text, "modernc.org/sqlite") {
			// it stands in a module of its own, internal/fencing, where make lint has it vetted
			continue
		}
		if strings.Contains(text, unlock) {
			broken = strings.Replace(text, unlock, "_ = g.Hold()", 1)
		}
		write(strconv.Itoa(i)+"/main.go", text)
	}
	if len(all) < 8 || broken == "" {
		t.Fatalf("%d programs, and one with %q", len(all), unlock)
	}
	if out, err := vet(); err != nil {
		t.Errorf("in the cookbook: %v\n%s", err, out)
	}
	write("broken/main.go", broken)
	if out, err := vet(); err == nil || !strings.Contains(out, "g is never unlocked") {
		t.Errorf("in a program without an Unlock: %v\n%s", err, out)
	}
}
