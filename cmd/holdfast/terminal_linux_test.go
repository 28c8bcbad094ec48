package main_test

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/backend"
	holdfastmain "github.com/holdfast-go/holdfast/cmd/holdfast"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// terminal has cmd print to a new terminal, and returns what shows on it.
func terminal(t *testing.T, cmd *exec.Cmd) io.Reader {
	t.Helper()
	screen, tty := holdfastmain.OpenTerminal(t)
	defer tty.Close()
	cmd.Stdout, cmd.Stderr = tty, tty
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return screen // which ends with an error when nobody has the terminal open any more
}

var sequences = regexp.MustCompile(`\x1b\[[0-9;]*[a-zA-Z]`)

func TestColours(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	held := begin(t, url, "run", "report", "--", "sh", "-c", works)
	held.line()
	show := func(env []string, args ...string) string {
		t.Helper()
		cmd := command(t, t.TempDir(), append(args, "--backend", url)...)
		cmd.Env = append(append(cmd.Env, "TERM=xterm", "NO_COLOR="), env...)
		shown := terminal(t, cmd)
		var all bytes.Buffer
		for {
			if _, err := io.CopyN(&all, shown, 1); err != nil {
				break
			}
			if args[0] == "top" && (strings.HasSuffix(all.String(), "name") ||
				strings.HasSuffix(all.String(), ")  -\r\n")) || args[0] == "watch" &&
				strings.HasSuffix(all.String(), "\n") {
				_ = cmd.Process.Signal(os.Interrupt)
			}
		}
		_ = cmd.Wait()
		return all.String()
	}
	for args, coloured := range map[string]string{
		"inspect report": "report is \x1b[33mheld\x1b[39m by sh@",
		"inspect free":   "free is \x1b[32mfree\x1b[39m",
		"leader report":  "report is \x1b[33mheld\x1b[39m by sh@", "list": "\x1b[39m0\x1b[39m",
		"top": "\x1b[39m0\x1b[39m", "watch report": "\x1b[32mgranted\x1b[39m",
		"doctor":         "\x1b[32mok\x1b[39m",
		"demo --stock=5": "\x1b[32msold 5 of 5\x1b[39m",
	} {
		args := strings.Fields(args)
		got := show(nil, args...)
		if !strings.Contains(got, coloured) {
			t.Errorf("%v shows %q", args, got)
		}
		if args[0] == "list" { // the columns stand where they would without
			lines := strings.Split(sequences.ReplaceAllString(got, ""), "\n")
			if strings.Index(lines[0], "HELD BY") != strings.Index(lines[1], "sh@") ||
				strings.Index(lines[0], "WAIT") != strings.Index(lines[1], "0") {
				t.Errorf("the columns are not in line:\n%s", got)
			}
		}
		for _, other := range []struct {
			env  []string
			args []string
		}{{nil, []string{"--no-color"}}, {[]string{"NO_COLOR=1"}, nil}} {
			bare := show(other.env, append(args, other.args...)...)
			if strings.Contains(bare, "\x1b[3") {
				t.Errorf("%v %v shows %q", other, args, bare)
			}
			if args[0] == "top" && (!strings.HasPrefix(bare, "\x1b[?1049h") ||
				!strings.HasSuffix(bare, "\x1b[?1049l")) {
				t.Errorf("%v %v has no screen of its own: %q", other, args, bare)
			}
		}
		if bare := show([]string{"TERM=dumb"}, args...); strings.Contains(bare, "\x1b") {
			t.Errorf("%v on a dumb terminal shows %q", args, bare)
		}
	}
	if got := show(nil, "list", "-o", "json"); strings.Contains(got, "\x1b") {
		t.Errorf("as JSON: %q", got)
	}
	_ = held.cmd.Process.Kill()
	_, _, _ = held.end()
}

// A pipe is told of all who wait, a terminal of the first ones and how many more there are.
func TestInspectTellsOfAll(t *testing.T) {
	srv := testserver.SharedRedis(t)
	store, err := backend.Open(t.Context(), srv.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	key := "crowd-" + backend.NewOwner()
	for i := range 23 { // one holds
		c := backend.Claim{
			Key: key, Owner: backend.NewOwner(), TTL: time.Hour, Queue: true,
			WaiterTTL: time.Hour,
		}
		if _, err := store.TryAcquire(t.Context(), c); (err == nil) != (i == 0) {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = store.Release(context.WithoutCancel(t.Context()), c) })
	}
	args := []string{"inspect", "--backend", srv.URL(), "--", key}
	if o := holdfast(t, args...).want(t, 0); !strings.Contains(o.out, "  22.    somebody waits") ||
		strings.Contains(o.out, "more wait") {
		t.Errorf("in a pipe\n%s", o.out)
	}
	cmd := command(t, t.TempDir(), args...)
	cmd.Env = append(cmd.Env, "TERM=xterm")
	all, _ := io.ReadAll(terminal(t, cmd)) // it ends with an error
	_ = cmd.Wait()
	if shown := string(all); !strings.Contains(shown, "and 2 more wait") ||
		strings.Contains(shown, "  21.") {
		t.Errorf("on a terminal\n%s", shown)
	}
}

// What is wider than the window is shortened or goes on in the next line, and is whole in a pipe.
func TestTablesFitTheWindow(t *testing.T) {
	srv := testserver.Redis(t) // without persistence, of which doctor has much to say
	key, note := "orders/"+strings.Repeat("x", 60)+"/end", strings.Repeat("why ", 40)
	held := begin(t, srv.URL(), "run", key, "--note", note, "--", "sh", "-c", works)
	held.line()
	for args, want := range map[string]string{
		"list": "orders/xxx", "doctor": "has forgotten",
		"config check": "HOLDFAST_RELEASE_TIMEOUT is",
	} {
		cmd := command(t, t.TempDir(), append(strings.Fields(args), "--backend", srv.URL())...)
		cmd.Env = append(cmd.Env, "TERM=xterm")
		all, _ := io.ReadAll(terminal(t, cmd)) // it ends with an error
		_ = cmd.Wait()
		shown := sequences.ReplaceAllString(string(all), "")
		if !strings.Contains(shown, want) {
			t.Errorf("%s shows no %q:\n%s", args, want, shown)
		}
		for line := range strings.Lines(shown) {
			if line = strings.TrimRight(line, "\r\n"); utf8.RuneCountInString(line) > 80 {
				t.Errorf("%s shows a line of %d characters: %s", args, utf8.RuneCountInString(line),
					line)
			}
		}
		o := holdfast(t, append(strings.Fields(args), "--backend", srv.URL())...).want(t, 0)
		if args == "list" && (!strings.Contains(o.out, key) ||
			!strings.Contains(o.out, strings.TrimSpace(note))) {
			t.Errorf("in a pipe key and note are not whole:\n%s", o.out)
		}
		if longest := slices.MaxFunc(strings.Split(o.out, "\n"), func(a, b string) int {
			return len(a) - len(b)
		}); len(longest) <= 80 {
			t.Errorf("in a pipe %s shows\n%s", args, o.out)
		}
	}
	_ = held.cmd.Process.Kill()
	_, _, _ = held.end()
}
