package etcdbackend

import (
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A busy lock uses the same keys again: etcd scans those that were deleted until it is compacted, so each acquisition would be
// slower than the one before.
func TestKeysAreUsedAgain(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	name := key(t)
	p := b.scheme.at(name)
	var used []string
	for i := range 30 {
		one, two := claim(name), inLine(name)
		two.NoneInFlight, one.NoneInFlight = true, i%3 > 0
		acquired(t, b, one)
		_, err := b.TryAcquire(t.Context(), two)
		want(t, "stand in line", err, backend.ErrHeld)
		_, err = b.TryAcquire(t.Context(), claim(name))
		want(t, "another", err, backend.ErrHeld)
		reply, err := c.Get(t.Context(), p.line, prefixOnly[:1]...)
		want(t, "get", err, nil)
		for _, kv := range reply.Kvs {
			used = append(used, string(kv.Key))
		}
		want(t, "release", b.Release(t.Context(), one), nil)
		acquired(t, b, two)
		want(t, "release", b.Release(t.Context(), two), nil)
	}
	distinct := map[string]bool{}
	for _, k := range used {
		distinct[k] = true
	}
	if len(used) != 60 || len(distinct) > 3 {
		t.Errorf("%d entries had %d keys, want 3 at most", len(used), len(distinct))
	}
	if len(b.holds) > 0 || len(b.waiting) > 0 {
		t.Errorf("remembered: %d holds, %d lines", len(b.holds), len(b.waiting))
	}
}

// A slot whose last attempt was not answered is not used again: the attempt may yet make its entry.
//
// covers: A4, C2
func TestLooseSlotIsRetired(t *testing.T) {
	srv := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	b, other := opened(t, at(proxy.Addr())), opened(t, at(srv.Addr()))
	warm := claim(key(t))
	acquired(t, b, warm)
	want(t, "release", b.Release(t.Context(), warm), nil)
	late, name := claim(key(t)), ""
	name = late.Key
	proxy.Set(testserver.Fault{Mode: testserver.Hold, Match: testserver.Containing(name)})
	_, err := b.TryAcquire(quick(t, patience/40), late)
	if backend.AnswerOf(err) != backend.Unknown {
		t.Fatalf("TryAcquire that is held up = %v", err)
	}
	b.mu.Lock()
	slot := b.holds[b.scheme.at(name).name(late)].slot
	b.mu.Unlock()
	late.NoneInFlight = true // as a caller says who counts what it sent itself
	released := make(chan error, 1)
	go func() { released <- b.Release(t.Context(), late) }()
	proxy.Pass()
	if err := <-released; backend.AnswerOf(err) == backend.No && backend.Refused(err) {
		t.Errorf("Release = %v", err)
	}
	eventually(t, "nothing to be left", func() error {
		free := claim(name)
		free.NoneInFlight = true
		if _, err := other.TryAcquire(t.Context(), free); err != nil {
			return err
		}
		return other.Release(t.Context(), free)
	})
	for range 5 {
		next := claim(key(t))
		acquired(t, b, next)
		b.mu.Lock()
		again := b.holds[b.scheme.at(next.Key).name(next)].slot
		b.mu.Unlock()
		if again == slot {
			t.Fatalf("slot %q is used again", slot)
		}
	}
}

// Nor is one whose deletion was not answered: the deletion may yet be made, and has only the name to go by.
//
// covers: A4, C2
func TestStraySlotIsRetired(t *testing.T) {
	srv := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	b := opened(t, at(proxy.Addr()))
	held := claim(key(t))
	held.NoneInFlight = true
	acquired(t, b, held)
	b.mu.Lock()
	slot := b.holds[b.scheme.at(held.Key).name(held)].slot
	b.mu.Unlock()
	proxy.Set(testserver.Fault{Mode: testserver.Hold, Match: testserver.Containing(held.Key)})
	if err := b.Release(quick(t, patience/40), held); backend.AnswerOf(err) != backend.Unknown {
		t.Fatalf("Release that is held up = %v", err)
	}
	proxy.Pass()
	if err := b.Release(t.Context(), held); err != nil && !errors.Is(err, backend.ErrLost) {
		t.Errorf("Release = %v", err)
	}
	for range 5 {
		next := claim(key(t))
		acquired(t, b, next)
		b.mu.Lock()
		again := b.holds[b.scheme.at(next.Key).name(next)].slot
		b.mu.Unlock()
		if again == slot {
			t.Fatalf("slot %q is used again", slot)
		}
	}
}

// Claims are released while their lease is kept alive for another, and what is over is removed from it: a release is not taken
// for such an end, and finds its hold.
//
// covers: B5, G5
func TestReleaseBesideKeepalives(t *testing.T) {
	srv := testserver.Etcd(t)
	b := opened(t, at(srv.Addr()))
	alive := claim(key(t))
	alive.TTL = MinTTL // too short for slack: each renewal is a keepalive
	acquired(t, b, alive)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if err := b.Renew(t.Context(), alive); backend.AnswerOf(err) == backend.No { // a machine that stands still gives no answer
				t.Errorf("Renew = %v", err)
				return
			}
		}
	}()
	for range 400 {
		c := claim(key(t))
		c.TTL = MinTTL
		acquired(t, b, c)
		want(t, "release", b.Release(t.Context(), c), nil)
	}
	close(stop)
	<-stopped
}
