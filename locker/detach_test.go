package locker_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// detachable locks k such that it can be detached.
func detachable(t *testing.T, l locker.Locker[struct{}],
	opts ...locker.Option,
) *locker.Guard[struct{}] {
	t.Helper()
	return mustLock(t, l, "k", append(opts, locker.Reentrant(backend.NewOwner()))...)
}

func detached(t *testing.T, g *locker.Guard[struct{}]) locker.Ticket {
	t.Helper()
	ticket, err := g.Detach()
	if err != nil {
		t.Fatalf("Detach = %v", err)
	}
	return ticket
}

// A hold goes from one guard to the next by a ticket that travels as JSON; in between the key stays
// locked, and nobody believes.
//
// covers: B4, B8
func TestDetachAndAdopt(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 9 * time.Second, Namespace: "ns"},
		func(t *testing.T, l *locker.Client[struct{}]) {
			first := detachable(t, l)
			work := first.Context()
			text, err := json.Marshal(detached(t, first))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := first.Value(); !errors.Is(err, locker.ErrUnlocked) ||
				!errors.Is(context.Cause(work), locker.ErrUnlocked) {
				t.Errorf("after Detach: Value = %v, the context's cause = %v", err,
					context.Cause(work))
			}
			if _, err := first.Detach(); !errors.Is(err, locker.ErrUnlocked) {
				t.Errorf("a second Detach = %v", err)
			}
			if err := first.Unlock(); err != nil {
				t.Errorf("Unlock after Detach = %v", err)
			}
			wantHeld(t, b, "ns~k", true)
			time.Sleep(5 * time.Second)
			if n := b.renews.Load(); n != 0 {
				t.Errorf("%d renewals", n)
			}

			var ticket locker.Ticket
			if err := json.Unmarshal(text, &ticket); err != nil {
				t.Fatal(err)
			}
			second, err := l.Adopt(t.Context(), ticket)
			if err != nil {
				t.Fatalf("Adopt = %v", err)
			}
			if ticket.Key != "k" || second.Hold().Key != "k" ||
				second.Hold().Token != first.Hold().Token || ticket.Token != first.Hold().Token {
				t.Errorf("adopted %+v of %+v by %s", second.Hold(), first.Hold(), text)
			}
			time.Sleep(time.Minute) // it is renewed as any other
			if err := second.Check(t.Context()); err != nil {
				t.Errorf("Check = %v", err)
			}
			_, err = l.Adopt(t.Context(), ticket)
			wantErr(t, err, locker.ErrLost, locker.ErrNotAcquired)
			third, err := l.Adopt(t.Context(), detached(t, second))
			if err != nil {
				t.Fatalf("Adopt of what was adopted = %v", err)
			}
			if err := third.Unlock(); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			wantHeld(t, b, "ns~k", false)
		})
}

// Of many who have the ticket one gets the guard, and what the others asked for is gone.
func TestAdoptOnce(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 9 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			ticket := detached(t, detachable(t, l))
			guards := make(chan *locker.Guard[struct{}], 10)
			for range cap(guards) {
				go func() {
					g, err := l.Adopt(t.Context(), ticket)
					if err != nil && !errors.Is(err, locker.ErrLost) {
						t.Errorf("Adopt = %v", err)
					}
					guards <- g
				}()
			}
			adopted := 0
			var winner *locker.Guard[struct{}]
			for range cap(guards) {
				if g := <-guards; g != nil {
					adopted++
					winner = g
				}
			}
			if adopted != 1 {
				t.Errorf("%d have adopted one ticket", adopted)
			}
			if err := winner.Unlock(); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			wantHeld(t, b, "k", false)
		})
}

// A ticket is good until the lease ends, whoever has the key then.
func TestAdoptTooLate(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 9 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			ticket := detached(t, detachable(t, l))
			if left := time.Until(ticket.Until); left < 8*time.Second || left > 9*time.Second {
				t.Errorf("a ticket for %v", left)
			}
			other := mustLock(t, l, "k") // as soon as the lease has ended
			if left := time.Until(ticket.Until); left > 0 {
				t.Errorf("locked %v before the end of a hold that is detached", left)
			}
			_, err := l.Adopt(t.Context(), ticket)
			wantErr(t, err, locker.ErrLost)
			if err := other.Unlock(); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			_, err = l.Adopt(t.Context(), ticket)
			wantErr(t, err, locker.ErrLost)
			wantHeld(t, b, "k", false)
		})
}

// Without an answer nobody believes, and the key is free after the lease at the latest.
func TestAdoptUnanswered(t *testing.T) {
	for _, executed := range []bool{false, true} {
		b := hook()
		var silent atomic.Bool
		b.release = func(ctx context.Context, c backend.Claim) error {
			if silent.CompareAndSwap(true, false) {
				if executed {
					_, _ = b.Backend.Release(ctx, c)
				}
				return errSilence
			}
			return storetest.Release(ctx, b.Backend, c)
		}
		bubble(t, b, locker.Config{TTL: 9 * time.Second},
			func(t *testing.T, l *locker.Client[struct{}]) {
				ticket := detached(t, detachable(t, l))
				silent.Store(true)
				g, err := l.Adopt(t.Context(), ticket)
				if g != nil || errors.Is(err, locker.ErrLost) ||
					backend.AnswerOf(err) != backend.Unknown {
					t.Fatalf("Adopt without an answer = %v, %v", g, err)
				}
				wantHeld(t, b, "k", !executed)
				g, err = l.Adopt(t.Context(), ticket)
				if executed {
					wantErr(t, err, locker.ErrLost)
					return
				}
				if err != nil {
					t.Fatalf("Adopt again = %v", err)
				}
				if err := g.Unlock(); err != nil {
					t.Errorf("Unlock = %v", err)
				}
			})
	}
}

// What a guard protects is closed when there is a ticket. If that fails, the lock is released.
func TestDetachCloses(t *testing.T) {
	for _, fails := range []error{nil, errors.New("disk full")} {
		b := hook()
		open := 0
		bubble(t, b, locker.Config{TTL: 9 * time.Second},
			func(t *testing.T, _ *locker.Client[struct{}]) {
				l, err := locker.New(b, locker.Scoped(
					func(context.Context, locker.Hold) (struct{}, error) {
						open++
						return struct{}{}, nil
					},
					func(struct{}) error {
						open--
						return fails
					}), locker.Config{TTL: 9 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				g := detachable(t, l)
				_, err = g.Detach()
				if open != 0 || !errors.Is(err, fails) {
					t.Errorf("Detach = %v, want %v; %d are open", err, fails, open)
				}
				wantHeld(t, b, "k", fails == nil)
				if err := g.Unlock(); !errors.Is(err, fails) {
					t.Errorf("Unlock = %v, want %v", err, fails)
				}
			})
	}
}

// What cannot be detached, or adopted, is refused, and stays as it was.
func TestDetachRefuses(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{TTL: 9 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			_, err := g.Detach()
			wantErr(t, err, errors.ErrUnsupported)
			if err := g.Check(t.Context()); err != nil {
				t.Errorf("Check = %v", err)
			}
			if err := g.Unlock(); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			_, err = g.Detach()
			wantErr(t, err, errors.ErrUnsupported)
			_, err = (*locker.Guard[struct{}])(nil).Detach()
			wantErr(t, err, locker.ErrUnlocked)

			g = detachable(t, l, locker.MaxHold(time.Second))
			time.Sleep(2 * time.Second)
			_, err = g.Detach()
			wantErr(t, err, locker.ErrMaxHold)
			wantErr(t, g.Unlock(), locker.ErrMaxHold)

			for _, bad := range []locker.Ticket{
				{},
				{Key: "k", Owner: "o", TTL: time.Second},
				{Key: "k", Hold: "h", TTL: time.Second},
				{Key: "k", Owner: "o", Hold: "h"},
				{Owner: "o", Hold: "h", TTL: time.Second},
			} {
				_, err = l.Adopt(t.Context(), bad)
				wantErr(t, err, backend.ErrInvalid)
			}
			wantHeld(t, b, "k", false)
		})
	p := plain()
	bubble(t, p, locker.Config{TTL: 9 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			_, err := l.Adopt(t.Context(),
				locker.Ticket{Key: "k", Owner: "o", Hold: "h", TTL: 9 * time.Second})
			wantErr(t, err, errors.ErrUnsupported)
		})
}

// A renewal that is under way ends before there is a ticket, and none follows.
//
// covers: B8
func TestDetachWhileRenewing(t *testing.T) {
	b := hook()
	var under atomic.Int64
	b.renew = func(ctx context.Context, c backend.Claim) error {
		under.Add(1)
		defer under.Add(-1)
		<-ctx.Done()
		return ctx.Err()
	}
	bubble(t, b, locker.Config{TTL: 9 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := detachable(t, l)
			for under.Load() == 0 {
				time.Sleep(time.Millisecond)
			}
			ticket := detached(t, g)
			if n := under.Load(); n != 0 {
				t.Errorf("%d renewals are under way", n)
			}
			n := b.renews.Load()
			g, err := l.Adopt(t.Context(), ticket)
			if err != nil || b.renews.Load() != n {
				t.Fatalf("Adopt = %v, after %d renewals", err, b.renews.Load()-n)
			}
			_ = g.Unlock()
		})
}

// A lease that was handed over by the store's queue is short until it is renewed. What is detached
// then lasts for its TTL all the same; if the store does not confirm that, it is not detached, and
// goes on.
//
// covers: B4
func TestDetachAfterAHandOver(t *testing.T) {
	for name, silent := range map[string]bool{"renewed": false, "not confirmed": true} {
		t.Run(name, func(t *testing.T) {
			const ttl = 10 * time.Minute
			b := hook()
			var down atomic.Bool
			b.renew = func(ctx context.Context, c backend.Claim) error {
				if down.Load() {
					return errors.New("no answer")
				}
				return b.Backend.Renew(ctx, c)
			}
			bubble(t, b, locker.Config{TTL: ttl}, func(t *testing.T, l *locker.Client[struct{}]) {
				before := mustLock(t, l, "k")
				other, err := locker.New(b, locker.Bare, locker.Config{TTL: ttl})
				storetest.Want(t, "New", err, nil)
				next := make(chan *locker.Guard[struct{}])
				go func() { next <- detachable(t, other) }()
				synctest.Wait() // it waits in the queue
				storetest.Want(t, "Unlock", before.Unlock(), nil)
				g := <-next
				if left := time.Until(g.Until()); left > ttl/2 {
					t.Errorf("handed over for %v, which shows nothing", left)
				}
				if silent {
					down.Store(true)
					if _, err := g.Detach(); err == nil || errors.Is(err, locker.ErrLost) {
						t.Errorf("Detach that the store does not confirm = %v", err)
					}
					down.Store(false)
					_, err := g.Value()
					storetest.Want(t, "Value after it", err, nil)
					storetest.Want(t, "Unlock", g.Unlock(), nil)
				} else if left := time.Until(detached(t, g).Until); left < ttl/2 {
					t.Errorf("detached for %v, want half of the TTL at least", left)
				}
				time.Sleep(ttl / 2)
				wantHeld(t, b, "k", !silent)
				storetest.Want(t, "Shutdown", other.Shutdown(t.Context()), nil)
			})
		})
	}
}

// An Adopt whose ctx ends comes back then, though the store is silent, and what it was granted is
// released behind it.
//
// covers: E2, W7
func TestAdoptComesBackWithItsCaller(t *testing.T) {
	b, _, release := switchable()
	bubble(t, b, locker.Config{TTL: time.Minute},
		func(t *testing.T, l *locker.Client[struct{}]) {
			ticket := detached(t, detachable(t, l))
			release(func(ctx context.Context, _ backend.Claim) error {
				<-ctx.Done()
				return ctx.Err()
			})
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			began := time.Now()
			g, err := l.Adopt(ctx, ticket)
			wantErr(t, err, locker.ErrNotAcquired, context.DeadlineExceeded)
			if took := time.Since(began); g != nil || took > time.Second+100*time.Millisecond {
				t.Errorf("Adopt = %v after %v, want nothing after 1.1s at most", g, took)
			}
			release(nil)
			time.Sleep(10 * time.Second)
			if g, err = l.Adopt(t.Context(), ticket); err != nil {
				t.Fatalf("Adopt again = %v", err)
			}
			if err := g.Unlock(); err != nil {
				t.Errorf("Unlock = %v", err)
			}
			wantHeld(t, b, "k", false)
		})
}
