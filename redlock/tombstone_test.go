package redlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/redlock"
)

const nodeTimeout = 100 * time.Millisecond

// refusesLate delivers the acquires that p got no answer for, n of them, after all that is in
// flight: none may take the key.
func (q *quorum) refusesLate(p *peer, n int) {
	q.Helper()
	synctest.Wait()
	got, err := p.deliver()
	if got != n {
		q.Fatalf("%d acquires were late, want %d", got, n)
	}
	wantErr(q, "an acquire that arrives after the release", err, backend.ErrLost)
	if held := q.holders("k"); held != 0 {
		q.Errorf("held on %d nodes after the release", held)
	}
}

// The caller's attempts were all answered, by a majority; on one node an attempt of the quorum's
// own was not, and may arrive after the release. A release without a tombstone there leaves a lock
// that nobody knows of.
// covers: A10, C4, C9
func TestReleaseWhereAnAttemptIsLate(t *testing.T) {
	for name, during := range map[string]func(q *quorum, late *peer, c backend.Claim){
		"of the acquisition": func(q *quorum, late *peer, c backend.Claim) {
			late.set(func() { late.late = true })
			q.acquire(c)
		},
		"of a repeat that was refused": func(q *quorum, late *peer, c backend.Claim) {
			late.set(func() { late.late = true })
			q.acquire(c)
			time.Sleep(2 * nodeTimeout)
			late.set(func() { late.late = false })
			other := claim("k") // so that the repeat gets a definite no from the node
			q.on(other, late)
			q.acquire(c)
			synctest.Wait()
			if _, err := late.Backend.Release(q.Context(), other); err != nil {
				q.Fatal(err)
			}
		},
		"of the acquisition, and the node is filled in": func(q *quorum, late *peer,
			c backend.Claim,
		) {
			late.set(func() { late.late = true })
			q.acquire(c)
			time.Sleep(2 * nodeTimeout)
			late.set(func() { late.late = false })
			if err := q.Renew(q.Context(), c); err != nil {
				q.Fatal(err)
			}
			if n := q.holders("k"); n != 3 {
				q.Errorf("held on %d nodes after a renewal that all answer, want 3", n)
			}
		},
		"of a node that is filled in": func(q *quorum, late *peer, c backend.Claim) {
			q.acquire(c)
			synctest.Wait()
			_, _ = late.Backend.Release(q.Context(), c)
			late.set(func() { late.late = true })
			if err := q.Renew(q.Context(), c); err != nil {
				q.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
				late, c := q.peers[0], claim("k")
				during(q, late, c)
				time.Sleep(2 * nodeTimeout) // it was given up
				late.set(func() { late.late = false })
				q.release(c)
				q.refusesLate(late, 1)
			})
		})
	}
}

// A release that a node does not answer is made later. It then leaves a tombstone, whatever was
// known when it was asked for.
// covers: C4, Q14
func TestOwedReleaseLeavesTombstone(t *testing.T) {
	for name, answers := range map[string]bool{
		"in the first call": true,
		"when nobody asks":  false,
	} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
				p, c := q.peers[0], claim("k")
				q.acquire(c)
				synctest.Wait()
				p.set(func() { p.refuse = true })
				if !answers { // the node is skipped, and the release is owed from the start
					for range 5 {
						other := claim("other")
						q.acquire(other)
						q.release(other)
						synctest.Wait()
					}
				}
				q.release(c)
				synctest.Wait()
				p.set(func() { p.refuse = false; p.delayed = append(p.delayed, c) })
				time.Sleep(5 * time.Second) // until it has been probed
				if n := q.holders("k"); n != 0 {
					t.Fatalf("held on %d nodes", n)
				}
				q.refusesLate(p, 1)
			})
		})
	}
}

// A node that is to be filled in when it has answered a renewal is not, if the release has come
// before.
// covers: C9
func TestReleaseEndsFillIn(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		p, c := q.peers[0], claim("k")
		q.acquire(c)
		synctest.Wait()
		_, _ = p.Backend.Release(q.Context(), c)
		p.set(func() { p.stuck = "renew" })
		if err := q.Renew(q.Context(), c); err != nil {
			q.Fatal(err)
		}
		q.release(c)
		time.Sleep(time.Second)
		if n := q.holders("k"); n != 0 {
			q.Errorf("held on %d nodes after the release, which executed %v", n, p.executed())
		}
	})
}

// An attempt that comes to nothing is given back. Where it was not answered, that leaves a
// tombstone, and the claim goes on under another name there.
// covers: C4, C9
func TestGivenBackWhereAnAttemptIsLate(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		late, other, c := q.peers[0], claim("k"), claim("k")
		q.on(other, q.peers[1:]...)
		late.set(func() { late.late = true })
		_, err := q.TryAcquire(q.Context(), c)
		wantErr(q, "TryAcquire of a key that is held", err, backend.ErrHeld)
		time.Sleep(2 * nodeTimeout)
		late.set(func() { late.late = false })
		for _, p := range q.peers[1:] {
			if _, err := p.Backend.Release(q.Context(), other); err != nil {
				q.Fatal(err)
			}
		}
		synctest.Wait()
		q.refusesLate(late, 1)
		q.acquire(c)
		if n := q.holders("k"); n != 3 {
			q.Errorf("held on %d nodes, want all", n)
		}
		q.release(c)
		if n := q.holders("k"); n != 0 {
			q.Errorf("held on %d nodes after the release", n)
		}
	})
}

// A claim that asks seldom, as one that waits for a wake-up does, goes on under its other names as
// long as nodes have tombstones of those before.
// covers: C4, C9
func TestGivenBackAndAskedForMuchLater(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		c, other := claim("k"), claim("k")
		c.TTL = time.Second
		q.on(other, q.peers...)
		for _, p := range q.peers[:2] { // on each, one attempt has no answer
			p.set(func() { p.late = true })
			_, err := q.TryAcquire(q.Context(), c)
			wantErr(q, "TryAcquire of a key that is held", err, backend.ErrHeld)
			time.Sleep(2 * nodeTimeout)
			p.set(func() { p.late = false })
		}
		for _, p := range q.peers {
			if _, err := p.Backend.Release(q.Context(), other); err != nil {
				q.Fatal(err)
			}
		}
		time.Sleep(10 * time.Second)
		q.acquire(c)
		q.release(c)
	})
}

// A client that did not make the attempts does not know whether all were answered on each node.
// covers: C4, C9
func TestReleaseOfAnothersClaim(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		late, c := q.peers[0], claim("k")
		late.set(func() { late.late = true })
		q.acquire(c)
		time.Sleep(2 * nodeTimeout)
		late.set(func() { late.late = false })
		another := q.client(redlock.Config{NodeTimeout: nodeTimeout})
		defer another.Close()
		if _, err := another.Release(q.Context(), c); err != nil {
			q.Fatal(err)
		}
		q.refusesLate(late, 1)
	})
}

// A refused attempt of a claim is under way on a slow node when the claim is asked for again, and
// granted by that node and another. What the first attempt got there was given back before, and not
// what the second one has.
//
// covers: C9, Q1
func TestGivenBackBeforeTheNextAttempt(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		other, c, slow := claim("k"), claim("k"), q.peers[2]
		q.on(other, q.peers[:2]...)
		slow.set(func() { slow.slow = nodeTimeout / 4 })
		_, err := q.TryAcquire(q.Context(), c)
		wantErr(q, "TryAcquire beside another's majority", err, backend.ErrHeld)
		for _, p := range q.peers[:2] {
			wantErr(q, "Release", storetest.Release(q.Context(), p.Backend, other), nil)
		}
		q.peers[1].set(func() { q.peers[1].refuse = true })
		c.NoneInFlight = false
		q.acquire(c)
		if n := q.holders("k"); n != 2 {
			q.Errorf("granted, and held on %d nodes, want on two", n)
		}
	})
}

// An acquire that is queued behind an earlier request to a slow node is not sent once its attempt
// has failed or the claim is released: nobody would give back what it is granted.
// covers: C9
func TestQueuedAcquireIsDropped(t *testing.T) {
	for name, granted := range map[string]bool{"when refused": false, "when released": true} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{NodeTimeout: time.Second}, func(q *quorum) {
				slow, c, other := q.peers[0], claim("k"), claim("k")
				slow.set(func() { slow.slow = 300 * time.Millisecond })
				q.on(other, q.peers[1:]...)
				_, err := q.TryAcquire(q.Context(), c)
				wantErr(q, "TryAcquire", err, backend.ErrHeld)
				left := 2
				if granted {
					for _, p := range q.peers[1:] {
						_, _ = p.Backend.Release(q.Context(), other)
					}
					q.acquire(c)
					q.release(c)
					left = 0
				} else {
					_, err = q.TryAcquire(q.Context(), c)
					wantErr(q, "the repeat", err, backend.ErrHeld)
				}
				time.Sleep(2 * time.Second)
				if v := slow.executed(); len(v) != 2 || v[0] != "acquire" || v[1] != "release" {
					q.Errorf("the slow node executed %v, want one acquire and its release", v)
				}
				if n := q.holders("k"); n != left {
					q.Errorf("held on %d nodes, want %d", n, left)
				}
			})
		})
	}
}

// A majority has granted, and has yet to store the token, when another call for the same claim
// begins. So the nodes are not told of the token, and the attempt is no yes: it ends without an
// answer, and Close with it.
//
// covers: A4, Q14, K3
func TestAttemptThatAnotherCallCutsShort(t *testing.T) {
	for name, verb := range map[string]func(q *quorum, c backend.Claim) error{
		"Release": func(q *quorum, c backend.Claim) error {
			_, err := q.Release(q.Context(), c)
			return err
		},
		"Renew": func(q *quorum, c backend.Claim) error { return q.Renew(q.Context(), c) },
	} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
				c := claim("k")
				c.NoneInFlight = false
				q.ahead(q.peers[1])
				q.peers[1].set(func() { q.peers[1].slow = nodeTimeout / 2 })
				q.peers[2].set(func() { q.peers[2].hang = true })
				answer := make(chan error, 1)
				go func() {
					_, err := q.TryAcquire(q.Context(), c)
					answer <- err
				}()
				synctest.Wait() // the first node has granted a low token
				_ = verb(q, c)  // and the second grants a high one
				select {
				case err := <-answer:
					if backend.AnswerOf(err) != backend.Unknown {
						q.Errorf("TryAcquire beside %s = %v, want no answer", name, err)
					}
				case <-time.After(time.Minute):
					q.Fatalf("TryAcquire beside %s has not returned within a minute", name)
				}
				q.peers[2].set(func() { q.peers[2].hang = false })
				_, _ = q.Release(q.Context(), c)
				time.Sleep(5 * time.Second)
				if n := q.holders("k"); n != 0 {
					q.Errorf("held on %d nodes after the release", n)
				}
			})
		})
	}
}

// A release without an answer is repeated: what each node said to the first one counts, a yes and a
// no alike.
// covers: C4
func TestReleaseIsRepeated(t *testing.T) {
	for name, test := range map[string]struct {
		lapsed int // the last nodes, where the hold is over
		want   error
	}{"held until now": {1, nil}, "not held": {2, backend.ErrLost}} {
		t.Run(name, func(t *testing.T) {
			quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
				c, hung := claim("k"), q.peers[1]
				q.acquire(c)
				synctest.Wait()
				for _, p := range q.peers[3-test.lapsed:] {
					_, _ = p.Backend.Release(q.Context(), c)
				}
				hung.set(func() { hung.hang = true })
				if _, err := q.Release(q.Context(), c); backend.AnswerOf(err) != backend.Unknown {
					q.Fatalf("Release with one node of three each way = %v, want an unknown answer",
						err)
				}
				hung.set(func() { hung.hang = false })
				if _, err := q.Release(q.Context(), c); !errors.Is(err, test.want) {
					q.Errorf("the repeat = %v, want %v", err, test.want)
				}
				wantErr(q, "Release once more", storetest.Release(q.Context(), q, c),
					backend.ErrLost)
			})
		})
	}
}

// A node that comes after the majority may have given a higher token. It keeps the hold, and
// whoever repeats the claim is told the token that was agreed on, whichever nodes answer.
// covers: K1, K3
func TestRepeatTellsTheSameToken(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: time.Second}, func(q *quorum) {
		q.ahead(q.peers[0])
		q.peers[0].set(func() { q.peers[0].slow = 100 * time.Millisecond })
		c := claim("k")
		g := q.acquire(c)
		time.Sleep(time.Second)
		if n := q.holders("k"); n != 3 {
			q.Errorf("held on %d nodes, want all", n)
		}
		q.peers[0].set(func() { q.peers[0].slow = 0 })
		for _, p := range q.peers[1:] {
			p.set(func() { p.slow = 50 * time.Millisecond })
		}
		if again := q.acquire(c); again.Token != g.Token {
			q.Errorf("the repeat was granted token %d, want %d", again.Token, g.Token)
		}
		q.release(c)
		if n := q.holders("k"); n != 0 {
			q.Errorf("held on %d nodes after the release", n)
		}
	})
}

// A grant that is over is not told again, but asked for anew.
// covers: K1, K3
func TestRepeatOfALostGrant(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		c, next := claim("k"), claim("k")
		g := q.acquire(c)
		time.Sleep(c.TTL + time.Second)
		q.acquire(next)
		_, err := q.TryAcquire(q.Context(), c)
		wantErr(t, "the repeat while another holds", err, backend.ErrHeld)
		q.release(next)
		if again := q.acquire(c); again.Token <= g.Token {
			q.Errorf("token %d when it is free, after %d", again.Token, g.Token)
		}
		q.release(c)
	})
}

// A node that holds is asked to release although it is behind the others, if without it there is no
// majority.
// covers: Q14
func TestReleaseNeedsABusyNode(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		away, busy, c := q.peers[0], q.peers[1], claim("k")
		away.set(func() { away.refuse = true })
		q.acquire(c)
		synctest.Wait()
		away.set(func() { away.refuse = false })
		busy.set(func() { busy.slow = 50 * time.Millisecond })
		for range 40 { // its backlog
			go func() { _, _ = q.TryAcquire(q.Context(), claim("other")) }()
		}
		synctest.Wait()
		q.release(c)
	})
}

// So it is beside a node whose grant is still to come: that may turn out to be a refusal.
// covers: Q14
func TestReleaseNeedsABusyNodeBesideAnAttempt(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		late, busy, c := q.peers[0], q.peers[1], claim("k")
		if _, err := late.Backend.TryAcquire(q.Context(), claim("k")); err != nil {
			q.Fatal(err)
		}
		late.set(func() { late.slow = 40 * time.Millisecond })
		q.acquire(c)
		synctest.Wait()
		late.set(func() { late.slow = 0 })
		busy.set(func() { busy.slow = 50 * time.Millisecond })
		for range 40 { // its backlog
			go func() { _, _ = q.TryAcquire(q.Context(), claim("other")) }()
		}
		synctest.Wait()
		q.release(c)
	})
}

// A node that refuses a release is told again behind the caller. So nobody knows whether a release
// that had no majority is yet to be executed: that it does not hold, said to a repeat, is no loss.
// covers: Q14, C4
func TestReleaseThatIsOwedIsUnknown(t *testing.T) {
	quorumTest(t, 3, redlock.Config{NodeTimeout: nodeTimeout}, func(q *quorum) {
		refuses, lapsed, c := q.peers[0], q.peers[2], claim("k")
		q.acquire(c)
		synctest.Wait()
		if err := storetest.Release(q.Context(), lapsed.Backend, c); err != nil {
			q.Fatal(err)
		}
		refuses.set(func() { refuses.refuse = true })
		if _, err := q.Release(q.Context(), c); backend.AnswerOf(err) != backend.Unknown {
			q.Errorf("Release beside a node that refuses it = %v, want an unknown answer", err)
		}
		refuses.set(func() { refuses.refuse = false })
		time.Sleep(5 * time.Second)
		if n := q.holders("k"); n != 0 {
			q.Errorf("%d holds left 5s after the node serves again", n)
		}
	})
}

// A quorum has no line, so readers would keep a writer out for as long as they come: it does not
// take any.
// covers: Q13
func TestSharedIsRefused(t *testing.T) {
	quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
		c := claim("k")
		c.Mode = backend.Shared
		_, err := q.TryAcquire(q.Context(), c)
		if !backend.Refused(err) || err.Error() != "redlock: Shared is not supported" {
			q.Errorf("TryAcquire of a shared claim = %v, want a refusal", err)
		}
		for _, p := range q.peers {
			if n := p.count(); n != 0 {
				q.Errorf("a node was asked %d times", n)
			}
		}
	})
}
