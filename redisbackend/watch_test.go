package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func watched(ctx context.Context, t testing.TB, b *Backend, key string) <-chan backend.Wake {
	t.Helper()
	wake, err := b.Watch(ctx, claim(key))
	if err != nil {
		t.Fatalf("Watch: %v", err)
	}
	return wake
}

func TestReleaseWakes(t *testing.T) {
	b := opened(t, testserver.SharedRedis(t).URL())
	c, other := claim(key(t)), claim(key(t))
	acquired(t, b, c)
	acquired(t, b, other)
	wake, another := watched(t.Context(), t, b, c.Key), watched(t.Context(), t, b, c.Key)
	elsewhere := watched(t.Context(), t, b, other.Key)
	select {
	case <-wake:
		t.Error("woken before anything happened: one attempt too many for each wait")
	default:
	}
	want(t, "release", storetest.Release(t.Context(), b, c), nil)
	woken(t, wake)
	woken(t, another)
	acquired(t, b, claim(c.Key)) // the wake-up came after the deletion
	select {
	case <-elsewhere:
		t.Error("another key's watcher was woken")
	default:
	}
	want(t, "release", storetest.Release(t.Context(), b, other), nil)
	woken(t, elsewhere)
}

// A release that the server refuses wakes nobody: the key is not free.
func TestRefusedReleaseIsSilent(t *testing.T) {
	srv := testserver.Redis(t)
	testserver.OnlyWhere(t, srv, func(v testserver.Version) bool { return v.AtLeast(7, 0) },
		"NOREPLICAS: scripts of Redis 6 write without replicas")
	b := opened(t, srv.URL())
	c, marker := claim(key(t)), claim(key(t))
	acquired(t, b, c)
	wake, marked := watched(t.Context(), t, b, c.Key), watched(t.Context(), t, b, marker.Key)
	srv.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	want(t, "release", storetest.Release(t.Context(), b, c), backend.ErrUnavailable)
	srv.MustDo("PUBLISH", b.store.Layout.Channel(marker.Key), "free")
	woken(t, marked) // messages come in order: the other one would have been here before
	select {
	case <-wake:
		t.Error("woken by a release that was refused")
	default:
	}
}

// Watch does not return while the server has not confirmed, so no release after it can be missed.
//
// covers: W1
func TestSubscribedBeforeWatchReturns(t *testing.T) {
	p, b, direct := behind(t, "")
	c := claim(key(t))
	acquired(t, direct, c)
	p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing("subscribe")})
	returned := make(chan (<-chan backend.Wake), 1)
	go func() {
		wake, err := b.Watch(t.Context(), claim(c.Key))
		if err != nil {
			t.Error(err)
		}
		returned <- wake
	}()
	p.Await(func(n testserver.Counts) bool { return n.Held > 0 })
	select {
	case <-returned:
		t.Fatal("Watch returned before the subscription was confirmed")
	default:
	}
	p.Pass()
	wake := <-returned
	want(t, "release", storetest.Release(t.Context(), direct, c), nil)
	woken(t, wake)
}

// The same holds while a lost connection is being restored.
//
// covers: W1, W2
func TestSubscribedAgainBeforeWatchReturns(t *testing.T) {
	p, b, direct := behind(t, "")
	c := claim(key(t))
	acquired(t, direct, c)
	watched(t.Context(), t, b, c.Key)
	p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: testserver.Containing("subscribe")})
	p.CutAll()
	eventually(t, "the loss to be noticed", func() error {
		if b.store.Waiters().Confirmed(b.store.Layout.Channel(c.Key)) {
			return errors.New("still confirmed")
		}
		return nil
	})
	returned := make(chan (<-chan backend.Wake), 1)
	go func() { returned <- watched(t.Context(), t, b, c.Key) }()
	select {
	case <-returned:
		t.Fatal("Watch returned before the subscription was confirmed again")
	case <-time.After(20 * time.Millisecond): // what must not happen has had its time
	}
	p.Pass()
	wake := <-returned
	want(t, "release", storetest.Release(t.Context(), direct, c), nil)
	woken(t, wake)
}

// A server that ends each connection at once is not asked in a tight loop.
//
// covers: W17
func TestRestartsArePaced(t *testing.T) {
	p, b, _ := behind(t, "")
	watched(t.Context(), t, b, key(t))
	before := p.Counts().Conns
	p.Set(testserver.Fault{Mode: testserver.CutBeforeRequest})
	p.CutAll()
	p.Await(func(n testserver.Counts) bool { return n.Conns > before })
	time.Sleep(300 * time.Millisecond) // the measured interval
	if n := p.Counts().Conns - before; n > 60 {
		t.Errorf("%d connections in 300ms", n)
	}
}

// The release is published while the subscription is broken. Its watchers are woken when it is
// restored.
//
// covers: W2, R21
func TestMissedMessage(t *testing.T) {
	p, b, direct := behind(t, "")
	c := claim(key(t))
	acquired(t, direct, c)
	wake := watched(t.Context(), t, b, c.Key)
	p.Set(testserver.Fault{Mode: testserver.Refuse})
	p.CutAll()
	want(t, "release", storetest.Release(t.Context(), direct, c), nil)
	p.Pass()
	woken(t, wake)
}

// covers: W2, R21
func TestSubscriptionIsKilledAgainAndAgain(t *testing.T) {
	srv := testserver.Redis(t)
	b, direct := opened(t, srv.URL()), opened(t, srv.URL())
	stop, killer, kills := make(chan struct{}), sync.WaitGroup{}, atomic.Int64{}
	killer.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.N(15)) * time.Millisecond):
				if n, _ := srv.Do("CLIENT", "KILL", "TYPE", "pubsub"); n == int64(1) {
					kills.Add(1)
				}
			}
		}
	})
	defer func() { close(stop); killer.Wait() }()
	k := key(t)
	for kills.Load() < 30 {
		c := claim(k)
		acquired(t, direct, c)
		ctx, cancel := context.WithCancel(t.Context())
		var wake <-chan backend.Wake
		eventually(t, "watch", func() (err error) {
			wake, err = b.Watch(ctx, claim(k))
			return err
		})
		want(t, "release", storetest.Release(t.Context(), direct, c), nil)
		woken(t, wake)
		cancel()
	}
}

// The connection is there but nothing comes through it any more: a ping finds out.
//
// covers: R21, E2
func TestSilentSubscription(t *testing.T) {
	p, b, direct := behind(t, "?request_timeout=100ms")
	b.store.Waiters().Idle, b.store.Waiters().Quiet = 10*time.Millisecond, 50*time.Millisecond
	c := claim(key(t))
	acquired(t, direct, c)
	wake := watched(t.Context(), t, b, c.Key)
	p.Set(testserver.Fault{Mode: testserver.HalfOpen})
	swallowed := p.Counts().Swallowed
	want(t, "release", storetest.Release(t.Context(), direct, c), nil)
	p.Await(func(n testserver.Counts) bool { return n.Swallowed > swallowed }) // the ping
	// For new connections; the old one stays dead.
	p.Pass()
	woken(t, wake)
}

// A connection on which nothing happens is asked, found alive, and kept.
func TestIdleSubscriptionStays(t *testing.T) {
	p, b, _ := behind(t, "?request_timeout=150ms")
	b.store.Waiters().Idle, b.store.Waiters().Quiet = 5*time.Millisecond, 20*time.Millisecond
	watched(t.Context(), t, b, key(t))
	before := p.Counts()
	p.Await(func(n testserver.Counts) bool { return n.Requests > before.Requests+10 })
	if n := p.Counts().Conns - before.Conns; n != 0 {
		t.Errorf("%d new connections", n)
	}
}

// However many wait for however many keys, there is one connection; and none, and no channel, when
// nobody does.
//
// covers: W13, G1
func TestOneConnectionForAll(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL())
	b.store.Waiters().Idle = 20 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	const names, each = 50, 10
	var all sync.WaitGroup
	for i := range names * each {
		all.Go(func() {
			if _, err := b.Watch(ctx, claim(fmt.Sprint("name", i%names))); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if n := strings.Count(srv.MustDo("CLIENT", "LIST", "TYPE", "pubsub"), "\n"); n != 1 {
		t.Errorf("%d connections", n)
	}
	if n := strings.Count(srv.MustDo("PUBSUB", "CHANNELS"), "holdfast:"); n != names {
		t.Errorf("%d channels for %d names", n, names)
	}
	keep := watched(t.Context(), t, b, "kept")
	cancel()
	eventually(t, "unsubscribe", func() error {
		if channels := srv.MustDo("PUBSUB", "CHANNELS"); channels != "[holdfast:{kept}:free]" {
			return errors.New(channels)
		}
		return nil
	})
	c := claim("kept")
	acquired(t, b, c)
	want(t, "release", storetest.Release(t.Context(), b, c), nil)
	woken(t, keep)
}

// The connection lives while somebody watches, and a little longer.
func TestNobodyWatches(t *testing.T) {
	p, b, _ := behind(t, "")
	b.store.Waiters().Idle = 20 * time.Millisecond
	for range 3 {
		c := claim(key(t))
		acquired(t, b, c)
		open := p.Counts().Open
		ctx, cancel := context.WithCancel(t.Context())
		wake := watched(ctx, t, b, c.Key)
		want(t, "release", storetest.Release(t.Context(), b, c), nil)
		woken(t, wake)
		if n := p.Counts().Open; n != open+1 {
			t.Errorf("%d connections, want %d", n, open+1)
		}
		cancel()
		p.Await(func(n testserver.Counts) bool { return n.Open == open })
	}
}

// A channel without a watcher is dropped when it was so at two sweeps, and is not if another
// watcher came in between.
func TestSweep(t *testing.T) {
	b := opened(t, testserver.SharedRedis(t).URL())
	b.store.Waiters().Idle = time.Hour // only the sweeps here
	name := key(t)
	sweep := func(step string, dropped int) {
		t.Helper()
		if got, _ := b.store.Waiters().Sweep(); len(got) != dropped {
			t.Errorf("%s: dropped %q", step, got)
		}
	}
	leave := func(cancel context.CancelFunc) {
		cancel()
		eventually(t, "watcher to leave", func() error {
			if b.store.Waiters().Hub.Watched(b.store.Layout.Channel(name)) {
				return errors.New("still there")
			}
			return nil
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	watched(ctx, t, b, name)
	sweep("watched", 0)
	leave(cancel)
	sweep("vacant", 0)
	ctx, cancel = context.WithCancel(t.Context())
	watched(ctx, t, b, name)
	sweep("watched again", 0)
	leave(cancel)
	sweep("vacant again", 0)
	sweep("vacant twice", 1)
}

// Watchers come and go while channels are dropped all the time. Whoever was told "subscribed" is
// woken by the next release.
//
// covers: W1, W13
func TestComingAndGoing(t *testing.T) {
	b := opened(t, testserver.SharedRedis(t).URL())
	b.store.Waiters().Idle = time.Millisecond
	var all sync.WaitGroup
	for i := range 4 {
		all.Go(func() {
			for range 150 {
				c := claim(fmt.Sprint(t.Name(), i))
				ctx, cancel := context.WithCancel(t.Context())
				wake, err := b.Watch(ctx, c)
				if err != nil {
					t.Error(err)
				}
				if err := b.client.Publish(ctx, b.store.Layout.Channel(c.Key),
					"free").Err(); err != nil {
					t.Error(err)
				}
				select {
				case <-wake:
				case <-time.After(patience):
					t.Error("not woken")
				}
				cancel()
				time.Sleep(time.Duration(rand.N(3)) * time.Millisecond)
			}
		})
	}
	all.Wait()
}

// covers: W13, R15
func TestWatchWithoutServer(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, srv.URL())
	srv.Kill()
	start := time.Now()
	_, err := b.Watch(t.Context(), claim(key(t)))
	want(t, "watch", err, backend.ErrUnavailable)
	if took := time.Since(start); took > 8*time.Second {
		t.Errorf("it took %v to say so", took)
	}
	srv.Restart()
	eventually(t, "watch", func() error {
		_, err := b.Watch(t.Context(), claim(key(t)))
		return err
	})
}

func TestWatchIsBounded(t *testing.T) {
	srv := testserver.Redis(t)
	patient, b := opened(t, srv.URL()+"?request_timeout=1m"),
		opened(t, srv.URL()+"?request_timeout=200ms")
	srv.Stop()
	defer srv.Cont()
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	start := time.Now()
	_, err := patient.Watch(ctx, claim(key(t)))
	want(t, "cancelled watch", err, context.Canceled)
	if _, err = b.Watch(t.Context(), claim(key(t))); err == nil {
		t.Error("a watch of a server that is silent")
	}
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("they took %v, want 20 and 200 ms", took)
	}
}

func TestCloseEndsWatches(t *testing.T) {
	b, err := backend.Open(t.Context(), testserver.SharedRedis(t).URL())
	if err != nil {
		t.Fatal(err)
	}
	wake := watched(t.Context(), t, b.(*Backend), key(t))
	want(t, "close", b.Close(), nil)
	if _, ok := <-wake; ok {
		t.Error("signalled, not closed")
	}
	_, err = b.Watch(t.Context(), claim(key(t)))
	want(t, "watch", err, backend.ErrClosed)
}
