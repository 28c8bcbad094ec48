package main_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// binary is the command as users run it, built for the tests.
var binary string

func TestMain(m *testing.M) { goleak.VerifyTestMain(builder{m}) }

type builder struct{ m *testing.M }

// Run builds the binary, with the race detector if the tests have it, and runs the tests.
func (b builder) Run() int {
	dir, err := os.MkdirTemp("", "demo-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "demo")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	args := []string{"build", "-o", binary}
	if info, ok := debug.ReadBuildInfo(); ok &&
		slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	if out, err := exec.CommandContext(context.Background(), "go",
		append(args, ".")...).CombinedOutput(); err != nil {
		panic("go build: " + err.Error() + "\n" + string(out))
	}
	return b.m.Run()
}

// command prepares a run that leaves its files in dir. A store that is configured is none of the
// demo's business.
func command(t *testing.T, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+dir, "TERM=xterm",
		"HOLDFAST_BACKEND=redis://127.0.0.1:1", "GORACE=halt_on_error=1 atexit_sleep_ms=10")
	return cmd
}

// demo runs the binary to its end in a pipe, and looks whether it left any files.
func demo(t *testing.T, status int, args ...string) (out, errs string) {
	t.Helper()
	dir := t.TempDir()
	cmd := command(t, dir, args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if got := cmd.ProcessState.ExitCode(); got != status {
		t.Fatalf("%q: exit status %d, want %d\n%s%s", args, got, status, &stdout, &stderr)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return stdout.String(), stderr.String()
}

// folders says whether there are locks of two processes without a server.
const folders = runtime.GOOS == "linux"

// The tour, on real processes: too much is sold without a lock, and what there is with one, also
// when a process is killed while it holds; and who held during a slow purchase is drawn.
func TestTour(t *testing.T) {
	out, errs := demo(t, 0)
	want := []string{
		`(?m)^1\. Without a lock: sold \d+ of 200$`, `\d+ items too many`,
		`(?m)^2\. With a lock \(mem://\): sold 200 of 200$`,
		`(?m)^4\. One slow purchase, and why: sold 10 of 10$`,
		`buyer \d waits +\d+.* │░+│\n( .* │ *█+ *│\n)+`,
		`(?m)^- Without a lock [1-9]\d* items were sold that were not there\.$`, `README\.md`,
		`docs/typed\.md`, `holdfast run KEY -- CMD`, `make\s+test`,
	}
	if folders {
		want = append(want, `(?m)^3\. In two processes, one of them killed \(file://\): `+
			`sold 200 of 200$`, `free again\s+after\s`)
	} else {
		want = append(want, `(?m)^3\. In two processes.*\n +Left out`)
	}
	for _, w := range want {
		if !regexp.MustCompile(w).MatchString(out) {
			t.Errorf("no %s in\n%s", w, out)
		}
	}
	if strings.ContainsAny(out, "\x1b\r") || errs != "" {
		t.Errorf("in a pipe, with control characters or errors:\n%q\n%s", out, errs)
	}
}

func TestTourAsJSON(t *testing.T) {
	out, _ := demo(t, 0, "-o", "json")
	var parts map[string]struct {
		Lock                  bool
		Stock, Sold, Oversell int
		Waits                 struct{ Max float64 } `json:"wait_ms"`
		Tokens, Kill          map[string]any
		Slowest               struct{ Held []any }
	}
	if err := json.Unmarshal([]byte(out), &parts); err != nil || strings.Count(out, "\n") != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	for name, r := range parts {
		switch {
		case name == "no_lock" && !r.Lock && r.Oversell > 0 && r.Sold == r.Stock+r.Oversell &&
			r.Tokens == nil:
		case r.Lock && r.Oversell == 0 && r.Sold == r.Stock && r.Tokens["rising"] == true &&
			r.Waits.Max > 0 && len(r.Slowest.Held) > 0 &&
			(name == "kill") == (r.Kill["next_token"] != nil):
		default:
			t.Errorf("%s: %+v", name, r)
		}
	}
	if n := len(parts); n != 4 && (folders || n != 3) {
		t.Errorf("%d parts:\n%s", n, out)
	}
}

func TestOneSale(t *testing.T) {
	if out, errs := demo(t, 0, "--no-lock"); !strings.Contains(out,
		"8 buyers in 1 process, no lock.") || !strings.Contains(out, "too many") || errs != "" {
		t.Error(out, errs)
	}
	if out, _ := demo(t, 0, "--stock", "10", "--backend", "mem://shop"); !strings.HasPrefix(out,
		"sold 10 of 10\n") || !strings.Contains(out, `lock "flash-sale" on mem://shop`) {
		t.Error(out)
	}
}

func TestRefusals(t *testing.T) {
	for args, says := range map[string]string{
		"--stock abc":                    "--stock takes a whole number, not \"abc\"",
		"--stock 0":                      "--stock 0 is not between 1 and",
		"--speed 1":                      "--speed; --help lists the flags",
		"now":                            `"now" is no flag`,
		"-o yaml":                        `--output "yaml" is neither text nor json`,
		"--processes 2 --backend mem://": "such as --backend redis://",
		"--backend redis://u:secret@h":   "not registered",
		"--backend file:///tmp/x?sync=1": `--backend: backend: open file:///tmp/x: invalid ` +
			`url "sync": is not a known query parameter`,
		"--key " + strings.Repeat("k", 2e3): "--key: ",
		"demo-worker":                       "not for people",
	} {
		out, errs := demo(t, 2, strings.Fields(args)...)
		if !strings.Contains(errs+out, says) || strings.Count(errs, "\n") > 1 ||
			strings.Contains(errs, "secret") {
			t.Errorf("%s: %s%s", args, out, errs)
		}
	}
	if out, errs := demo(t, 0, "--help"); !strings.Contains(out, "--no-lock") ||
		strings.Contains(out, "configuration") || errs != "" {
		t.Error(out, errs)
	}
}

// The page is there while the tour goes on and until it is interrupted, which is no failure.
func TestWeb(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // has no signal to send
	}
	cmd := command(t, t.TempDir(), "--web", "--stock=5")
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	out := bufio.NewReader(pipe)
	line, err := out.ReadString('\n')
	url := regexp.MustCompile(`http://127\.0\.0\.1:\d+/`).FindString(line)
	if err != nil || url == "" {
		t.Fatalf("%q, %v", line, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for body := ""; !strings.Contains(body, "That was all"); {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		res, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		all, err := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if body = string(all); err != nil || strings.Contains(body, "That was all") &&
			!strings.Contains(body, "sold 5 of 5\n") {
			t.Fatalf("%s, %v", body, err)
		}
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	if wait := cmd.Wait(); err != nil || wait != nil ||
		!strings.Contains(string(rest), "sold 5 of 5\n") {
		t.Errorf("%v, %v, %s", err, wait, rest)
	}
}

// It is built in seconds, as it links nothing of weight: no store's client, no telemetry, no
// framework for commands.
func TestLinksLittle(t *testing.T) {
	allowed := []string{
		"github.com/cenkalti/backoff/v4", "github.com/google/pprof/profile",
		"github.com/spf13/pflag", "golang.org/x/sys/plan9", "golang.org/x/sys/unix",
		"golang.org/x/sys/windows", "golang.org/x/term", "golang.org/x/text/transform",
		"golang.org/x/text/width",
	}
	for _, system := range []string{"linux", "darwin", "windows"} {
		cmd := exec.CommandContext(t.Context(), "go", "list", "-deps", "-f",
			"{{if not .Standard}}{{.ImportPath}}{{end}}", ".")
		cmd.Env = append(os.Environ(), "GOOS="+system)
		out, err := cmd.Output()
		if err != nil {
			t.Fatal(err)
		}
		const module = "github.com/holdfast-go/holdfast/"
		for _, pkg := range strings.Fields(string(out)) {
			if !strings.HasPrefix(pkg, module) && !slices.Contains(allowed, pkg) {
				t.Errorf("on %s it links %s", system, pkg)
			}
		}
		if !strings.Contains(string(out), module+"backend/filebackend\n") {
			t.Errorf("on %s it links only %s", system, out)
		}
	}
}
