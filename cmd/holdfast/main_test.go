package main_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// binary is the command as users run it, built for the tests.
var binary string

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.StopAfter(builder{m})) }

type builder struct{ m *testing.M }

// Run builds the binary, with the race detector if the tests have it, and runs the tests.
func (b builder) Run() int {
	dir, err := os.MkdirTemp("", "holdfast-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "holdfast")
	if runtime.GOOS == "windows" {
		binary += ".exe"
	}
	args := append([]string{"build", "-o", binary}, testserver.BuildFlags()...)
	if out, err := exec.CommandContext(context.Background(), "go",
		append(args, ".")...).CombinedOutput(); err != nil {
		panic("go build: " + err.Error() + "\n" + string(out))
	}
	return b.m.Run()
}

// An outcome is how a run of the binary ended.
type outcome struct {
	out, err string
	status   int
	took     time.Duration
}

// command prepares a run that no configuration of this machine takes part in, and that leaves its
// files in dir.
func command(t testing.TB, dir string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Env = slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOLDFAST_")
	})
	// A race ends the process with a status of its own. Without one it need not wait for a second
	// before it exits.
	cmd.Env = append(cmd.Env, "TMPDIR="+dir, "GORACE=halt_on_error=1 atexit_sleep_ms=10")
	return cmd
}

// holdfast runs the binary to its end, and looks whether it left any files.
func holdfast(t *testing.T, args ...string) outcome { return holdfastWith(t, nil, args...) }

func holdfastWith(t *testing.T, env []string, args ...string) outcome {
	t.Helper()
	dir := t.TempDir()
	cmd := command(t, dir, args...)
	cmd.Env = append(cmd.Env, env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	began := time.Now()
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	return outcome{out.String(), errs.String(), statusOf(cmd), time.Since(began)}
}

// statusOf is how a shell tells the end of a command.
func statusOf(cmd *exec.Cmd) int {
	if s, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && s.Signaled() {
		return 128 + int(s.Signal())
	}
	return cmd.ProcessState.ExitCode()
}

// want checks the exit status.
func (o outcome) want(t *testing.T, status int) outcome {
	t.Helper()
	if o.status != status {
		t.Fatalf("exit status %d, want %d\n%s%s", o.status, status, o.out, o.err)
	}
	return o
}
