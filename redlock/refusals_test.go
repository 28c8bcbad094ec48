package redlock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/redlock"
)

// refusing has the first n peers refuse every verb, as where the key is no lock, until it is called
// again with 0.
func (q *quorum) refusing(n int) {
	for i, p := range q.peers {
		p.set(func() { p.refuse, p.why = i < n, backend.ErrForeign })
	}
}

// One node that refuses for good is in nobody's way. A majority of them refuses for good: the
// answer is their reason, not that a hold is lost nor that there is no answer, and of the claim
// there is nothing on the others.
//
// covers: Q1, A9
func TestMajorityThatRefuses(t *testing.T) {
	for n := 1; n <= 3; n++ {
		t.Run(fmt.Sprint(n, " of 3"), func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
				held := claim("held")
				q.acquire(held)
				synctest.Wait()
				q.refusing(n)
				c := claim("k")
				_, acquired := q.TryAcquire(q.Context(), c)
				renewed := q.Renew(q.Context(), held)
				for verb, err := range map[string]error{"TryAcquire": acquired, "Renew": renewed} {
					switch {
					case n == 1 && err != nil:
						q.Errorf("%s beside one node that refuses = %v", verb, err)
					case n > 1 && (!errors.Is(err, backend.ErrForeign) || !backend.Refused(err) ||
						errors.Is(err, backend.ErrLost) || errors.Is(err, backend.ErrUnavailable)):
						q.Errorf("%s = %v, want what the nodes say", verb, err)
					}
				}
				if got := q.holders("k"); n > 1 && got != 0 {
					q.Errorf("what was refused is held on %d nodes", got)
				}
				q.refusing(0)
				if err := q.Renew(q.Context(), held); err != nil {
					q.Errorf("Renew when all serve again = %v", err)
				}
			})
		})
	}
}

// A node without an answer and one that refuses say together neither: the caller asks again.
//
// covers: Q1, A3
func TestRefusedBesideNoAnswer(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: 100 * time.Millisecond}, func(q *quorum) {
		q.refusing(1)
		q.peers[1].set(func() { q.peers[1].hang = true })
		if _, err := q.TryAcquire(q.Context(), claim("k")); err == nil || backend.Refused(err) ||
			errors.Is(err, backend.ErrHeld) {
			q.Errorf("TryAcquire = %v, want an error that is not for good", err)
		}
	})
}

// A deafened peer is one whose Watch is this one.
type deafened struct {
	*peer
	watch func(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error)
}

func (d deafened) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	return d.watch(ctx, c)
}

// A watch is there while a majority is subscribed: without one node it wakes all the same, and
// without two of three it says so, whether they refuse, do not answer in time, or end.
//
// covers: W12, W13
func TestWatchGoesByTheMajority(t *testing.T) {
	errDeaf := errors.New("no subscriptions today")
	for name, of := range map[string]struct {
		watch func(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error)
		ends  bool // when it has begun
	}{
		"an error": {func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
			return nil, errDeaf
		}, false},
		"no answer": {func(ctx context.Context, _ backend.Claim) (<-chan backend.Wake, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, false},
		"late": {func(ctx context.Context, _ backend.Claim) (<-chan backend.Wake, error) {
			<-ctx.Done()
			return make(chan backend.Wake), nil
		}, false},
		"ends": {func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
			wakes := make(chan backend.Wake)
			time.AfterFunc(time.Second, func() { close(wakes) })
			return wakes, nil
		}, true},
	} {
		for n := 1; n <= 2; n++ {
			t.Run(fmt.Sprint(name, " on ", n), func(t *testing.T) {
				quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
					nodes := []backend.Backend{q.peers[0], q.peers[1], q.peers[2]}
					for i := range n {
						nodes[i] = deafened{q.peers[i], of.watch}
					}
					b, err := redlock.New(nodes, redlock.Config{})
					if err != nil {
						q.Fatal(err)
					}
					defer b.Close()
					c := claim("k")
					q.acquire(c)
					ctx, cancel := context.WithCancel(q.Context())
					defer cancel()
					wakes, err := b.Watch(ctx, claim("k"))
					if n == 2 && !of.ends {
						if backend.AnswerOf(err) != backend.Unknown ||
							errors.Is(err, context.Canceled) ||
							(name == "an error") != errors.Is(err, errDeaf) {
							q.Errorf("Watch = %v, want why two nodes have no subscription", err)
						}
						return
					}
					if err != nil {
						q.Fatalf("Watch = %v", err)
					}
					time.Sleep(2 * time.Second)
					synctest.Wait()
					if n == 2 {
						if _, open := <-wakes; open {
							q.Error("woken, want the end of the watch: one node of three " +
								"is no majority")
						}
						return
					}
					q.release(c)
					if _, open := <-wakes; !open {
						q.Error("the watch ended, though two nodes of three go on")
					}
				})
			})
		}
	}
}
