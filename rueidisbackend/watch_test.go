package rueidisbackend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// silent fails the test if wake is signalled before marker, which is signalled after.
func silent(t testing.TB, why string, wake <-chan backend.Wake) {
	t.Helper()
	select {
	case <-wake:
		t.Error(why)
	default:
	}
}

// read waits until b has read a key again which somebody else has written just now.
func (b *Backend) read(t testing.TB, other *Backend) {
	t.Helper()
	c := claim(key(t))
	wake := watched(t.Context(), t, b, c)
	select {
	case <-wake: // it was free
	default:
	}
	acquired(t, other, c)
	woken(t, wake) // what was told before has been read: one batch after the other
}

// A release wakes by the server's word alone: no channel is subscribed to.
//
// covers: W1
func TestReleaseWakes(t *testing.T) {
	srv := testserver.Redis(t)
	b, other := opened(t, "rueidis://"+srv.Addr()), opened(t, "rueidis://"+srv.Addr())
	c := claim(key(t))
	acquired(t, other, c)
	wake, another := watched(t.Context(), t, b, claim(c.Key)), watched(t.Context(), t, b,
		claim(c.Key))
	own := watched(t.Context(), t, other, claim(c.Key)) // in the process that releases, too
	silent(t, "woken before anything happened", wake)
	want(t, "release", storetest.Release(t.Context(), other, c), nil)
	for _, w := range []<-chan backend.Wake{wake, another, own} {
		woken(t, w)
	}
	if channels := srv.MustDo("PUBSUB", "CHANNELS"); channels != "[]" {
		t.Errorf("subscribed to %s", channels)
	}
	// And the one that asks.
	if n := strings.Count(srv.MustDo("CLIENT", "LIST"), " addr=127.0.0.1"); n != 3 {
		t.Errorf("%d connections, want one of each and this", n)
	}
}

// covers: W6
func TestRenewalWakesNobody(t *testing.T) {
	srv := testserver.SharedRedis(t)
	b, other := opened(t, "rueidis://"+srv.Addr()), opened(t, "rueidis://"+srv.Addr())
	c := claim(key(t))
	acquired(t, other, c)
	wake, holder := watched(t.Context(), t, b, claim(c.Key)), watched(t.Context(), t, other, c)
	for range 3 {
		want(t, "renew", other.Renew(t.Context(), c), nil)
		b.read(t, other)
		other.read(t, b)
	}
	silent(t, "a renewal woke who waits", wake)
	silent(t, "a renewal woke who holds", holder)
	want(t, "release", storetest.Release(t.Context(), other, c), nil)
	woken(t, wake)
}

// A key that is found free concerns who waits for it, although it was free when it was last looked
// at: others may have held it in between, and refused the waiter. In the string dialect nothing
// else tells the two apart.
//
// covers: W1
func TestFreeAgain(t *testing.T) {
	w, free := &watcher{}, lookup{free: true}
	w.note(free)
	if !w.note(free) {
		t.Error("a key that is free again does not concern who waits")
	}
	if w.note(lookup{who: "another"}); w.note(lookup{who: "another"}) {
		t.Error("a lock that is still another's concerns who waits")
	}
}

// What is released while Watch is on its way is not missed: it is read, or told after. The reply
// to the first read is held back until the release has been told and read again.
//
// covers: W1
func TestMissedNothing(t *testing.T) {
	srv := testserver.SharedRedis(t)
	b, other := opened(t, "rueidis://"+srv.Addr()), opened(t, "rueidis://"+srv.Addr())
	for range 200 {
		c := claim(key(t))
		c.NoneInFlight = true
		acquired(t, other, c)
		var both sync.WaitGroup
		var wake <-chan backend.Wake
		both.Go(func() { wake = watched(t.Context(), t, b, claim(c.Key)) })
		want(t, "release", storetest.Release(t.Context(), other, c), nil)
		both.Wait()
		woken(t, wake)
	}
	// The same, in the worst order.
	holder := claim("order")
	acquired(t, other, holder)
	l := b.store.Layout
	w := &watcher{name: l.Key("order"), id: "o", wake: make(chan backend.Wake, 1)}
	b.watch.add(w)
	before, err := b.look(t.Context(), w.name, w.id)
	want(t, "look", err, nil)
	want(t, "release", storetest.Release(t.Context(), other, holder), nil)
	eventually(t, "the release to be told", func() error {
		b.watch.mu.Lock()
		defer b.watch.mu.Unlock()
		if w.changes == 0 {
			return errors.New("not told")
		}
		return nil
	})
	b.read(t, other)            // there was another look, for nobody: w has not seen anything yet
	b.watch.first(w, before, 0) // and now sees what is over
	woken(t, w.wake)
	b.watch.leave(w)
}

// covers: W2, W3
func TestLostConnection(t *testing.T) {
	srv := testserver.SharedRedis(t)
	p := testserver.NewProxy(t, srv.Addr())
	b, other := opened(t, "rueidis://"+p.Addr()), opened(t, "rueidis://"+srv.Addr())
	c, kept := claim(key(t)), claim(key(t))
	acquired(t, other, c)
	acquired(t, other, kept)
	wake := watched(t.Context(), t, b, claim(c.Key))
	still := watched(t.Context(), t, b, kept) // of a claim that holds
	p.CutAll()
	woken(t, wake) // as something may have been missed
	want(t, "release", storetest.Release(t.Context(), other, c), nil)
	woken(t, wake) // watched again, by itself
	silent(t, "a hold that goes on was reported", still)
	want(t, "release", storetest.Release(t.Context(), other, kept), nil)
	woken(t, still)
}

// What is not answered for the first time is asked again.
//
// covers: W2
func TestServerComesBack(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, "rueidis://"+srv.Addr())
	c := claim(key(t))
	acquired(t, b, c)
	lost := watched(t.Context(), t, b, c)
	srv.Restart() // without persistence: the hold is gone
	woken(t, lost)
	_, err := b.TryAcquire(t.Context(), claim(c.Key))
	want(t, "acquire", err, nil)
}

// covers: W13
func TestWatchersLeave(t *testing.T) {
	b := opened(t, "rueidis://"+testserver.SharedRedis(t).Addr())
	ctx, cancel := context.WithCancel(t.Context())
	for range 100 {
		watched(ctx, t, b, claim(key(t)))
	}
	cancel()
	eventually(t, "watchers to leave", func() error {
		b.watch.mu.Lock()
		defer b.watch.mu.Unlock()
		if len(b.watch.keys)+len(b.watch.due) > 0 {
			return errors.New("still there")
		}
		return nil
	})
	wake := watched(t.Context(), t, b, claim(key(t)))
	want(t, "close", b.Close(), nil)
	for range 2 {
		select {
		case _, ok := <-wake:
			if !ok {
				return
			}
		case <-time.After(patience):
			t.Fatal("the watch was not closed")
		}
	}
}

// A first look that is under way when the client closes finds its watch closed.
func TestFirstLookDuringClose(t *testing.T) {
	watch, w := newWatches(nil), &watcher{name: "k", wake: make(chan backend.Wake, 1)}
	watch.add(w)
	watch.close()
	watch.first(w, lookup{free: true}, 0)
	if _, open := <-w.wake; open {
		t.Error("a watch that was closed is signalled")
	}
}

// However often a key changes, one that waits looks at it as soon as after the first change: the
// pauses that grow are for those who hold.
func TestOneThatWaitsLooksSoon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		watch := newWatches(nil)
		w := &watcher{name: "k", most: time.Minute, wake: make(chan backend.Wake, 1)}
		watch.keys[w.name] = map[*watcher]struct{}{w: {}}
		defer watch.close()
		for n := range 10 {
			watch.changed(w.name)
			time.Sleep(firstPause)
			synctest.Wait()
			watch.mu.Lock()
			if _, due := watch.due[w]; !due {
				t.Errorf("%v after change %d it does not look", firstPause, n+1)
			}
			delete(watch.due, w)
			w.known, w.looked = true, time.Now() // and another holds
			watch.mu.Unlock()
		}
	})
}
