package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// What etcd's own concurrency package gets wrong, and we do not. Each test shows both, on one
// server.

// session is a session of the peer, with a TTL of 2s.
func session(t *testing.T, c *clientv3.Client) *concurrency.Session {
	t.Helper()
	s, err := concurrency.NewSession(c, concurrency.WithTTL(2))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// lockers returns two of ours that share nothing but the server.
func lockers(t *testing.T, cfg locker.Config, raw ...string) (all []*locker.Client[struct{}]) {
	t.Helper()
	for _, raw := range raw {
		l, err := locker.New(opened(t, raw), locker.Bare, cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			if err := l.Shutdown(ctx); err != nil {
				t.Errorf("locker: Close = %v", err)
			}
		})
		all = append(all, l)
	}
	return all
}

func locked(t *testing.T, l *locker.Client[struct{}], key string) *locker.Guard[struct{}] {
	t.Helper()
	g, err := l.Lock(quick(t, patience), key)
	if err != nil {
		t.Fatalf("Lock(%s) = %v", key, err)
	}
	return g
}

// jobs does not wait for jobs/1.
//
// covers: X13
func TestPeerNestedNames(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	one, all := concurrency.NewMutex(session(t, c), "jobs/1"), concurrency.NewMutex(session(t, c),
		"jobs")
	want(t, "peer: Lock of jobs/1", one.Lock(t.Context()), nil)
	if err := all.TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("peer: TryLock of jobs = %v: it no longer waits for jobs/1", err)
	}
	ours := lockers(t, locker.Config{}, at(srv.Addr()), at(srv.Addr()))
	a := locked(t, ours[0], "jobs/1")
	b, err := ours[1].TryLock(t.Context(), "jobs")
	want(t, "TryLock of jobs", err, nil)
	want(t, "Unlock", errors.Join(a.Unlock(), b.Unlock()), nil)
}

// Two acquisitions of one client exclude each other.
//
// covers: X9, G3
func TestPeerTwoOfOneSession(t *testing.T) {
	srv := testserver.Etcd(t)
	s := session(t, client(t, srv.Addr()))
	one, two := concurrency.NewMutex(s, "k"), concurrency.NewMutex(s, "k")
	want(t, "peer: first Lock", one.Lock(t.Context()), nil)
	if err := two.Lock(quick(t, patience)); err != nil {
		t.Errorf("peer: second Lock of one session = %v: it no longer lets both in", err)
	}
	b := opened(t, at(srv.Addr()))
	acquired(t, b, claim("k"))
	_, err := b.TryAcquire(t.Context(), claim("k"))
	want(t, "second claim of one client", err, backend.ErrHeld)
}

// A holder whose key is deleted hears of it.
//
// covers: X1, R8, B1
func TestPeerDeletedKey(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	s := session(t, c)
	m := concurrency.NewMutex(s, "peer")
	want(t, "peer: Lock", m.Lock(t.Context()), nil)
	ours := lockers(t, locker.Config{TTL: 2 * time.Second}, at(srv.Addr()))
	g := locked(t, ours[0], "ours")
	for _, prefix := range []string{"peer/", defaultPrefix + "ours/"} {
		_, err := c.Delete(t.Context(), prefix, clientv3.WithPrefix())
		want(t, "delete", err, nil)
	}
	select {
	case <-g.Lost():
	case <-time.After(patience):
		t.Error("a deleted key was not noticed")
	}
	want(t, "Unlock", g.Unlock(), locker.ErrLost)
	select {
	case <-s.Done():
		t.Error("peer: the session ended: it notices now")
	default: // our guard was renewed and lost meanwhile; the session goes on
	}
}

// An attempt whose reply is lost leaves nothing behind while the client lives; the peer's keeps the
// lock for as long as its session.
//
// covers: A2, A4, X10, X11
func TestPeerGhostKey(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	direct := client(t, srv.Addr())
	lost := func(key string, lock func(ctx context.Context) error) {
		t.Helper()
		proxy.Set(testserver.Fault{
			Mode: testserver.HoldReply, Match: testserver.Containing(key),
			Next: 1,
		})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		gaveUp := make(chan error, 1)
		go func() { gaveUp <- lock(ctx) }()
		eventually(t, "the request to be executed", func() error {
			all, err := direct.Get(t.Context(), "", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			if err == nil && !slices.ContainsFunc(all.Kvs, func(kv *mvccpb.KeyValue) bool {
				return strings.Contains(string(kv.Key), key)
			}) {
				err = errors.New("there is no entry")
			}
			return err
		})
		cancel()
		if err := <-gaveUp; err == nil {
			t.Fatalf("Lock of %q without a reply = nil", key)
		}
		proxy.Pass()
	}
	s, err := concurrency.NewSession(client(t, proxy.Addr()), concurrency.WithTTL(60))
	want(t, "peer: session", err, nil)
	defer s.Close()
	lost("peer-key", concurrency.NewMutex(s, "peer-key").Lock)
	ours := lockers(t, locker.Config{TTL: 6 * time.Second}, at(proxy.Addr()), at(srv.Addr()))
	keep := locked(t, ours[0], "keeps the lease alive")
	lost("our-key", func(ctx context.Context) error {
		_, err := ours[0].Lock(ctx, "our-key")
		return err
	})
	g := locked(t, ours[1], "our-key")
	want(t, "Unlock", g.Unlock(), nil)
	if err := concurrency.NewMutex(session(t, client(t, srv.Addr())),
		"peer-key").TryLock(t.Context()); !errors.Is(err, concurrency.ErrLocked) {
		t.Errorf("peer: TryLock beside a ghost = %v: it no longer leaves one", err)
	}
	want(t, "Unlock of the other", keep.Unlock(), nil)
}

// A release that comes again, or late, does not take the lock from who holds now.
//
// covers: C1, C7, C8
func TestPeerStaleUnlock(t *testing.T) {
	srv := testserver.Etcd(t)
	s := session(t, client(t, srv.Addr()))
	old, fresh := concurrency.NewMutex(s, "k"), concurrency.NewMutex(s, "k")
	want(t, "peer: Lock", old.Lock(t.Context()), nil)
	stale := *old // as a retried Unlock has it, whose first reply was lost
	want(t, "peer: Unlock", old.Unlock(t.Context()), nil)
	want(t, "peer: Lock by the next", fresh.Lock(t.Context()), nil)
	want(t, "peer: stale Unlock", stale.Unlock(t.Context()), nil)
	if err := concurrency.NewMutex(session(t, client(t, srv.Addr())),
		"k").TryLock(t.Context()); err != nil {
		t.Errorf("peer: TryLock = %v: a stale Unlock no longer deletes the next hold", err)
	}

	b := opened(t, at(srv.Addr()))
	one, next := claim("ours"), claim("ours")
	acquired(t, b, one)
	want(t, "release", storetest.Release(t.Context(), b, one), nil)
	acquired(t, b, next)
	want(t, "stale release", storetest.Release(t.Context(), b, one), backend.ErrLost)
	want(t, "renew by the next", b.Renew(t.Context(), next), nil)
}
