package locker_test

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
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// deadlocks is an Observer that keeps the cycles it is told of, by whose wait it was: the key
// waited for.
type deadlocks struct {
	mu   sync.Mutex
	told map[string][]locker.Event
}

func (d *deadlocks) Begin(ctx context.Context, _ string,
	_ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	return ctx, func(locker.Hold, error) {}
}

func (d *deadlocks) Event(_ context.Context, e locker.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if e.Kind == locker.EventDeadlock {
		d.told[e.Cycle[0].For] = append(d.told[e.Cycle[0].For], e)
	}
}

// all returns the number of events, and of waits that had one.
func (d *deadlocks) all() (events, waits int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, e := range d.told {
		events += len(e)
	}
	return events, len(d.told)
}

// A ring is callers that each hold a key and wait for that of the next.
type ring struct {
	*deadlocks
	clients []*locker.Client[struct{}]
	guards  []*locker.Guard[struct{}]
	errs    []error
	waits   sync.WaitGroup
}

// newRing has n callers lock a key each: k0 first, so that the last has the greatest token of those
// whose store has one clock. of makes what each is a client of.
func newRing(t *testing.T, n int, cfg locker.Config, of func(i int) backend.Backend) *ring {
	t.Helper()
	r := &ring{deadlocks: &deadlocks{told: map[string][]locker.Event{}}, errs: make([]error, n)}
	cfg.Observer, cfg.Service = r.deadlocks, "ring"
	for i := range n {
		r.clients = append(r.clients, another(t, of(i), cfg))
		r.guards = append(r.guards, mustLock(t, r.clients[i], fmt.Sprint("k", i)))
	}
	return r
}

// wait has caller i wait for the key of the next; it unlocks whatever comes of it.
func (r *ring) wait(i int, opts ...locker.Option) {
	r.waits.Go(func() {
		g, err := r.clients[i].Lock(r.guards[i].Context(), fmt.Sprint("k", (i+1)%len(r.guards)),
			opts...)
		r.errs[i] = err
		_ = g.Unlock()
		_ = r.guards[i].Unlock()
	})
}

// victims returns who failed with ErrDeadlock, and fails if somebody did with anything else.
func (r *ring) victims(t *testing.T) (all []int) {
	t.Helper()
	for i, err := range r.errs {
		if errors.Is(err, locker.ErrDeadlock) {
			all = append(all, i)
			wantErr(t, err, locker.ErrNotAcquired)
		} else if err != nil {
			t.Errorf("caller %d: %v", i, err)
		}
	}
	return all
}

// close ends the clients, which leave nothing in the store.
func (r *ring) close(t *testing.T, b backend.Backend) {
	t.Helper()
	r.waits.Wait()
	for _, c := range r.clients {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	for l, err := range b.List(t.Context(), "") {
		t.Errorf("left in the store: %+v, %v", l, err)
	}
}

// shared is one backend for all: those of one process.
func shared(b backend.Backend) func(int) backend.Backend {
	return func(int) backend.Backend { return b }
}

// each is a backend for each, which to this process are different stores: as if each were a
// process.
func each(b backend.Backend) func(int) backend.Backend {
	return func(int) backend.Backend { return &hooked{Backend: b} }
}

// covers: G9
func TestDeadlockInAProcessIsFoundAtOnce(t *testing.T) {
	for n := 2; n <= 3; n++ {
		for last := range n { // who closes the cycle
			synctest.Test(t, func(t *testing.T) {
				b := &inspecting{membackend.New(), func(key string) {
					t.Errorf("asked who holds %s", key)
				}}
				r := newRing(t, n, locker.Config{BreakDeadlocks: true}, shared(b))
				for i := range n - 1 {
					r.wait((last + 1 + i) % n)
				}
				time.Sleep(100 * time.Millisecond)
				if events, _ := r.all(); events != 0 {
					t.Errorf("%d events before there is a deadlock", events)
				}
				began := time.Now()
				r.wait(last)
				r.waits.Wait()
				if got := r.victims(t); !slices.Equal(got, []int{n - 1}) || time.Since(began) != 0 {
					t.Errorf("%v gave up after %v; want the one with the greatest token, at once",
						got, time.Since(began))
				}
				if events, waits := r.all(); events != n || waits != n {
					t.Errorf("%d events on %d waits, want one on each of %d", events, waits, n)
				}
				var broken *locker.DeadlockError
				if !errors.As(r.errs[n-1], &broken) || len(broken.Cycle) != n ||
					broken.Cycle[0].Holds != fmt.Sprint("k", n-1) ||
					broken.Cycle[0].For != "k0" || broken.Cycle[0].Who.Service != "ring" ||
					!strings.Contains(broken.Cycle[1].Where, "deadlock_test.go:") {
					t.Errorf("%v: %+v", r.errs[n-1], broken)
				}
				r.close(t, b)
			})
		}
	}
}

// Without BreakDeadlocks each wait tells once, and goes on.
func TestDeadlockIsToldOnce(t *testing.T) {
	for name, of := range map[string]func(backend.Backend) func(int) backend.Backend{
		"process": shared, "processes": each,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &hooked{Backend: membackend.New()}
				r := newRing(t, 3, locker.Config{}, of(b))
				for i := range 3 {
					r.wait(i, locker.WaitLimit(time.Minute))
				}
				time.Sleep(30 * time.Second)
				if events, waits := r.all(); events != 3 || waits != 3 {
					t.Errorf("%d events on %d waits, want 3 on 3", events, waits)
				}
				r.waits.Wait()
				for i, err := range r.errs {
					if err != nil {
						wantErr(t, err, context.DeadlineExceeded)
					}
					if errors.Is(err, locker.ErrDeadlock) {
						t.Errorf("caller %d: %v", i, err)
					}
				}
				r.close(t, b)
			})
		})
	}
}

// Those who wait are in processes of their own, of which each knows nothing of the others but by
// the store.
//
// covers: G9
func TestDeadlockAcrossProcesses(t *testing.T) {
	for n := 2; n <= 3; n++ {
		for last := range n { // who closes the cycle
			synctest.Test(t, func(t *testing.T) {
				b := membackend.New()
				r := newRing(t, n, locker.Config{BreakDeadlocks: true}, each(b))
				for i := range n {
					r.wait((last + 1 + i) % n)
					time.Sleep(700 * time.Millisecond)
				}
				began := time.Now()
				r.waits.Wait()
				if took := time.Since(began); took > 6*time.Second {
					t.Errorf("it took %v after the last came to find it and end it", took)
				}
				if got := r.victims(t); !slices.Equal(got, []int{n - 1}) {
					t.Errorf("%v gave up, want the one with the greatest token, %d", got, n-1)
				}
				if events, waits := r.all(); events != n || waits != n {
					t.Errorf("%d events on %d waits, want one on each of %d", events, waits, n)
				}
				r.close(t, b)
			})
		}
	}
}

// The victim is in another process than two of the three, who share a store in theirs.
func TestDeadlockOfTwoProcessesAndThreeCallers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		of := []backend.Backend{&hooked{Backend: b}, &hooked{Backend: b}}
		r := newRing(t, 3, locker.Config{BreakDeadlocks: true}, func(i int) backend.Backend {
			return of[i%2]
		})
		for i := range 3 {
			r.wait(i)
		}
		r.waits.Wait()
		if got := r.victims(t); !slices.Equal(got, []int{2}) {
			t.Errorf("%v gave up, want the one with the greatest token, 2", got)
		}
		r.close(t, b)
	})
}

// inspecting is a backend that calls looked before each Inspect.
type inspecting struct {
	backend.Backend
	looked func(key string)
}

func (i *inspecting) Inspect(ctx context.Context, key string) (backend.State, error) {
	i.looked(key)
	return i.Backend.Inspect(ctx, key)
}

// One of three lets go while another follows them: of what it holds, or of its wait. What is told
// was there, all of it, when each step had been read for the first time: so it is not told if that
// one let go before it was read again.
func TestNoDeadlockIfOneLetsGo(t *testing.T) {
	// Requests until then: six for three steps, two for the second reading of the first, and one
	// for each half of the second.
	for unlocks, readAgain := range map[bool]int{true: 6 + 2 + 1, false: 6 + 2 + 2} {
		for request := range readAgain + 2 {
			synctest.Test(t, func(t *testing.T) {
				b := membackend.New()
				asked, letGo := 0, func() {}
				looking := &inspecting{b, func(string) {
					if asked++; asked-1 == request {
						letGo()
					}
				}}
				r := newRing(t, 3, locker.Config{}, func(i int) backend.Backend {
					if i == 2 {
						return looking
					}
					return &hooked{
						Backend: b,
						release: func(ctx context.Context, c backend.Claim) error {
							// What follows from an Unlock of 1, after 2 has looked.
							if i == 0 || strings.Contains(c.Key, ".waits-") {
								time.Sleep(time.Millisecond)
							}
							_, err := b.Release(ctx, c)
							return err
						},
					}
				})
				ctx, cancel := context.WithCancel(r.guards[1].Context())
				gaveUp := make(chan struct{})
				go func() {
					defer close(gaveUp)
					if g, err := r.clients[1].Lock(ctx, "k2"); err == nil {
						t.Error("caller 1 has got k2, which is held")
						_ = g.Unlock()
					}
				}()
				letGo = func() {
					if unlocks {
						_ = r.guards[1].Unlock()
					} else {
						cancel()
						<-gaveUp
					}
				}
				r.wait(0)
				// So that the others have left their records when 2 looks, and do not look then.
				time.Sleep(time.Second / 2)
				r.wait(2)
				time.Sleep(time.Second + time.Second/4)
				synctest.Wait()
				r.mu.Lock()
				if told := len(r.told["k0"]) > 0; told != (request >= readAgain) {
					t.Errorf("unlocks %v before request %d: told %v", unlocks, request, told)
				}
				r.mu.Unlock()
				if asked < request {
					t.Errorf("%d requests, and nobody let go before request %d", asked, request)
				}
				cancel()
				<-gaveUp
				_ = r.guards[1].Unlock()
				r.close(t, b)
			})
		}
	}
}

// A wait of less than a second, and one whose caller holds nothing, ask the store for no more than
// they did; a long one leaves its record, and looks, for as long as it lasts.
func TestDeadlockIsLookedForInLongNestedWaitsAlone(t *testing.T) {
	for name, test := range map[string]struct {
		nested   bool
		lasts    time.Duration
		inspects int
	}{
		"short":  {true, 900 * time.Millisecond, 0},
		"flat":   {false, time.Minute, 0},
		"nested": {true, time.Minute, 16}, // at 1, 3, 7, 15, 25, … 55 s: who holds, and its record
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b, inspects := membackend.New(), 0
				l := another(t, &inspecting{b, func(string) { inspects++ }}, locker.Config{})
				blocks := mustLock(t, another(t, b, locker.Config{}), "b")
				ctx, unlock := t.Context(), func() error { return nil }
				if test.nested {
					g := mustLock(t, l, "a")
					ctx, unlock = g.Context(), g.Unlock
				}
				time.AfterFunc(test.lasts, func() { _ = blocks.Unlock() })
				g, err := l.Lock(ctx, "b")
				synctest.Wait()
				if err != nil || inspects != test.inspects {
					t.Errorf("%d requests (%v), want %d", inspects, err, test.inspects)
				}
				for listed, err := range b.List(t.Context(), ".waits-") {
					t.Errorf("a record is left: %+v, %v", listed, err)
				}
				if err := errors.Join(g.Unlock(), unlock(), l.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Readers that wait behind a writer for readers, and permits, are not told of: they may have been
// let in by now, or may yet.
func TestDeadlockIsOfExclusiveLocks(t *testing.T) {
	for name, opt := range map[string]locker.Option{
		"shared": locker.Shared(),
		"permit": locker.Permit(1),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &hooked{Backend: membackend.New()}
				told := &deadlocks{told: map[string][]locker.Event{}}
				l := another(t, b, locker.Config{Observer: told, BreakDeadlocks: true})
				one, two := mustLock(t, l, "one", opt), mustLock(t, l, "two")
				var waits sync.WaitGroup
				wait := func(ctx context.Context, key string, opts ...locker.Option) {
					waits.Go(func() {
						g, err := l.Lock(ctx, key,
							append([]locker.Option{locker.WaitLimit(10 * time.Second)}, opts...)...)
						if err == nil {
							t.Errorf("%s was granted", key)
							_ = g.Unlock()
							return
						}
						wantErr(t, err, context.DeadlineExceeded)
					})
					time.Sleep(time.Millisecond)
				}
				if name == "shared" {
					wait(t.Context(), "one", locker.WaitLimit(20*time.Second))
				}
				wait(one.Context(), "two")
				wait(two.Context(), "one", opt)
				waits.Wait()
				if events, _ := told.all(); events != 0 {
					t.Errorf("%d events", events)
				}
				if err := errors.Join(one.Unlock(), two.Unlock(), l.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who looks from outside sees one cycle, in its namespace, for as long as it lasts.
func TestDeadlocksOfAStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		r := newRing(t, 3, locker.Config{Namespace: "shop"}, each(b))
		seen := func(namespace string) int {
			t.Helper()
			all, err := locker.Deadlocks(t.Context(), b, namespace)
			if err != nil {
				t.Error(err)
			}
			for _, cycle := range all {
				for i, w := range cycle {
					if next := cycle[(i+1)%len(cycle)]; len(cycle) != 3 || w.For != next.Holds ||
						w.Who.Service != "ring" || w.Token == 0 {
						t.Errorf("cycle: %v", cycle)
					}
				}
			}
			return len(all)
		}
		r.wait(0)
		r.wait(1)
		time.Sleep(5 * time.Second)
		if n := seen("shop"); n != 0 {
			t.Errorf("%d before the last waits", n)
		}
		r.wait(2, locker.WaitLimit(10*time.Second))
		time.Sleep(5 * time.Second)
		if here, there := seen("shop"), seen(""); here != 1 || there != 0 {
			t.Errorf("%d, and %d in another namespace, want 1 and none", here, there)
		}
		r.waits.Wait()
		if n := seen("shop"); n != 0 {
			t.Errorf("%d when it is over", n)
		}
		r.close(t, b)
	})
}

// slowToTell is a backend whose Inspect, once slow is set, gets no answer within the five seconds
// that a request is given.
type slowToTell struct {
	backend.Backend
	slow  bool
	heeds bool // it returns with its ctx; else not before
}

func (s *slowToTell) Inspect(ctx context.Context, key string) (backend.State, error) {
	if !s.slow {
		return s.Backend.Inspect(ctx, key)
	}
	over := ctx.Done()
	if !s.heeds {
		over = nil
	}
	select {
	case <-over:
	case <-time.After(5 * time.Second):
	}
	return backend.State{}, errSilence
}

// A Lock returns with its ctx, and soon after its grant, also if the store does not answer who
// looks for a deadlock. What is left to do is done behind it, and Close waits for that.
func TestDeadlockIsLookedForBehindLock(t *testing.T) {
	for _, granted := range []bool{true, false} {
		t.Run(fmt.Sprint("granted ", granted), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := membackend.New()
				l := another(t, &slowToTell{Backend: b, slow: true}, locker.Config{})
				blocks := mustLock(t, l, "b")
				a := mustLock(t, l, "a")
				ctx, cancel := context.WithTimeout(a.Context(), 1500*time.Millisecond)
				defer cancel()
				if granted {
					time.AfterFunc(time.Second+time.Second/4, func() { _ = blocks.Unlock() })
				}
				began := time.Now()
				g, err := l.Lock(ctx, "b")
				if took := time.Since(began); took > 1600*time.Millisecond ||
					granted != (err == nil) {
					t.Errorf("it took %v: %v", took, err)
				}
				_, _ = g.Unlock(), blocks.Unlock()
				if err := errors.Join(a.Unlock(), l.Close()); err != nil {
					t.Error(err)
				}
				for left, err := range b.List(t.Context(), "") {
					t.Errorf("left in the store: %+v, %v", left, err)
				}
			})
		})
	}
}

// A store that does not answer once is asked again soon, not when a record would have to be
// repeated.
func TestDeadlockAfterASilence(t *testing.T) {
	for name, silence := range map[string]error{
		"unavailable": backend.ErrUnavailable,
		"unknown":     errors.New("a reset"),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := membackend.New()
				r := newRing(t, 2, locker.Config{BreakDeadlocks: true}, func(int) backend.Backend {
					var asked sync.Map
					return &hooked{
						Backend: m,
						acquire: func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
							if _, again := asked.LoadOrStore(c.Key, true); !again &&
								strings.HasPrefix(c.Key, ".waits-") {
								return backend.Grant{}, silence
							}
							return m.TryAcquire(ctx, c)
						},
					}
				})
				began := time.Now()
				r.wait(0)
				r.wait(1)
				r.waits.Wait()
				if got, took := r.victims(t), time.Since(began); len(got) != 1 ||
					took > 8*time.Second {
					t.Errorf("%v gave up after %v, want one, before a record is repeated", got,
						took)
				}
				r.close(t, m)
			})
		})
	}
}

// What was found in the process may be over when the one that would break it comes to that: then
// nobody need give up.
func TestDeadlockThatIsOverIsNotBroken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		slow := &slowToTell{Backend: b, slow: true, heeds: true}
		r := newRing(t, 2, locker.Config{BreakDeadlocks: true}, shared(slow))
		r.wait(1) // the one to give up
		time.Sleep(time.Second + time.Second/4)
		go func() { // while 1 asks the store
			_, err := r.clients[0].Lock(r.guards[0].Context(), "k1", locker.WaitLimit(time.Second))
			if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, locker.ErrDeadlock) {
				t.Errorf("caller 0: %v", err)
			}
			time.Sleep(10 * time.Second)
			_ = r.guards[0].Unlock()
		}()
		r.waits.Wait()
		if got := r.victims(t); len(got) > 0 {
			t.Errorf("%v gave up when there was no deadlock any more", got)
		}
		if events, waits := r.all(); events != 2 || waits != 2 {
			t.Errorf("%d events on %d waits, want one on each of 2: it was there", events, waits)
		}
		r.close(t, b)
	})
}

// A wait that fails is not one of a deadlock: here it waits for the answer to its last attempt, for
// as long as that may take.
func TestDeadlockWithOneThatFailsIsNone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := membackend.New()
		b := &hooked{Backend: m}
		asks := 0
		b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
			if c.Key == "k1" && c.Mode == backend.Shared {
				if asks++; asks > 1 {
					<-ctx.Done() // no answer
					return backend.Grant{}, ctx.Err()
				}
			}
			return m.TryAcquire(ctx, c)
		}
		r := newRing(t, 2, locker.Config{BreakDeadlocks: true}, shared(b))
		r.waits.Go(func() {
			_, r.errs[0] = r.clients[0].Lock(r.guards[0].Context(), "k1", locker.Shared(),
				locker.WaitLimit(50*time.Millisecond))
			_ = r.guards[0].Unlock()
		})
		time.Sleep(75 * time.Millisecond) // its time is over, and it waits for the answer
		r.wait(1, locker.WaitLimit(time.Second))
		r.waits.Wait()
		if events, _ := r.all(); events != 0 || r.errs[1] != nil {
			t.Errorf("%d events, and the other: %v", events, r.errs[1])
		}
		wantErr(t, r.errs[0], context.DeadlineExceeded)
		r.close(t, m)
	})
}

// A record names a lease. Whoever would be handed it next in the process waits for something else
// or nothing: so a lease that a record names goes back to the store, also if the wait that left the
// record goes on without the guard.
func TestDeadlockOfALeaseIsNotHandedOn(t *testing.T) {
	for name, of := range map[string]func(backend.Backend) func(int) backend.Backend{
		"process": shared, "processes": each,
	} {
		t.Run(name, func(t *testing.T) { notHandedOn(t, of) })
	}
}

func notHandedOn(t *testing.T, of func(backend.Backend) func(int) backend.Backend) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		r := newRing(t, 2, locker.Config{
			BreakDeadlocks: true,
			Wait:           waiting.Config{Passes: 100, PassTime: time.Hour},
		}, of(b))
		var others sync.WaitGroup
		others.Go(func() { // a wait that outlives its guard
			g, err := r.clients[0].Lock(context.WithoutCancel(r.guards[0].Context()), "k1")
			storetest.Want(t, "lock behind the guard", err, nil)
			_ = g.Unlock()
		})
		others.Go(func() { // the next of the same process: it waits for nobody
			g, err := r.clients[0].Lock(t.Context(), "k0")
			storetest.Want(t, "lock", err, nil)
			time.Sleep(20 * time.Second)
			_ = g.Unlock()
		})
		time.Sleep(time.Second + time.Second/4)
		storetest.Want(t, "unlock", r.guards[0].Unlock(), nil)
		synctest.Wait() // the next has it
		r.wait(1)
		r.waits.Wait()
		others.Wait()
		if events, _ := r.all(); events != 0 || r.errs[1] != nil {
			t.Errorf("%d events, and %v, where nobody is in a deadlock", events, r.errs[1])
		}
		r.close(t, b)
	})
}

// One of many readers is in a deadlock: who waits for them looks at some of them each time, and
// comes to it.
func TestDeadlockWithOneOfManyReaders(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		of := each(b)
		readers := another(t, of(0), locker.Config{})
		var guards []*locker.Guard[struct{}]
		for range 40 {
			guards = append(guards, mustLock(t, readers, "k0", locker.Shared()))
		}
		r := &ring{deadlocks: &deadlocks{told: map[string][]locker.Event{}}, errs: make([]error, 2)}
		for i, opts := range [][]locker.Option{{locker.Shared()}, nil} {
			time.Sleep(time.Millisecond) // so that the second has the greatest token
			r.clients = append(r.clients,
				another(t, of(i), locker.Config{Observer: r.deadlocks, BreakDeadlocks: true}))
			r.guards = append(r.guards, mustLock(t, r.clients[i], fmt.Sprint("k", i), opts...))
		}
		r.wait(0, locker.WaitLimit(10*time.Minute))
		r.wait(1, locker.WaitLimit(10*time.Minute))
		r.waits.Wait()
		if got := r.victims(t); !slices.Equal(got, []int{1}) {
			t.Errorf("%v gave up, want 1", got)
		}
		for _, g := range guards {
			storetest.Want(t, "unlock", g.Unlock(), nil)
		}
		storetest.Want(t, "close", readers.Close(), nil)
		r.close(t, b)
	})
}

// equal is a backend by whose account every hold has the same token, as those of different keys
// may.
type equal struct{ backend.Backend }

func (e *equal) Inspect(ctx context.Context, key string) (backend.State, error) {
	state, err := e.Backend.Inspect(ctx, key)
	time.Sleep(time.Millisecond) // so that all look at the same time
	for i := range state.Holders {
		state.Holders[i].Token = 7
	}
	return state, err
}

// covers: G9
func TestDeadlockOfEqualTokensHasOneVictim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		r := newRing(t, 3, locker.Config{BreakDeadlocks: true}, func(int) backend.Backend {
			return &equal{b}
		})
		for i := range 3 {
			r.wait(i)
		}
		r.waits.Wait()
		if got := r.victims(t); len(got) != 1 {
			t.Errorf("%v gave up, want one", got)
		}
		r.close(t, b)
	})
}

// A store that grants shorter leases than records have gets shorter records.
func TestDeadlockWhereLeasesAreShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		caps := b.Capabilities()
		caps.MaxTTL = 9 * time.Second
		r := newRing(t, 2, locker.Config{BreakDeadlocks: true, TTL: caps.MaxTTL},
			func(int) backend.Backend {
				return &hooked{
					Backend: b, caps: &caps,
					acquire: func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
						if c.TTL > caps.MaxTTL {
							t.Errorf("%s is asked for, for %v", c.Key, c.TTL)
						}
						return b.TryAcquire(ctx, c)
					},
				}
			})
		r.wait(0)
		r.wait(1)
		r.waits.Wait()
		if got := r.victims(t); !slices.Equal(got, []int{1}) {
			t.Errorf("%v gave up, want 1", got)
		}
		r.close(t, b)
	})
}

// One of two waits for something else by the second reading, under the same hold.
func TestNoDeadlockIfOneWaitsForSomethingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		asked, instead := 0, func() {}
		looking := &inspecting{b, func(string) {
			if asked++; asked == 5 { // four requests for the two steps; then it reads again
				instead()
			}
		}}
		r := newRing(t, 2, locker.Config{}, func(i int) backend.Backend {
			if i == 1 {
				return looking
			}
			return &hooked{Backend: b}
		})
		other := mustLock(t, r.clients[1], "other")
		var waits sync.WaitGroup
		wait := func(key string) context.CancelFunc {
			ctx, cancel := context.WithCancel(r.guards[0].Context())
			waits.Go(func() {
				if g, err := r.clients[0].Lock(ctx, key); err == nil {
					t.Errorf("%s was granted", key)
					_ = g.Unlock()
				}
			})
			return cancel
		}
		end := wait("k1")
		instead = func() {
			end()
			waits.Wait()
			end = wait("other")
			time.Sleep(time.Second + time.Second/4) // until it has left its record
		}
		// So that 0 has left its record when 1 looks, and does not look then.
		time.Sleep(time.Second / 2)
		r.wait(1, locker.WaitLimit(3*time.Second))
		r.waits.Wait()
		end()
		waits.Wait()
		if _, told := r.told["k0"]; told || asked < 6 {
			t.Errorf("told %v, after %d requests: one of two waited for something else by then",
				told, asked)
		}
		if err := r.errs[1]; !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		_, _ = other.Unlock(), r.guards[0].Unlock()
		r.errs[1] = nil
		r.close(t, b)
	})
}
