package backendtest_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A counter notes what reaches the store, and when.
type counter struct {
	backend.Backend
	mu                 sync.Mutex
	acquired, released []time.Time
}

func (c *counter) note(to *[]time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	*to = append(*to, time.Now())
}

func (c *counter) TryAcquire(ctx context.Context, claim backend.Claim) (backend.Grant, error) {
	c.note(&c.acquired)
	return c.Backend.TryAcquire(ctx, claim)
}

func (c *counter) Release(ctx context.Context, claim backend.Claim) (backend.Released, error) {
	c.note(&c.released)
	return c.Backend.Release(ctx, claim)
}

// acquires is how many attempts were executed.
func (c *counter) acquires() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.acquired)
}

func claim() backend.Claim {
	return backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Minute}
}

// under runs f in a bubble on a store of its own behind faults.
func under(t *testing.T, f backendtest.Faults,
	do func(t *testing.T, fb *backendtest.FaultyBackend, store *counter),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		store := &counter{Backend: membackend.New()}
		fb := backendtest.FaultyWith(store, 1, f)
		do(t, fb, store)
		if err := fb.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
}

func TestLateIsExecutedBehindTheCaller(t *testing.T) {
	under(t, backendtest.Faults{Late: 1, Limit: time.Second},
		func(t *testing.T, fb *backendtest.FaultyBackend, store *counter) {
			start, c := time.Now(), claim()
			_, err := fb.TryAcquire(t.Context(), c)
			if !errors.Is(err, backendtest.ErrFault) || backend.AnswerOf(err) != backend.Unknown ||
				time.Since(start) != 0 {
				t.Errorf("TryAcquire = %v after %v, want an unknown answer at once", err,
					time.Since(start))
			}
			if store.acquires() != 0 {
				t.Error("executed before the caller was told")
			}
			fb.Settle()
			if late := time.Since(start); store.acquires() != 1 || late == 0 || late > time.Second {
				t.Errorf("executed %d times within %v, want once, late", store.acquires(), late)
			}
			if log := strings.Join(fb.Log(), "\n"); !strings.Contains(log, "TryAcquire 1") ||
				!strings.Contains(log, "late") {
				t.Errorf("the log says %q", log)
			}
		})
}

func TestLostReplyIsExecuted(t *testing.T) {
	under(t, backendtest.Faults{LoseReply: 1},
		func(t *testing.T, fb *backendtest.FaultyBackend, _ *counter) {
			c := claim()
			_, err := fb.TryAcquire(t.Context(), c)
			state, _ := fb.Inspect(t.Context(), "k")
			if !errors.Is(err, backendtest.ErrFault) || len(state.Holders) != 1 {
				t.Errorf("TryAcquire = %v, and %d hold; want an unknown answer to a grant", err,
					len(state.Holders))
			}
			if err := fb.Renew(t.Context(), c); !errors.Is(err, backendtest.ErrFault) {
				t.Errorf("Renew = %v", err)
			}
		})
}

func TestVanishedAndRefusedAreNotExecuted(t *testing.T) {
	for want, f := range map[error]backendtest.Faults{
		backendtest.ErrFault:   {Vanish: 1, Delay: time.Millisecond},
		backend.ErrUnavailable: {Refuse: 1, Delay: time.Millisecond},
	} {
		under(t, f, func(t *testing.T, fb *backendtest.FaultyBackend, store *counter) {
			_, err := fb.TryAcquire(t.Context(), claim())
			if !errors.Is(err, want) || store.acquires() != 0 {
				t.Errorf("TryAcquire = %v, executed %d times; want %v, and never", err,
					store.acquires(), want)
			}
			//nolint:errorlint // a key of the map
			if answer := backend.AnswerOf(
				err); (answer == backend.No) != (want == backend.ErrUnavailable) {
				t.Errorf("AnswerOf(%v) = %v", err, answer)
			}
			if _, err := fb.Watch(t.Context(), claim()); !errors.Is(err, want) {
				t.Errorf("Watch = %v", err)
			}
		})
	}
}

// A definite answer comes after the last execution, and says what the caller may rely on.
func TestTwice(t *testing.T) {
	f := backendtest.Faults{Twice: 1, Delay: 10 * time.Millisecond}
	under(t, f, func(t *testing.T, fb *backendtest.FaultyBackend, store *counter) {
		c := claim()
		if _, err := fb.TryAcquire(t.Context(), c); err != nil || store.acquires() != 2 {
			t.Errorf("TryAcquire = %v after %d executions, want a grant after 2", err,
				store.acquires())
		}
		if err := fb.Renew(t.Context(), c); err != nil {
			t.Errorf("Renew = %v", err)
		}
		if _, err := fb.Release(t.Context(), c); err != nil || len(store.released) != 2 {
			t.Errorf("Release = %v after %d executions, want nil after 2", err, len(store.released))
		}
		if gap := store.released[1].Sub(store.released[0]); gap <= 0 {
			t.Error("both executions at once")
		}
	})
}

func TestSlowOutlivesItsContext(t *testing.T) {
	f := backendtest.Faults{Slow: 1, Delay: time.Millisecond, Limit: 40 * time.Second}
	under(t, f, func(t *testing.T, fb *backendtest.FaultyBackend, store *counter) {
		for range 20 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			start := time.Now()
			_, err := fb.TryAcquire(ctx, claim())
			if took := time.Since(start); took > time.Second || err != nil && took == time.Second &&
				!errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("TryAcquire = %v after %v, with a ctx of 1s", err, took)
			}
			cancel()
		}
		executed := store.acquires()
		if executed == 20 {
			t.Fatal("nothing was late")
		}
		if err := fb.Close(); err != nil || store.acquires() != 20 {
			t.Errorf("Close = %v, after %d of 20 were executed: it must wait for what is late", err,
				store.acquires())
		}
		if _, err := fb.TryAcquire(t.Context(), claim()); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("TryAcquire after Close = %v", err)
		}
	})
}

// Late means within 1.5 TTL: tombstones last longer.
func TestLateIsBounded(t *testing.T) {
	f := backendtest.Faults{Late: 1, Limit: time.Hour}
	under(t, f, func(t *testing.T, fb *backendtest.FaultyBackend, _ *counter) {
		start := time.Now()
		for range 100 {
			c := claim()
			c.TTL = time.Second
			_, _ = fb.TryAcquire(t.Context(), c)
		}
		fb.Settle()
		if late := time.Since(start); late > 1500*time.Millisecond || late < time.Second {
			t.Errorf("the latest of a hundred was %v late, want up to 1.5s", late)
		}
	})
}

func TestWakeUps(t *testing.T) {
	cycle := func(t *testing.T, b backend.Backend) {
		t.Helper()
		c := claim()
		if _, err := b.TryAcquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	count := func(t *testing.T, f backendtest.Faults) (signals int) {
		t.Helper()
		under(t, f, func(t *testing.T, fb *backendtest.FaultyBackend, store *counter) {
			wake, err := fb.Watch(t.Context(), claim())
			if err != nil {
				t.Fatal(err)
			}
			for range 100 {
				cycle(t, store.Backend)
				time.Sleep(time.Second)
				select {
				case <-wake:
					signals++
				default:
				}
			}
			fb.EndFaults()
			cycle(t, store.Backend)
			time.Sleep(2 * time.Minute) // one may still be delayed
			if len(wake) != 1 {
				t.Error("lost a wake-up after the faults")
			}
		})
		return signals
	}
	if n := count(t, backendtest.Faults{}); n != 100 {
		t.Errorf("%d of 100 wake-ups without faults", n)
	}
	if n := count(t, backendtest.Faults{LoseWake: 0.5}); n < 30 || n > 70 {
		t.Errorf("%d of 100 wake-ups, half of which are to be lost", n)
	}
	if n := count(t, backendtest.Faults{DelayWake: 1, Limit: time.Minute}); n > 50 {
		t.Errorf("%d of 100 wake-ups came within a second, each up to a minute late", n)
	}
	if n := count(t, backendtest.Faults{LoseWake: 1, FalseWake: 2 * time.Second}); n < 20 ||
		n > 70 {
		t.Errorf("%d seconds of 100 with a false wake-up, one in two seconds on average", n)
	}
}

// The same seed does the same to the same calls; another does something else.
func TestSeedDecides(t *testing.T) {
	story := func(seed uint64) (log []string) {
		synctest.Test(t, func(t *testing.T) {
			fb := backendtest.FaultyWith(membackend.New(), seed,
				backendtest.Swarm(seed, time.Millisecond))
			for i := range 200 {
				c := backend.Claim{Key: "k", Owner: fmt.Sprint(i), TTL: time.Minute}
				_, err := fb.TryAcquire(t.Context(), c)
				log = append(log, fmt.Sprint(err),
					fmt.Sprint(storetest.Release(t.Context(), fb, c)))
			}
			log = append(log, fb.Log()...)
			if err := fb.Close(); err != nil {
				t.Error(err)
			}
		})
		return log
	}
	different := 0
	for seed := range uint64(10) {
		if !slices.Equal(story(seed), story(seed)) {
			t.Errorf("seed %d has two stories", seed)
		}
		if !slices.Equal(story(seed), story(seed+1)) {
			different++
		}
	}
	if different < 8 {
		t.Errorf("only %d of 10 neighbouring seeds differ", different)
	}
}

func TestFaultyByDefault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failed := 0
		for seed := range uint64(50) {
			b := backendtest.Faulty(membackend.New(), seed)
			for range 20 {
				if _, err := b.TryAcquire(t.Context(), claim()); errors.Is(err,
					backendtest.ErrFault) {
					failed++
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}
		if failed < 50 {
			t.Errorf("%d of 1000 requests failed", failed)
		}
	})
}

// TestUnansweredReleaseTellsNothing: who waited comes with a yes alone.
func TestUnansweredReleaseTellsNothing(t *testing.T) {
	for _, lost := range []bool{false, true} {
		faults := backendtest.Faults{}
		if lost {
			faults.LoseReply = 1
		}
		under(t, faults, func(t *testing.T, fb *backendtest.FaultyBackend, store *counter) {
			holder, waiter := claim(), claim()
			waiter.Queue, waiter.WaiterTTL, waiter.Meta.PID = true, time.Minute, 4711
			if _, err := store.Backend.TryAcquire(t.Context(), holder); err != nil {
				t.Fatal(err)
			}
			if _, err := store.Backend.TryAcquire(t.Context(), waiter); !errors.Is(err,
				backend.ErrHeld) {
				t.Fatal(err)
			}
			told, err := fb.Release(t.Context(), holder)
			if want := (backend.Released{Waiting: 1, Next: waiter.Meta}); (err != nil) != lost ||
				lost && told != (backend.Released{}) || !lost && told != want {
				t.Errorf("reply lost: %v: the release told of %+v, %v", lost, told, err)
			}
		})
	}
}
