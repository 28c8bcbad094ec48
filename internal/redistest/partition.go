package redistest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// Quiet is a locker on b that loses locks on purpose.
func Quiet(t testing.TB, b backend.Backend, cfg locker.Config) *locker.Client[struct{}] {
	t.Helper()
	cfg.Logger = slog.New(slog.DiscardHandler)
	l, err := locker.New(b, locker.Bare, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil {
			t.Errorf("locker: Close = %v", err)
		}
	})
	return l
}

// Closing is Dial, with a client that is closed at the end.
func Closing(t testing.TB, url string) backend.Backend {
	t.Helper()
	b := Dial(t, url)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// HolderCutOff is a test: a holder that is cut off from Redis hears nothing, not even that its
// connection is gone. Its guard is over before another client is granted the lock, every time,
// because its own clock ends it. (rueidislock waits for the reply that does not come, and was 1.4
// s late.)
func HolderCutOff(t *testing.T, scheme string) {
	const locks = 40
	rounds := 5
	if testing.Short() {
		rounds = 1
	}
	srv := testserver.SharedRedis(t)
	var wg sync.WaitGroup
	for round := range rounds {
		// So that not all leases end at once.
		ttl := 2*time.Second + time.Duration(round)*200*time.Millisecond
		wg.Go(func() {
			t.Run(ttl.String(), func(t *testing.T) { cutOff(t, srv, scheme, locks, ttl) })
		})
	}
	wg.Wait()
}

func cutOff(t *testing.T, srv *testserver.Server, scheme string, locks int, ttl time.Duration) {
	proxy := testserver.NewProxy(t, srv.Addr())
	// A busy machine may answer after half of the TTL.
	cfg := locker.Config{TTL: ttl, StoreTimeout: time.Minute}
	holder := Quiet(t, Closing(t, scheme+"://"+proxy.Addr()), cfg)
	other := Quiet(t, Closing(t, scheme+"://"+srv.Addr()), cfg)
	guards := make([]*locker.Guard[struct{}], locks)
	key := func(i int) string { return fmt.Sprintf("%s-%d", t.Name(), i) }
	for i := range guards {
		var err error
		if guards[i], err = holder.Lock(t.Context(), key(i)); err != nil {
			t.Fatal(err)
		}
	}
	proxy.Set(testserver.Fault{Mode: testserver.Hold})
	next := make([]*locker.Guard[struct{}], locks)
	var wg sync.WaitGroup
	for i, g := range guards {
		wg.Go(func() {
			lost := g.Lost()
			var err error
			if next[i], err = other.Lock(t.Context(), key(i)); err != nil {
				t.Errorf("Lock by the other = %v", err)
				return
			}
			if _, err := g.Value(); !errors.Is(err, locker.ErrLost) {
				t.Errorf(history.Broken+
					"the guard is good for another %v, and the lock was granted to another",
					time.Until(g.Until()))
			}
			select {
			case <-lost:
			default:
				t.Errorf(history.Broken +
					"Lost was still open when the lock was granted to another")
			}
			if g.Hold().Token >= next[i].Hold().Token {
				t.Errorf(history.Broken+"token %d after %d", next[i].Hold().Token, g.Hold().Token)
			}
		})
	}
	wg.Wait()
	proxy.Pass() // the renewals that were held back arrive now, and must not disturb who holds
	for i, g := range guards {
		if err := g.Unlock(); !errors.Is(err, locker.ErrLost) {
			t.Errorf("Unlock of a lost guard = %v, want ErrLost", err)
		}
		if next[i] == nil {
			continue
		}
		if err := next[i].Check(t.Context()); err != nil {
			t.Errorf("Check by the new holder = %v", err)
		}
		if err := next[i].Unlock(); err != nil {
			t.Errorf("Unlock by the new holder = %v", err)
		}
	}
}

// LostReplies is a test: the server executes a request and the reply is lost. One's own lock is
// never reported as taken, and none is left behind. (go-redis' SetNX with its default retries
// answers false here, and rueidislock "held by others".)
func LostReplies(t *testing.T, scheme string) {
	srv := testserver.SharedRedis(t)
	for _, lost := range []int{1, 2, 4} { // of the replies that concern the key, one after another
		for _, op := range []string{"Lock", "TryLock"} {
			t.Run(fmt.Sprintf("%s-%d", op, lost), func(t *testing.T) {
				lostReplies(t, srv, scheme, op, lost)
			})
		}
	}
}

func lostReplies(t *testing.T, srv *testserver.Server, scheme, op string, lost int) {
	direct := Closing(t, scheme+"://"+srv.Addr())
	proxy := testserver.NewProxy(t, srv.Addr())
	l := Quiet(t, Closing(t, scheme+"://"+proxy.Addr()), locker.Config{})
	if g, err := l.Lock(t.Context(), "lost-first"); err != nil { // the scripts are loaded
		t.Fatal(err)
	} else if err := g.Unlock(); err != nil {
		t.Fatal(err)
	}
	key := "lost-" + op + fmt.Sprint(lost)
	cut := testserver.Fault{
		Mode: testserver.ExecuteThenCut, Match: testserver.Containing(key),
		Next: lost,
	}
	lock := l.Lock
	if op == "TryLock" {
		lock = l.TryLock
	}
	proxy.Set(cut)
	g, err := lock(t.Context(), key)
	switch {
	case errors.Is(err, backend.ErrHeld):
		t.Fatalf("%s = %v, which is one's own lock", op, err)
	case err == nil:
		proxy.Set(cut)
		if err := g.Check(t.Context()); errors.Is(err, locker.ErrLost) {
			t.Errorf("Check, when the reply is lost = %v", err)
		}
		proxy.Set(cut)
		if err := g.Unlock(); err != nil {
			t.Errorf("Unlock, when replies are lost = %v, want nil: the hold was good", err)
		}
	case op == "Lock" || lost < 2:
		t.Errorf("%s = %v, although the store can be asked again", op, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil { // what goes on behind TryLock's back is done
		t.Errorf("locker: Close = %v", err)
	}
	if n := proxy.Counts().Dropped; n < lost {
		t.Errorf("%d replies were lost, want %d at least", n, lost)
	}
	if state, err := direct.Inspect(t.Context(), key); err != nil || len(state.Holders) > 0 {
		t.Errorf("left behind: %+v, %v", state, err)
	}
}
