package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// repository is a module in a folder of its own, which becomes the current one, as it was
// committed.
func repository(t *testing.T, files map[string]string) {
	t.Helper()
	t.Chdir(t.TempDir())
	write(t, map[string]string{"go.mod": "module m\n\ngo 1.26\n"})
	write(t, files)
	for _, args := range [][]string{
		{"init", "-q"}, {"add", "-A"}, {
			"-c", "user.name=x", "-c", "user.email=x@example.org",
			"commit", "-qm", "x",
		},
	} {
		if said, err := exec.CommandContext(t.Context(), "git",
			args...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, said)
		}
	}
}

func write(t *testing.T, files map[string]string) {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestChanged(t *testing.T) {
	suiteFile := func(run string) string {
		return "package backendtest\n\n" +
			`var rules = []rule{{name: "token/rises", run: rises}, {name: ` +
			`"token/fast", run: fast}}` + "\n\n" + run
	}
	const helper = "package redistest\n\nfunc Crowd(n int) { _ = n }\nfunc Other() {}\n"
	repository(t, map[string]string{
		"a/a_test.go": "package a\n\nfunc TestSame() {}\nfunc TestEdited() { " +
			"_ = 1 }\nfunc help() {}\n// c\nfunc TestComment() {}\nfunc TestMoved() {}\n",
		"a/b_test.go": "package a\n\nimport \"m/redistest\"\n\nfunc " +
			"TestCrowd() { redistest.Crowd(1) }\nfunc TestOther() { redistest.Other() }\n",
		"redistest/crowd.go":              helper,
		suite + "/token.go":               suiteFile("func rises() {}\n"),
		suite + "/fast.go":                "package backendtest\n\nfunc fast() {}\n",
		"store/conformance_test.go":       "package store\n\nfunc TestConformance() {}\n",
		"store/other/conformance_test.go": "package other\n\nfunc TestConformanceAlone() {}\n",
	})
	for _, c := range []struct {
		name   string
		edit   map[string]string
		remove string
		want   []string
	}{
		{name: "nothing"},
		{
			name: "tests", edit: map[string]string{
				"a/a_test.go": "package a\n\nfunc TestSame() {}\nfunc TestEdited() { _ = 2 " +
					"}\nfunc help() { _ = 1 }\n// another\nfunc TestComment() {}\nfunc TestNew() " +
					"{}\nfunc Testimony() {}\n",
				"a/c_test.go": "package a\n\nfunc TestMoved() {}\nfunc TestMain() {}\n",
				"a/a.go":      "package a\n\nfunc TestNot() {}\n",
			},
			want: []string{"./a TestEdited", "./a TestNew"},
		},
		{
			name: "a test that is a call",
			edit: map[string]string{"redistest/crowd.go": strings.Replace(helper, "_ = n",
				"_ = n + 1", 1)},
			want: []string{"./a TestCrowd"},
		},
		{
			name: "the function of a rule",
			edit: map[string]string{suite +
				"/fast.go": "package backendtest\n\nfunc fast() { _ = 1 }\n"},
			want: []string{
				"./store TestConformance token/fast",
				"./store/other TestConformanceAlone token/fast",
			},
		},
		{
			name: "the entry of a rule",
			edit: map[string]string{suite +
				"/token.go": strings.Replace(suiteFile("func rises() {}\n"), `"token/rises"`,
				`"token/grows"`, 1)},
			want: []string{
				"./store TestConformance token/grows",
				"./store/other TestConformanceAlone token/grows",
			},
		},
		{name: "gone", remove: "a/a_test.go"},
	} {
		t.Run(c.name, func(t *testing.T) {
			defer func() {
				for _, args := range [][]string{{"checkout", "-q", "."}, {"clean", "-qfd"}} {
					if said, err := exec.CommandContext(t.Context(), "git",
						args...).CombinedOutput(); err != nil {
						t.Errorf("git %v: %v\n%s", args, err, said)
					}
				}
			}()
			write(t, c.edit)
			if c.remove != "" {
				if err := os.Remove(c.remove); err != nil {
					t.Fatal(err)
				}
			}
			targets, err := changed(t.Context(), "HEAD")
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, target := range targets {
				got = append(got, strings.TrimSpace(fmt.Sprint("./", target.dir, " ", target.name,
					" ", strings.Join(target.rules, " "))))
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("chosen are %q, want %q", got, c.want)
			}
		})
	}
}

// Each is run as often as it should, every second time with one processor, and what fails once, is
// skipped or not built is named.
func TestStress(t *testing.T) {
	repository(t, nil)
	write(t, map[string]string{"a/a_test.go": `package a

import (
	"os"
	"runtime"
	"testing"
)

func TestGood(t *testing.T) {
	f, err := os.OpenFile("../procs", os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	procs := "+"
	if runtime.GOMAXPROCS(0) == 1 {
		procs = "1"
	}
	if _, err := f.WriteString(procs); err != nil {
		t.Fatal(err)
	}
}

func TestThird(t *testing.T) {
	const name = "../runs"
	before, _ := os.ReadFile(name)
	if err := os.WriteFile(name, append(before, '.'), 0o600); err != nil {
		t.Fatal(err)
	}
	if len(before) == 2 {
		t.Error("the third run")
	}
}

func TestSkipped(t *testing.T) { t.Skip("no server") }

func TestOld(t *testing.T) { t.Skip("server version: old") }

func TestPart(t *testing.T) { t.Run("skipped", func(t *testing.T) { t.Skip("not here") }) }

func TestPartOld(t *testing.T) {
	t.Run("skipped", func(t *testing.T) { t.Skip("server version: old") })
}
`, "a/tag_test.go": `//go:build never

package a

import "testing"

func TestTagged(t *testing.T) {}
`})

	t.Setenv("GOMAXPROCS", "3")
	t.Setenv("GOWORK", "off")
	t.Setenv("GORACE", "atexit_sleep_ms=0") // else each run ends with a pause of a second
	var out strings.Builder
	s := stress{runs: 4, limit: time.Hour, out: &out}
	err := s.all(t.Context(), "HEAD")
	const want = "not fit: ./a TestPart, ./a TestSkipped, ./a TestTagged, ./a TestThird"
	if err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	for _, line := range []string{
		"./a TestGood: 4 of 4 passed", "./a TestThird: 3 of 4 passed", "the third run",
		"./a TestSkipped: was skipped", "./a TestOld: was skipped",
		"./a TestPart: was skipped without leave", "./a TestPartOld: 4 of 4 passed",
		"./a TestTagged: was not run", "2 passed, 1 skipped, 4 failed",
	} {
		if !strings.Contains(out.String(), line) {
			t.Errorf("nothing says %q", line)
		}
	}
	if procs, err := os.ReadFile("procs"); string(procs) != "+1+1" {
		t.Errorf("run with %q processors, %v; want +1+1", procs, err)
	}
	if t.Failed() {
		t.Log(out.String())
	}

	s.runs, s.limit = 30, 0
	out.Reset()
	if err := s.all(t.Context(), "HEAD"); !strings.Contains(out.String(),
		"./a TestGood: 1 of 1 passed") {
		t.Errorf("without time each is run once: %v\n%s", err, &out)
	}
	if err := s.all(t.Context(), ""); err == nil {
		t.Error("no commit is not refused")
	}
	if err := s.all(t.Context(), "nothing"); err == nil ||
		!strings.Contains(err.Error(), "git diff") {
		t.Errorf("a commit that is none: %v", err)
	}
}
