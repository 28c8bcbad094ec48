package main_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestDemoOnRedis(t *testing.T) {
	srv := testserver.SharedRedis(t)
	r := holdfast(t, "demo", "--json", "--backend", srv.URL(), "--key", t.Name(), "--processes=2",
		"--workers=4").
		want(t, 0).result(t).wantSafe(t).wantSoldOut(t)
	own, other := 0, 0 // the slowest purchase waited for both processes
	for _, h := range r.Slowest.Held {
		switch {
		case h.PID == 0 && strings.HasPrefix(h.By, "process ") &&
			strings.Contains(h.By, ", buyer "):
			own++
		case h.PID != 0 && strings.HasPrefix(h.By, "process ") &&
			strings.HasSuffix(h.By, fmt.Sprintf(", pid %d", h.PID)):
			other++
		default:
			t.Errorf("held by %+v", h)
		}
	}
	if other == 0 || own+other > 16 {
		t.Errorf("the slowest: %+v", r.Slowest)
	}
}

func TestDemoKill(t *testing.T) {
	t.Parallel()
	srv := testserver.SharedRedis(t)
	args := []string{
		"demo", "--backend", srv.URL(), "--key", t.Name(), "--processes=3",
		"--workers=2", "--kill", "--ttl=700ms",
	}
	r := holdfast(t, append(args, "--json")...).want(t, 0).result(t).wantSafe(t).wantSoldOut(t)
	// A survivor has the lock when the lease is over, plus what a busy machine needs to notice; and
	// not before.
	if k := r.Kill; k == nil || k.Process != 3 || k.PID == 0 || k.Next <= k.Token || k.Free < 300 ||
		k.Free > 700+10_000 {
		t.Errorf("kill: %+v", k)
	}
	if o := holdfast(t, args...).want(t, 0); !strings.Contains(strings.Join(strings.Fields(o.out),
		" "), "The lock was free again after ") {
		t.Error(o.out)
	}
	o := holdfast(t, append(args, "--duration=600ms")...).want(t, 2)
	if !strings.Contains(o.err, "a shorter --ttl or a longer --duration") {
		t.Error(o.err)
	}
}

// A running is the binary at work, after its first sale.
type running struct {
	out, progress *bufio.Reader
	cmd           *exec.Cmd
}

func start(t *testing.T, args ...string) running {
	t.Helper()
	cmd := command(t, t.TempDir(),
		append([]string{"demo", "--stock=1000000", "--duration=1m"}, args...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	errs, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	r := running{bufio.NewReader(out), bufio.NewReader(errs), cmd}
	for { // the other processes may take more than a second to open the store
		line, err := r.progress.ReadString('\n')
		if err != nil || !strings.HasPrefix(line, "sold ") {
			t.Fatalf("progress %q, %v", line, err)
		}
		if !strings.HasPrefix(line, "sold 0 ") {
			return r
		}
	}
}

// finish reads all there is to read, which waits for the binary and its children, and returns the
// outcome.
func (r running) finish(t *testing.T) outcome {
	t.Helper()
	var out, errs bytes.Buffer
	_, err1 := io.Copy(&out, r.out)
	_, err2 := io.Copy(&errs, r.progress)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	var exit *exec.ExitError
	if err := r.cmd.Wait(); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return outcome{out: out.String(), err: errs.String(), status: statusOf(r.cmd)}
}

func TestInterrupt(t *testing.T) {
	if runtime.GOOS == "windows" {
		return // has no signal to send
	}
	srv := testserver.SharedRedis(t)
	for name, args := range map[string][]string{
		"memory": {"--json"},
		"redis":  {"--json", "--backend", srv.URL(), "--key", t.Name(), "--processes=2"},
	} {
		t.Run(name, func(t *testing.T) {
			r := start(t, args...)
			if err := r.cmd.Process.Signal(os.Interrupt); err != nil {
				t.Fatal(err)
			}
			o := r.finish(t).want(t, 130)
			if res := o.result(t).wantSafe(t); res.Ended != "interrupted" || res.Sold == 0 ||
				res.Sold >= res.Stock {
				t.Errorf("%+v", res)
			}
			if !strings.Contains(o.err, "interrupted\n") {
				t.Error(o.err)
			}
		})
	}
}

// The children hold the other ends of the pipes: that reading ends shows that they ended, although
// nobody told them to.
func TestChildrenEndWithTheirParent(t *testing.T) {
	srv := testserver.SharedRedis(t)
	r := start(t, "--backend", srv.URL(), "--key", t.Name(), "--processes=3")
	began := time.Now()
	if err := r.cmd.Process.Signal(os.Kill); err != nil {
		t.Fatal(err)
	}
	if o := r.finish(t); o.status == 0 || o.out != "" {
		t.Errorf("%+v", o)
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("children lived on for %v", took)
	}
}

// A store that dies is an error, after a report of what was sold.
func TestStoreDies(t *testing.T) {
	t.Parallel()
	for _, processes := range []string{"1", "2"} {
		srv := testserver.Redis(t)
		r := start(t, "--json", "--ttl=2s", "--backend", srv.URL(), "--processes", processes)
		srv.Kill()
		o := r.finish(t).want(t, 1)
		if res := o.result(t); res.Ended != "failed" || res.Sold == 0 || res.Oversell != 0 {
			t.Errorf("%+v", res)
		}
		if !strings.Contains(o.err, "connection refused") {
			t.Error(o.err)
		}
	}
}
