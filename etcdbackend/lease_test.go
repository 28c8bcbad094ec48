package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

func TestLeaseSeconds(t *testing.T) {
	for ttl, want := range map[time.Duration]int64{
		time.Second: 1, time.Second + 1: 2, 5 * time.Second: 5, 6 * time.Second: 8,
		30 * time.Second: 40, backend.MaxTTL: 115200,
	} {
		if got := leaseSeconds(ttl); got != want {
			t.Errorf("leaseSeconds(%v) = %d, want %d", ttl, got, want)
		}
	}
}

func TestLeaseLasts(t *testing.T) {
	now := time.Now()
	var slept time.Duration
	l := &lease{
		ttl: 64 * time.Second, began: now.Add(-32 * time.Second),
		asleep: func(time.Time) time.Duration { return slept },
	}
	if got, want := l.lasts(now), 31500*time.Millisecond; got != want {
		t.Errorf("a lease of 64s lasts %v after 32s, want %v: the server's clock may be faster",
			got, want)
	}
	if got := l.lasts(now.Add(-time.Minute)); got != l.ttl {
		t.Errorf("before it began: %v, want no more than %v", got, l.ttl)
	}
	slept = 5 * time.Millisecond // two clocks are never read at once
	if got := l.lasts(now.Add(-time.Minute)); got != l.ttl {
		t.Errorf("before it began, and awake: %v, want %v", got, l.ttl)
	}
	slept = 16 * time.Second
	if got, want := l.lasts(now), 15250*time.Millisecond; got != want {
		t.Errorf("after 32s awake and 16s asleep: %v, want %v", got, want)
	}
}

// A laptop is closed for a while: its monotonic clock stands still, and the store's leases run on.
// A grant on a lease of before, and a renewal's yes, are of a lease that lasts as long as they say.
//
// covers: B13, X3, A6
func TestSuspendedTimeIsPartOfALeasesAge(t *testing.T) {
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		var slept atomic.Int64
		p.b.slept = func(time.Time) time.Duration { return time.Duration(slept.Load()) }
		nap := func(d time.Duration) {
			slept.Add(int64(d))
			p.etcd.mu.Lock()
			defer p.etcd.mu.Unlock()
			for _, l := range p.etcd.leases {
				l.ends = l.ends.Add(-d)
			}
		}
		lasts := func(what string, c backend.Claim, sent time.Time, believed time.Duration) {
			t.Helper()
			id := int64(known(p.b, c).lease.id)
			p.etcd.mu.Lock()
			defer p.etcd.mu.Unlock()
			l := p.etcd.leases[id]
			if l == nil || l.ends.Before(sent.Add(believed)) {
				t.Errorf(history.Broken+"%s of %v, on a lease that is %+v", what, believed, l)
			}
		}
		first, hold := claim(key(t)), claim(key(t))
		first.TTL, hold.TTL = 30*time.Second, 30*time.Second
		acquired(t, p.b, first)
		want(t, "Release", storetest.Release(t.Context(), p.b, first), nil)
		nap(38 * time.Second)
		sent := time.Now()
		lasts("a grant", hold, sent, acquired(t, p.b, hold).TTL)
		nap(25 * time.Second)
		sent = time.Now()
		want(t, "Renew", p.b.Renew(t.Context(), hold), nil)
		lasts("a renewal", hold, sent, hold.TTL)
	})
}

// A grant on a lease that has run for a while is good for what is left of it, and not for its
// length.
//
// covers: X3, A6
func TestGrantOnASharedLease(t *testing.T) {
	b := opened(t, at(testserver.Etcd(t).Addr()))
	first, second := claim(key(t)), claim(key(t)+"2")
	first.TTL, second.TTL = 30*time.Second, 30*time.Second
	acquired(t, b, first)
	b.mu.Lock()
	l := b.claims[b.scheme.paths(first.Key).topic(first.ID())].lease
	l.began = l.began.Add(-5 * time.Second) // as if it had run so long
	left := l.lasts(time.Now())
	b.mu.Unlock()
	g := acquired(t, b, second)
	b.mu.Lock()
	shared := b.claims[b.scheme.paths(second.Key).topic(second.ID())].lease == l
	b.mu.Unlock()
	if !shared {
		t.Fatal("the two do not share a lease")
	}
	if g.TTL > left || g.TTL < second.TTL {
		t.Errorf("granted for %v on a lease of %v that lasts for %v more, asked for %v", g.TTL,
			l.ttl, left, second.TTL)
	}
}

// A lease is counted from before the request that gave it its length was sent, however late the
// answer: a new one, one that was kept alive, and one whose keepalive had to wait for the one
// before.
//
// covers: X3, A6
func TestLeaseCountsFromBeforeTheRequest(t *testing.T) {
	const delay = 200 * time.Millisecond
	srv := testserver.Etcd(t)
	var mu sync.Mutex
	var sent []time.Time // of grants and keepalives
	b, _ := tap{
		before: func(req any) {
			grant, _ := req.(*etcdserverpb.LeaseGrantRequest)
			_, kept := req.(*etcdserverpb.LeaseKeepAliveRequest)
			// Not that of shadows.
			if kept || grant != nil && grant.TTL < int64(shadowTime/time.Second) {
				mu.Lock()
				defer mu.Unlock()
				sent = append(sent, time.Now())
			}
		},
		after: func(reply any) {
			switch reply.(type) {
			case *etcdserverpb.LeaseGrantResponse, *etcdserverpb.LeaseKeepAliveResponse:
				time.Sleep(delay)
			}
		},
	}.through(t, srv.Addr(), Config{RequestTimeout: patience})
	counted := func(what string, requests int) {
		t.Helper()
		mu.Lock()
		n, last := len(sent), sent[len(sent)-1]
		mu.Unlock()
		if n != requests {
			t.Fatalf("%s: %d requests, want %d", what, n, requests)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, l := range b.leases {
			if l.began.After(last) || len(b.leases) != 1 {
				t.Errorf("%s: the lease is counted from %v after it was asked for", what,
					l.began.Sub(last))
			}
		}
	}
	c := claim(key(t))
	c.TTL = slackFrom - time.Second // no slack: each renewal needs a keepalive from after it began
	acquired(t, b, c)
	counted("a new lease", 1)
	want(t, "Renew", b.Renew(t.Context(), c), nil)
	counted("a keepalive", 2)
	first := make(chan error, 1)
	go func() { first <- b.Renew(t.Context(), c) }()
	eventually(t, "a keepalive to be in flight", func() error {
		mu.Lock()
		defer mu.Unlock()
		if len(sent) < 3 {
			return errors.New("not yet")
		}
		return nil
	})
	want(t, "Renew beside another", b.Renew(t.Context(), c), nil)
	counted("a keepalive after another", 4)
	want(t, "Renew", <-first, nil)
}

// A keepalive that failed is the answer of all requests from before it was sent, such as those of a
// heartbeat, and of none after it.
func TestFailedKeepalive(t *testing.T) {
	b := on(t, client(t, "127.0.0.1:1"), Config{})
	failed := b.newFlight()
	failed.err = backend.ErrDenied
	close(failed.done)
	l := &lease{
		ttl: time.Second, began: failed.sent.Add(-time.Minute), asleep: b.slept, kept: failed,
	}
	for range 3 {
		want(t, "a request from before it",
			b.lasting(t.Context(), l, failed.sent.Add(-time.Millisecond), l.ttl), backend.ErrDenied)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if l.keeping {
		t.Error("it is sent again for a request that it answers")
	}
	if b.keep(l, failed.sent.Add(time.Millisecond), l.ttl) == failed || !l.keeping {
		t.Error("it answers a request from after it")
	}
}

// countingKeepalives returns a backend and the number of keepalives that it has sent.
func countingKeepalives(t *testing.T, addr string) (*Backend, *atomic.Int64) {
	t.Helper()
	var sent atomic.Int64
	b, _ := tap{before: func(req any) {
		if _, ok := req.(*etcdserverpb.LeaseKeepAliveRequest); ok {
			sent.Add(1)
		}
	}}.through(t, addr, Config{})
	return b, &sent
}

// A free lock costs one Raft entry to take and one to give back, as long as the client has a
// lease.
func TestOneWrite(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b, keepalives := countingKeepalives(t, srv.Addr())
	index := func() uint64 {
		t.Helper()
		status, err := c.Status(t.Context(), srv.Addr())
		if err != nil {
			t.Fatal(err)
		}
		return status.RaftIndex
	}
	const pairs = 50
	pair := func(i int) {
		c := claim(key(t))
		c.Mode = []backend.Mode{backend.Exclusive, backend.Shared, backend.Permit}[i%3]
		if c.Mode == backend.Permit {
			c.Limit = 2
		}
		c.NoneInFlight = true
		acquired(t, b, c)
		want(t, "renew", b.Renew(t.Context(), c), nil)
		want(t, "release", storetest.Release(t.Context(), b, c), nil)
	}
	pair(0) // makes the lease
	before := index()
	for i := range pairs {
		pair(i)
	}
	if n := index() - before; n < 2*pairs || n > 2*pairs+2 {
		t.Errorf("%d pairs took %d Raft entries, want 2 each", pairs, n)
	}
	if n := keepalives.Load(); n > 1 {
		t.Errorf("%d keepalives within moments", n)
	}
}

// A thousand locks of one client are kept by one keepalive in a third of the TTL, whenever each
// was taken.
func TestKeepalivesOfAThousand(t *testing.T) {
	if testing.Short() {
		t.Skip("two renewals of a lease of seconds")
	}
	t.Parallel()
	// Longer than a busy machine keeps a store from answering.
	const holds, ttl = 1000, 12 * time.Second
	srv := testserver.Etcd(t)
	b, keepalives := countingKeepalives(t, srv.Addr())
	l, err := locker.New(b, locker.Bare, locker.Config{TTL: ttl, ReleaseTimeout: time.Minute})
	want(t, "locker", err, nil)
	defer func() { _ = l.Close() }() // not Shutdown: a test that failed holds on
	guards := make([]*locker.Guard[struct{}], holds)
	start := time.Now()
	for i := range guards {
		// Spread over the interval of renewals.
		time.Sleep(time.Until(start.Add(ttl / 3 * time.Duration(i) / holds)))
		if guards[i], err = l.Lock(t.Context(), key(t)); err != nil {
			t.Fatal(err)
		}
	}
	began, before := time.Now(), keepalives.Load()
	for _, g := range guards { // held for a TTL and more: each was renewed at least twice
		select {
		case <-g.Lost():
			t.Fatalf("a lock was lost: %v", context.Cause(g.Context()))
		case <-time.After(time.Until(began.Add(ttl + ttl/6))):
		}
	}
	took, sent := time.Since(began), keepalives.Load()-before
	// One an interval, and what is not answered soon enough on a busy machine is sent up to three
	// times, see asking.
	if most := 3 * (int64(took/(ttl/3)) + 1); sent > most || sent < 2 {
		t.Errorf("%d keepalives in %v, want 2 to %d", sent, took, most)
	}
	var wg sync.WaitGroup
	for _, g := range guards {
		wg.Go(func() {
			if err := g.Unlock(); err != nil {
				t.Errorf("Unlock = %v", err)
			}
		})
	}
	wg.Wait()
	c := client(t, srv.Addr())
	if leases, err := c.Leases(t.Context()); err != nil || len(leases.Leases) > 2 {
		t.Errorf("%d leases, %v", len(leases.Leases), err)
	}
}

// A claim that ends without a word ends, although its lease is kept alive for others.
//
// covers: B3, B15, G2
func TestSilentHoldOnSharedLease(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	b, other := opened(t, at(srv.Addr())), opened(t, at(srv.Addr()))
	silent, alive, waiter := claim(key(t)), claim(key(t)), inLine("")
	waiter.Key = alive.Key
	silent.TTL, alive.TTL, waiter.WaiterTTL = 2*time.Second, 2*time.Second, 2*time.Second
	start := time.Now()
	acquired(t, b, silent)
	acquired(t, b, alive)
	_, err := b.TryAcquire(t.Context(), waiter) // in the queue, and then silent
	want(t, "wait in the queue", err, backend.ErrHeld)
	eventually(t, "the silent hold to end", func() error {
		want(t, "renew", b.Renew(t.Context(), alive), nil)
		_, err := other.TryAcquire(t.Context(), claim(silent.Key))
		if err == nil && time.Since(start) < silent.TTL-silent.TTL/50 {
			t.Fatalf("it ended after %v", time.Since(start))
		}
		time.Sleep(100 * time.Millisecond)
		return err
	})
	if took := time.Since(start); took > 3*silent.TTL {
		t.Errorf("it ended after %v, with a TTL of %v", took, silent.TTL)
	}
	want(t, "renew by the silent one", b.Renew(t.Context(), silent), backend.ErrLost)
	eventually(t, "the silent waiter to lapse", func() error {
		want(t, "renew", b.Renew(t.Context(), alive), nil)
		state, err := other.Inspect(t.Context(), alive.Key)
		if err == nil && len(state.Waiters) > 0 {
			err = fmt.Errorf("still waiting: %+v", state.Waiters)
		}
		return err
	})
}

// An attempt whose answer never came lands when its claim is long forgotten, on a lease that
// others keep alive. It is found and removed.
//
// covers: X10, A4
func TestForgottenAttemptOnSharedLease(t *testing.T) {
	t.Parallel()
	srv := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	b, other := opened(t, at(proxy.Addr())), opened(t, at(srv.Addr()))
	alive, ghost := claim(key(t)), claim(key(t))
	alive.TTL, ghost.TTL = 6*time.Second, 6*time.Second
	acquired(t, b, alive)
	proxy.Set(testserver.Fault{
		Mode:  testserver.HoldReply,
		Match: testserver.Containing(escape(ghost.Key)), Next: 1,
	})
	_, err := b.TryAcquire(quick(t, time.Second), ghost)
	if backend.AnswerOf(err) != backend.Unknown {
		t.Fatalf("TryAcquire without a reply = %v", err)
	}
	proxy.Pass()
	_, err = other.TryAcquire(t.Context(), claim(ghost.Key))
	want(t, "the ghost", err, backend.ErrHeld)
	eventually(t, "the ghost to be removed", func() error {
		if err := b.Renew(t.Context(), alive); err != nil {
			return err
		}
		c := claim(ghost.Key)
		c.NoneInFlight = true
		_, err := other.TryAcquire(t.Context(), c)
		return errors.Join(err, storetest.Release(t.Context(), other, c))
	})
	want(t, "renew", b.Renew(t.Context(), alive), nil)
}

// A lease that somebody revokes ends all that is on it, and nothing after it.
//
// covers: X18, B8
func TestRevokedLease(t *testing.T) {
	srv := testserver.Etcd(t)
	c := client(t, srv.Addr())
	b := on(t, c, Config{})
	one, two := claim(key(t)), claim(key(t))
	acquired(t, b, one)
	acquired(t, b, two)
	leases, err := c.Leases(t.Context())
	want(t, "leases", err, nil)
	for _, l := range leases.Leases {
		_, err := c.Revoke(t.Context(), l.ID)
		want(t, "revoke", err, nil)
	}
	want(t, "renew", b.Renew(t.Context(), one), backend.ErrLost)
	want(t, "release", storetest.Release(t.Context(), b, two), backend.ErrLost)
	fresh := claim(one.Key)
	acquired(t, b, fresh)
	want(t, "renew on the next lease", b.Renew(t.Context(), fresh), nil)
	reply, err := c.Get(t.Context(), known(b, fresh).key)
	if err != nil || len(reply.Kvs) != 1 || reply.Kvs[0].Lease == int64(leases.Leases[0].ID) {
		t.Errorf("the entry is %+v, %v", reply.Kvs, err)
	}
}

// A question that a member does not answer is soon put to another, and now and then waited for
// longer, as all may be slow. Where there is no other it is put once.
func TestAskingHopsOn(t *testing.T) {
	for name, tc := range map[string]struct {
		silent int // how many tries are not answered
		within time.Duration
		tries  int
		took   time.Duration
	}{
		"the first two": {2, 3 * time.Second, 3, 200 * time.Millisecond},
		"many":          {10, 3 * time.Second, 11, 3*600*time.Millisecond + 100*time.Millisecond},
		"all":           {100, 2950 * time.Millisecond, 15, 2950 * time.Millisecond},
		"no other":      {100, 390 * time.Millisecond, 1, 390 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.within)
				defer cancel()
				began, tries := time.Now(), 0
				_, err := asking(ctx, 400*time.Millisecond, func(ctx context.Context) (int, error) {
					if tries++; tries <= tc.silent {
						<-ctx.Done()
						return 0, ctx.Err()
					}
					return 0, nil
				})
				if took := time.Since(began); tries != tc.tries || took != tc.took ||
					(err == nil) != (tc.silent < tries) {
					t.Errorf("%d tries in %v: %v", tries, took, err)
				}
			})
		})
	}
}
