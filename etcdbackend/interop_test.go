package etcdbackend

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// An etcdctlLock is a running `etcdctl lock`, which holds until its input ends.
type etcdctlLock struct {
	cmd  *exec.Cmd
	held chan string // the key that it printed when it was granted
	stop context.CancelFunc
}

func startEtcdctl(t *testing.T, endpoint, name string) *etcdctlLock {
	t.Helper()
	path, err := testserver.EtcdProgram("etcdctl")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	e := &etcdctlLock{
		cmd:  exec.CommandContext(ctx, path, "--endpoints", endpoint, "lock", name),
		held: make(chan string, 1), stop: stop,
	}
	e.cmd.Cancel = func() error { return e.cmd.Process.Signal(os.Interrupt) }
	out, err := e.cmd.StdoutPipe()
	if err == nil {
		err = e.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		if in := bufio.NewScanner(out); in.Scan() {
			e.held <- in.Text()
		}
		close(e.held)
	}()
	t.Cleanup(e.end)
	return e
}

// end interrupts it, upon which it releases, and waits until it is gone.
func (e *etcdctlLock) end() {
	e.stop()
	_ = e.cmd.Wait() // an interrupt is how it ends
}

// granted waits until it holds.
func (e *etcdctlLock) granted(t *testing.T) string {
	t.Helper()
	select {
	case key, ok := <-e.held:
		if !ok {
			t.Fatal("etcdctl lock ended without the lock")
		}
		return key
	case <-time.After(patience):
		t.Fatal("etcdctl lock was not granted")
	}
	return ""
}

const layoutEtcdctl = "?layout=etcdctl"

// The real etcdctl and we exclude each other, and are served in one line.
func TestEtcdctl(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	l := lockers(t, locker.Config{}, at(srv.Addr())+layoutEtcdctl)[0]

	ctl := startEtcdctl(t, srv.Addr(), "deploy")
	if key := ctl.granted(t); !strings.HasPrefix(key, "deploy/") {
		t.Errorf("etcdctl holds %q", key)
	}
	_, err := l.TryLock(t.Context(), "deploy")
	want(t, "TryLock while etcdctl holds", err, backend.ErrHeld)
	ours := make(chan *locker.Guard[struct{}], 1)
	go func() {
		g, err := l.Lock(t.Context(), "deploy")
		if err != nil {
			t.Errorf("Lock = %v", err)
		}
		ours <- g
	}()
	eventually(t, "us to be queued", func() error {
		reply, err := c.Get(t.Context(), "deploy/holdfast-", prefixOnly...)
		if err == nil && reply.Count == 0 {
			err = errors.New("nobody")
		}
		return err
	})
	second := startEtcdctl(t, srv.Addr(), "deploy")
	eventually(t, "etcdctl to be queued", func() error {
		reply, err := c.Get(t.Context(), "deploy/", prefixOnly...)
		if err == nil && reply.Count < 3 {
			err = errors.New("not yet")
		}
		return err
	})
	ctl.end()
	g := <-ours
	select {
	case key := <-second.held:
		t.Fatalf("etcdctl holds %q while we do", key)
	default:
	}
	want(t, "Check", g.Check(t.Context()), nil)
	want(t, "Unlock", g.Unlock(), nil)
	second.granted(t)
	_, err = l.TryLock(t.Context(), "deploy")
	want(t, "TryLock while etcdctl holds again", err, backend.ErrHeld)
}

// The same with Go programs that use the peer's Mutex.
func TestConcurrencyMutex(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	l := lockers(t, locker.Config{TTL: 2 * time.Second}, at(srv.Addr())+layoutEtcdctl)[0]
	s := session(t, client(t, srv.Addr()))
	m := concurrency.NewMutex(s, "k")
	for range 3 {
		want(t, "peer: Lock", m.Lock(t.Context()), nil)
		_, err := l.TryLock(t.Context(), "k")
		want(t, "TryLock while the peer holds", err, backend.ErrHeld)
		want(t, "peer: Unlock", m.Unlock(t.Context()), nil)
		g := locked(t, l, "k")
		if err := m.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
			t.Fatalf("peer: TryLock while we hold = %v", err)
		}
		want(t, "Unlock", g.Unlock(), nil)
	}
	want(t, "peer: Lock", m.Lock(t.Context()), nil)
	s.Orphan() // its lease runs out
	want(t, "Unlock after the peer died", locked(t, l, "k").Unlock(), nil)
}

// A key that nothing will ever end is not waited for.
//
// covers: X12
func TestStrayKey(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	_, err := c.Put(t.Context(), "k/stray", "")
	want(t, "put", err, nil)
	b := opened(t, at(srv.Addr())+layoutEtcdctl)
	_, err = b.TryAcquire(t.Context(), inLine("k"))
	want(t, "TryAcquire beside a key without a lease", err, backend.ErrForeign)
	if !strings.Contains(err.Error(), "k/stray") {
		t.Errorf("%v does not name the key", err)
	}
}
