package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// commandsOf returns the commands that the help of a command lists, each with the ones above it.
func commandsOf(help string, above ...string) (all [][]string) {
	inList := false
	for line := range strings.Lines(help) {
		words := strings.Fields(line)
		switch {
		case !strings.HasPrefix(line, " "):
			title := strings.TrimSpace(line)
			inList = strings.HasSuffix(title, ":") &&
				!slices.Contains([]string{"Usage:", "Examples:", "Flags:"}, title)
		case inList && len(words) > 1 && strings.HasPrefix(line, "  "+words[0]) &&
			words[0] != "help":
			all = append(all, append(slices.Clone(above), words[0]))
		}
	}
	return all
}

// The help of every command fits a terminal of 80 columns, and has an example.
func TestHelpFits(t *testing.T) {
	queue := [][]string{nil}
	seen := 0
	for ; len(queue) > 0; queue = queue[1:] {
		name := queue[0]
		o := holdfast(t, append(slices.Clone(name), "--help")...).want(t, 0)
		below := commandsOf(o.out, name...)
		queue = append(queue, below...)
		for line := range strings.Lines(o.out) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > 80 {
				t.Errorf("%v --help has a line of %d characters: %s", name, n, line)
			}
		}
		foreign := len(name) > 0 && (name[0] == "completion")
		if len(below) == 0 && !foreign && !strings.Contains(o.out, "\nExamples:\n  ") {
			t.Errorf("%v --help has no example", name)
		}
		seen++
	}
	if seen < 20 {
		t.Errorf("found %d commands", seen)
	}
	root := holdfast(t, "--help").want(t, 0).out
	for _, want := range []string{
		"\nWork under a lock (holdfast run report ./report.sh):\n  run ",
		"\nSee what locks are for (holdfast demo):\n  demo ",
		"\nLook after a store (holdfast doctor redis://localhost:6379):\n  doctor ",
	} {
		if !strings.Contains(root, want) {
			t.Errorf("no %q in\n%s", want, root)
		}
	}
	if strings.Contains(root, "\nCommands:") {
		t.Errorf("a command is in no group:\n%s", root)
	}
}

// There is a page for each command, which groff takes without a word where it is installed.
func TestMan(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "man")
	holdfast(t, "man", dir).want(t, 0)
	pages, err := filepath.Glob(filepath.Join(dir, "*.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"holdfast", "holdfast-run", "holdfast-config-check"} {
		if !slices.Contains(pages, filepath.Join(dir, name+".1")) {
			t.Errorf("no page of %s in %v", name, pages)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "holdfast-run.1"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n.SH SYNOPSIS\n", `holdfast run KEY [flags] [\-\-] CMD [ARG...]`,
		"\n.TP\n\\fB\\-\\-kill\\-after duration\\fR\n", "\n.BR holdfast (1)\n",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	all, err := os.ReadFile(filepath.Join(dir, "holdfast.1"))
	if err != nil || !strings.Contains(string(all),
		"\n.SH WORK UNDER A LOCK (holdfast run report ./report.sh)\n") ||
		!strings.Contains(string(all), "\n.SH SEE ALSO\n.BR holdfast\\-run (1) ,\n") {
		t.Errorf("%v, its own page is\n%s", err, all)
	}
	if groff, err := exec.LookPath("groff"); err == nil {
		said, err := exec.CommandContext(t.Context(), groff,
			append([]string{"-man", "-ww", "-z"}, pages...)...).CombinedOutput()
		if err != nil || len(said) > 0 {
			t.Errorf("groff: %v: %s", err, said)
		}
	}
}

// What another has written into the store does not reach the terminal as a control sequence, and
// does not turn the direction of text, in JSON either.
func TestOutputIsHarmless(t *testing.T) {
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	key := "a\u009b31m\u202eb\u2066\u061c"
	o := holdfast(t, "run", "--backend", url, key, binary, "list", "--backend", url, "-o",
		"json").want(t, 0)
	if want := `{"key":"a\u009b31m\u202eb\u2066\u061c",`; !strings.HasPrefix(o.out, want) {
		t.Errorf("as JSON: %q, want %q", o.out, want)
	}
	for _, args := range [][]string{
		{"list"},
		{"inspect", key},
		{"release", key, "--token=1"},
		{"run", key, "--no-wait", "true"},
	} {
		o := holdfast(t, append([]string{
			"run", "--backend", url, key, binary, args[0], "--backend",
			url,
		}, args[1:]...)...)
		if all := o.out + o.err; strings.ContainsAny(all, "\u009b\u202e\u2066\u061c") || all == "" {
			t.Errorf("%v prints %q", args, all)
		}
	}
}
