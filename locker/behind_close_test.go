package locker_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// A Lock has begun, and Close ends the waits before it is one of them. It fails at once all the
// same, although its process holds the key: nobody comes to end its wait later.
//
// covers: G1
func TestLockThatBeganBeforeCloseAndWaitsAfterIt(t *testing.T) {
	b := hook()
	begins := func() {}
	cfg := locker.Config{Observer: calls{begin: map[string]func(){locker.OpLock: func() {
		begins()
	}}}}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		goesOn, failed, closed := make(chan struct{}), make(chan error, 1), make(chan error, 1)
		begins = func() { <-goesOn }
		go func() {
			_, err := l.Lock(ctx, "k")
			failed <- err
		}()
		synctest.Wait() // it has begun
		go func() { closed <- l.Close() }()
		synctest.Wait() // Close has ended all waits, and waits for the Unlock
		close(goesOn)
		synctest.Wait()
		select {
		case err := <-failed:
			wantErr(t, err, locker.ErrNotAcquired, locker.ErrClosed)
		default:
			cancel()
			t.Errorf("Lock waits behind Close, which has ended all waits: %v", <-failed)
		}
		storetest.Want(t, "Unlock", g.Unlock(), nil)
		storetest.Want(t, "Close", <-closed, nil)
		wantNothing(t, b, "k")
		if n := b.acquires.Load(); n != 1 {
			t.Errorf("%d attempts, want that of the first", n)
		}
	})
}

// A renewal is due and waits for its turn, behind as many as may be in flight, when a Check renews
// the lease. When its turn comes nothing is due; the lease is renewed again when it is, as long as
// its hold lasts.
//
// covers: B2
func TestRenewalWhoseTurnComesAfterACheck(t *testing.T) {
	const ttl, inFlight = 1500 * time.Millisecond, 256
	b, renew, _ := switchable()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		asked, renewed, answer := make(chan string, 2*inFlight), make(chan string, 2*inFlight),
			make(chan struct{})
		renew(func(ctx context.Context, c backend.Claim) error {
			if strings.HasPrefix(c.Key, "other") {
				select {
				case asked <- c.Key:
				default:
				}
				<-answer
			} else {
				renewed <- c.Key
			}
			return b.Backend.Renew(ctx, c)
		})
		var others []*locker.Guard[struct{}]
		for i := range inFlight { // due after 1.8 to 2.2 seconds, and given up a second later
			others = append(others, mustLock(t, l, fmt.Sprint("other", i), locker.TTL(4*ttl)))
		}
		time.Sleep(1750 * time.Millisecond)
		// due 0.45 to 0.55 seconds later, so after 2.2 to 2.3.
		g := mustLock(t, l, "k", locker.TTL(ttl))
		time.Sleep(600 * time.Millisecond)
		synctest.Wait()
		if len(asked) != inFlight || len(renewed) > 0 {
			t.Fatalf("%d renewals are in flight, and %d of the last lease, want %d and none",
				len(asked), len(renewed), inFlight)
		}
		storetest.Want(t, "Check", g.Check(t.Context()), nil)
		close(answer) // now it is its turn
		synctest.Wait()
		if n := len(renewed); n != 1 {
			t.Errorf("%d renewals, want that of Check, after which none is due", n)
		}
		time.Sleep(time.Minute)
		if _, err := g.Value(); err != nil {
			t.Errorf("after a minute: %v, and %d renewals; the store is well", err, len(renewed))
		}
		for _, g := range append(others, g) {
			_ = g.Unlock()
		}
	})
}
