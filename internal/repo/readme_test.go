package repo

import (
	"errors"
	"fmt"
	"go/format"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// programLines is how long a program of the README may be, so that it is read.
const programLines = 25

// programs returns the first two Go blocks of the README, which have to be whole programs.
func programs(tree fs.FS) (shown []snippet, faults []string) {
	if _, err := fs.Stat(tree, "README.md"); err != nil {
		return nil, []string{"README.md is missing"}
	}
	shown = snippets("README.md", read(tree, "README.md"), "go")
	if len(shown) < 2 {
		return nil, []string{"README.md shows less than two blocks of Go"}
	}
	shown = shown[:2]
	for _, s := range shown {
		switch formatted, err := format.Source([]byte(s.text)); {
		case err != nil:
			faults = append(faults, fmt.Sprintf("%v: %v", s, err))
		case !strings.HasPrefix(s.text, "package main\n"):
			faults = append(faults, s.String()+": is no program")
		case string(formatted) != s.text:
			faults = append(faults, s.String()+": is not as gofmt writes it")
		}
		if n := strings.Count(s.text, "\n"); n > programLines {
			faults = append(faults, fmt.Sprintf("%v: has %d lines, and may have %d", s, n,
				programLines))
		}
	}
	return shown, faults
}

// TestReadmePrograms builds the first two programs of the README as they stand, each in a module of
// its own, and runs them. What they print is on the page.
func TestReadmePrograms(t *testing.T) {
	shown, faults := programs(tree())
	report(t, faults)
	if t.Failed() {
		return
	}
	page := read(tree(), "README.md")
	onPage := func(texts ...string) {
		t.Helper()
		for _, text := range texts {
			if !strings.Contains(page, "`"+text+"`") {
				t.Errorf("README.md does not show that a program prints %q", text)
			}
		}
	}

	// Sixteen goroutines and two keys: under the race detector, if the tests run under it. The
	// goroutines of a key print in the order of their holds; those of two keys in any.
	got := strings.Split(runProgram(t, buildProgram(t, shown[0])), "\n")
	var want []string
	for n := range 8 {
		want = append(want, fmt.Sprint("sold ", n+1), fmt.Sprint("sold ", n+1))
	}
	slices.Sort(got[:max(len(got)-2, 0)])
	if want = append(want, "all sold: true", ""); !slices.Equal(got, want) {
		t.Errorf("%v printed %q, not %q", shown[0], got, want)
	}
	onPage("sold 1", "sold 8", "all sold: true")

	// A folder is Linux's only; the program says so elsewhere.
	program := buildProgram(t, shown[1])
	if !strings.Contains(shown[1].text, "file://") {
		t.Errorf("%v needs more than a folder", shown[1])
	}
	if runtime.GOOS == "linux" {
		folder := "TMPDIR=" + t.TempDir()
		for n := range 3 {
			if got, want := runProgram(t, program, folder), fmt.Sprintf("sold %d <nil>\n",
				n+1); got != want {
				t.Errorf("%v printed %q in its run %d, not %q", shown[1], got, n+1, want)
			}
		}
	}
	onPage("sold 1 <nil>", "sold 2 <nil>")
}

// buildProgram builds a program in an empty module that requires this one, without a network.
func buildProgram(t *testing.T, s snippet) (program string) {
	t.Helper()
	dir := emptyModule(t, map[string]string{"main.go": s.text})
	inModule(t, dir, append([]string{"build", "-o", "program"}, testserver.BuildFlags()...)...)
	return filepath.Join(dir, "program")
}

// emptyModule makes a module of files, by their names, that requires this one and nothing else.
func emptyModule(t *testing.T, files map[string]string) (dir string) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	files["go.sum"] = read(tree(), "go.sum")
	for name, text := range files {
		name = filepath.Join(dir, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700),
			os.WriteFile(name, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	inModule(t, dir, "mod", "init", "example.org/first")
	inModule(t, dir, "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+root)
	return dir
}

// offline has the go command work in a module of a test without a network, and add what is
// required.
func offline() []string {
	return append(os.Environ(), "GOFLAGS=-mod=mod", "GOPROXY=off", "GOWORK=off")
}

// inModule runs the go command in a module.
func inModule(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", args...)
	cmd.Dir, cmd.Env = dir, offline()
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func runProgram(t *testing.T, program string, env ...string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir, cmd.Env = filepath.Dir(program), append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	return string(out)
}

func TestReadmeProgramsCanFail(t *testing.T) {
	block := func(text string) string { return "```go\n" + text + "```\n" }
	const good = "package main\n\nfunc main() {}\n"
	check := func(page string) []string {
		_, faults := programs(fixture(map[string]string{"README.md": page}))
		return faults
	}
	expect(t, check(block(good)+"x\n"+block(good)+block("not Go")))
	expect(t, check(block(good)+block("package main\n\nfunc main() {\n")), ": 3:15: expected")
	expect(t, check(block(good)+block("package a\n")), "README.md:6: is no program")
	expect(t, check(block(good)+block("package main\nfunc main() {}\n")),
		"README.md:6: is not as gofmt")
	expect(t, check(block(good)+block(good+strings.Repeat("\n// x\n", programLines))),
		"README.md:6: has 53 lines")
	expect(t, check(block(good)), "less than two blocks")
	expect(t, check("x\n"), "less than two blocks")
	_, faults := programs(fixture(nil))
	expect(t, faults, "README.md is missing")
}
