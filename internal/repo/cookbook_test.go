package repo

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"go/format"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

const (
	recipeCount = 12
	recipeLines = 50 // how long a program of the cookbook may be
)

// runElsewhere are the recipes that need what the root module does not have. A program of theirs
// stands in a file of another module, which TestGoSnippets looks for.
const runElsewhere = `
a-flash-sale-with-an-sql-fence # a driver for a database; internal/fencing runs it
`

// A recipe is a section of the cookbook: a program, and a session in which it runs.
type recipe struct {
	name             string // the anchor of its heading
	program, session snippet
}

// test says that the program is the file of a test.
func (r recipe) test() bool { return !strings.HasPrefix(r.program.text, "package main\n") }

// store is the scheme of the URL that the program reads; "" if it reads none.
func (r recipe) store() string {
	switch {
	case !strings.Contains(r.program.text, `os.Getenv("HOLDFAST_BACKEND")`):
		return ""
	case strings.Contains(r.program.text, "/filebackend\""):
		return "file"
	}
	return "redis"
}

// recipes returns what the cookbook has to cook.
func recipes(tree fs.FS) (all []recipe, faults []string) {
	const page = "docs/cookbook.md"
	text := read(tree, page)
	line := 1
	for i, section := range strings.SplitAfter(text, "\n## ") {
		shown := snippets(page, section, "go", "text")
		at := fmt.Sprintf("%s:%d", page, line)
		line += strings.Count(section, "\n")
		if i == 0 {
			continue // what is before the first recipe
		}
		if len(shown) != 2 || shown[0].lang != "go" || shown[1].lang != "text" {
			faults = append(faults, at+": a recipe is a block of Go and a block of text")
			continue
		}
		title, _, _ := strings.Cut(section, "\n")
		r := recipe{slug(title), shown[0], shown[1]}
		r.program.line, r.session.line = line, line
		if formatted, err := format.Source([]byte(r.program.text)); err != nil ||
			string(formatted) != r.program.text {
			faults = append(faults, at+": is not as gofmt writes it")
		}
		if n := strings.Count(r.program.text, "\n"); n > recipeLines {
			faults = append(faults, fmt.Sprintf("%s: has %d lines, and may have %d", at, n,
				recipeLines))
		}
		all = append(all, r)
	}
	return all, faults
}

// TestCookbook builds the programs of the cookbook as they stand, in one module that requires this
// one, and runs their sessions.
func TestCookbook(t *testing.T) {
	all, faults := recipes(tree())
	report(t, faults)
	if len(all) < recipeCount {
		t.Errorf("docs/cookbook.md has %d recipes, and should have %d", len(all), recipeCount)
	}
	elsewhere, faults := newList("runElsewhere", runElsewhere)
	report(t, faults)
	all = slices.DeleteFunc(all, func(r recipe) bool { return elsewhere.allows(r.name) })
	report(t, elsewhere.unused())
	if testing.Short() {
		t.Skip("builds twelve programs")
	}

	sources := map[string]string{}
	for _, r := range all {
		name := "main.go"
		if r.test() {
			name = "recipe_test.go"
		}
		sources[r.name+"/"+name] = r.program.text
	}
	dir := emptyModule(t, sources)
	bin := filepath.Join(dir, "bin") + string(filepath.Separator)
	inModule(t, dir, slices.Concat([]string{"build", "-o", bin}, testserver.BuildFlags(),
		[]string{"./..."})...)
	if runtime.GOOS != "linux" {
		return // sessions are a shell's, and one of them needs a folder
	}
	command := exec.CommandContext(t.Context(), "go",
		slices.Concat([]string{"build", "-o", bin}, testserver.BuildFlags(),
			[]string{"./cmd/holdfast"})...)
	command.Dir = "../.."
	if out, err := command.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	srv := testserver.Redis(t)
	for _, r := range all {
		t.Run(r.name, func(t *testing.T) {
			t.Parallel()
			home := filepath.Join(dir, r.name)
			if !r.test() {
				if err := os.Rename(bin+r.name, filepath.Join(home, "app")); err != nil {
					t.Fatal(err)
				}
			}
			env := append(offline(), "PATH="+filepath.Clean(bin)+":"+os.Getenv("PATH"))
			switch r.store() {
			case "file":
				env = append(env, "HOLDFAST_BACKEND=file://"+t.TempDir())
			case "redis":
				env = append(env, "HOLDFAST_BACKEND=redis://"+srv.Addr()+"?prefix=cookbook-"+
					rand.Text()+":")
			}
			limit := 25 * time.Second // less than a TTL: a lock that was not given back is noticed
			if r.test() {
				limit = 2 * time.Minute // it compiles
			}
			report(t, play(t.Context(), limit, r.session, home, env))
		})
	}
}

// play runs the commands of a session, which begin with "$ ", and compares what they print with
// what the page says. A line ^C stands for an interrupt, which comes when everything before it was
// printed; a … for any text. Each command has to end within the limit.
func play(ctx context.Context, limit time.Duration, s snippet, dir string,
	env []string,
) (faults []string) {
	for _, step := range strings.Split("\n"+s.text, "\n$ ")[1:] {
		command, want, _ := strings.Cut(step, "\n")
		ctx, cancel := context.WithTimeout(ctx, limit)
		err := playOne(ctx, command, strings.TrimSuffix(want, "\n"), dir, env)
		cancel()
		if err != nil {
			faults = append(faults, fmt.Sprintf("%v: $ %s: %v", s, command, err))
		}
	}
	return faults
}

func playOne(ctx context.Context, command, want, dir string, env []string) error {
	if strings.Contains("\n"+want+"\n", "\n^C\n") {
		command = "exec " + command // so that the interrupt goes to the program and not to a shell
	}
	cmd := exec.CommandContext(ctx, "sh", "-c", command)
	cmd.Dir, cmd.Env = dir, env
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	if end, ok := ctx.Deadline(); ok {
		_ = r.SetReadDeadline(end) // whoever else has the other end
	}
	cmd.Stdout, cmd.Stderr = w, w
	if err := cmd.Start(); err != nil {
		return err
	}
	_ = w.Close()
	var lines []string
	out, printed := bufio.NewReader(r), func() string { return strings.Join(lines, "\n") }
	for {
		if next := strings.SplitN(want, "\n", len(lines)+2); len(lines) < len(next) &&
			next[len(lines)] == "^C" {
			lines = append(lines, "^C")
			if err := cmd.Process.Signal(os.Interrupt); err != nil {
				return err
			}
		}
		line, err := out.ReadString('\n')
		if line != "" {
			lines = append(lines, strings.TrimSuffix(line, "\n"))
		}
		if err == io.EOF {
			break
		}
		if err != nil {
			return err
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%w, having printed %q", err, printed())
	}
	form := "^" + strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".+") + "$"
	if got := printed(); !regexp.MustCompile(form).MatchString(got) {
		return fmt.Errorf("printed %q, not %q", got, want)
	}
	return nil
}

func TestCookbookCanFail(t *testing.T) {
	const program = "```go\npackage main\n\nfunc main() {}\n```\n"
	const session = "```text\n$ ./app\n```\n"
	check := func(page string) []string {
		_, faults := recipes(fixture(map[string]string{"docs/cookbook.md": page}))
		return faults
	}
	expect(t, check("# Book\n\n```sh\nmake\n```\n\n## One\n\n"+program+session+"\n## Two\n\n"+
		program+"and\n"+session))
	expect(t, check("# Book\n\n## One\n\n"+program+"\n## Two\n"+session+program),
		"docs/cookbook.md:3: a recipe is", "docs/cookbook.md:11: a recipe is")
	expect(t, check("## No recipe, as nothing is before it\n\n## One\n```go\npackage main\nfunc "+
		"main() {}\n```\n"+session), "not as gofmt")
	expect(t, check("\n## One\n```go\npackage main\n"+strings.Repeat("\n// x\n", recipeLines)+
		"```\n"+session), "lines, and may have")

	if runtime.GOOS != "linux" {
		return
	}
	for text, want := range map[string]string{
		"$ echo a; echo b\na\nb\n$ true\n": "",
		"$ echo 'a  b'\na … b\n":           "printed",
		"$ echo a 12 b\na … b\n":           "",
		"$ echo a\nb\n":                    `$ echo a: printed "a", not "b"`,
		"$ echo a\n":                       `printed "a", not ""`,
		"$ true\na\n":                      `printed "", not "a"`,
		"$ echo a; false\na\n":             "exit status 1",
		"$ echo a >&2\na\n":                "",
		"$ sh -c 'trap \"echo b; exit\" INT; echo a; while :; do sleep 0.01; done'\na\n^C\nb\n": "",
	} {
		faults := play(t.Context(), 10*time.Second, snippet{"page", 1, "text", text}, t.TempDir(),
			os.Environ())
		if want == "" {
			expect(t, faults)
		} else {
			expect(t, faults, want)
		}
	}
}
