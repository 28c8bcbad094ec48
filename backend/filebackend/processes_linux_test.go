package filebackend_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// covers: G6
func TestProcesses(t *testing.T) { backendtest.ProcessesSeen(t, "file://"+folder(t)) }

// covers: G6, B11
func TestFlashSale(t *testing.T) {
	testserver.OnlyInAll(t, "a sale with kills")
	backendtest.FlashSale(t, "file://"+folder(t))
}

// covers: G6, B11
func TestOneOpen(t *testing.T) {
	backendtest.OneOpen(t, "file://"+folder(t))
}

// folder is the path of one that is to be made: in memory where there is such a place, as a disk
// that others keep busy may hold up a rename for seconds.
func folder(t testing.TB) string {
	t.Helper()
	//nolint:usetesting // t.TempDir is on the disk
	dir, err := os.MkdirTemp("/dev/shm", "holdfast-test-")
	if err != nil {
		return filepath.Join(t.TempDir(), "locks")
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "locks")
}

// A process is this test binary started again, see childMain.
type process struct {
	*exec.Cmd
	in  io.Writer
	out *bufio.Scanner
}

const childEnv = "HOLDFAST_FILE_CHILD"

// child starts a process that opens dir and takes "k" for ttl without waiting.
func child(t *testing.T, dir string, ttl time.Duration, attr *syscall.SysProcAttr) *process {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{Cmd: exec.CommandContext(t.Context(), binary, "-test.run=^$")}
	p.Env = append(os.Environ(), childEnv+"="+dir+" "+ttl.String(),
		"GORACE=halt_on_error=1 atexit_sleep_ms=10")
	p.SysProcAttr, p.Stderr = attr, os.Stderr
	if p.in, err = p.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	p.out = bufio.NewScanner(out)
	if err := p.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Process.Kill()
		_ = p.Wait()
	})
	return p
}

// says must be what the process says next.
func (p *process) says(t *testing.T, want string) {
	t.Helper()
	if !p.out.Scan() || p.out.Text() != want {
		t.Fatalf("the process says %q, want %q", p.out.Text(), want)
	}
}

func (p *process) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := p.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

// childMain does the work of a process that child started: it says what became of it, and for each
// line that it is told, whether it still holds; at last what Unlock returns.
func childMain() {
	order, ordered := os.LookupEnv(childEnv)
	if !ordered {
		return
	}
	dir, text, _ := strings.Cut(order, " ")
	ttl, _ := time.ParseDuration(text)
	say := func(err error) {
		switch {
		case err == nil:
			fmt.Println("held")
		case errors.Is(err, locker.ErrLost):
			fmt.Println("lost")
		case errors.Is(err, backend.ErrDenied):
			fmt.Println("denied")
		default:
			fmt.Println(err)
		}
	}
	defer os.Exit(0)
	b, err := backend.Open(context.Background(), "file://"+dir)
	if err != nil {
		say(err)
		return
	}
	l, err := locker.New(b, locker.Bare, locker.Config{TTL: ttl})
	if err != nil {
		say(err)
		return
	}
	g, err := l.TryLock(context.Background(), "k")
	say(err)
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		_, err := g.Value()
		say(err)
	}
	say(g.Unlock())
}

// A process that was stopped for longer than its lease has lost when it goes on, and somebody else
// has it.
//
// covers: B11
func TestStopped(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	p := child(t, dir, 2*time.Second, nil)
	p.says(t, "held")
	p.signal(t, syscall.SIGSTOP)
	b := open(t, dir)
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	p.signal(t, syscall.SIGCONT)
	fmt.Fprintln(p.in)
	p.says(t, "lost")
	_ = p.in.(io.Closer).Close()
	p.says(t, "lost")
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// Who waits has the lock of a process that is killed long before its lease would have ended, with
// no polling in between: the kernel tells of the death.
//
// covers: G6, W1
func TestKilled(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	const ttl = 24 * time.Hour
	p := child(t, dir, ttl, nil)
	p.says(t, "held")
	b := open(t, dir)
	defer b.Close()
	c := claim("k")
	c.Queue, c.WaiterTTL = true, time.Hour
	wake, err := b.Watch(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	var held *backend.HeldError
	if _, err := b.TryAcquire(t.Context(), c); !errors.As(err, &held) {
		t.Fatalf("TryAcquire beside a process that holds = %v", err)
	}
	p.signal(t, syscall.SIGKILL)
	select {
	case <-wake:
	case <-time.After(time.Minute):
		t.Fatal("nobody was told that the holder was killed")
	}
	if g, err := b.TryAcquire(t.Context(), c); err != nil || g.TookOver != held.Token {
		t.Errorf("TryAcquire when the holder of token %d was killed = %+v, %v", held.Token, g, err)
	}
	if _, err := b.Release(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// A user who may not write to the folder is told so when it is opened.
func TestDenied(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	var attr *syscall.SysProcAttr
	if os.Getuid() == 0 { // who is denied nothing
		attr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		binary, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		for d := filepath.Dir(binary); d != "/" && d != os.TempDir(); d = filepath.Dir(d) {
			if err := os.Chmod(d, 0o755); err != nil { // so that it can be run
				t.Fatal(err)
			}
		}
	} else if err := os.Mkdir(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	child(t, dir, time.Minute, attr).says(t, "denied")
}
