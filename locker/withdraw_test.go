package locker_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// busy is a store that executes one request for a release after the other, each for a while, and
// forgets one whose caller has gone.
type busy struct {
	backend.Backend
	single bool // it releases one claim in a request
	each   time.Duration
	one    chan struct{}
	done   atomic.Int64 // claims
	asked  atomic.Int64 // requests
}

func (b *busy) turn(ctx context.Context, claims int) error {
	select {
	case b.one <- struct{}{}:
		defer func() { <-b.one }()
	case <-ctx.Done():
		return ctx.Err()
	}
	time.Sleep(b.each)
	b.asked.Add(1)
	b.done.Add(int64(claims))
	return nil
}

func (b *busy) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if err := b.turn(ctx, 1); err != nil {
		return backend.Released{}, err
	}
	return b.Backend.Release(ctx, c)
}

func (b *busy) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if b.single {
		return backend.Base{}.ReleaseAll(ctx, claims)
	}
	if len(claims) == 0 {
		return nil, nil
	}
	if err := b.turn(ctx, len(claims)); err != nil {
		return nil, err
	}
	return b.Backend.ReleaseAll(ctx, claims)
}

// giveUp has so many readers wait and give up at once, when the store is busy with other requests
// for so long, and returns how long they took and how many places they have left then.
func giveUp(t *testing.T, b *busy, readers int, with time.Duration) (took time.Duration, left int) {
	t.Helper()
	store := membackend.New()
	b.Backend, b.one = store, make(chan struct{}, 1)
	// So that no place lapses.
	l, err := locker.New(b, locker.Bare, locker.Config{Wait: waiting.Config{Fallback: time.Hour}})
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			if _, err := l.Lock(ctx, "k", locker.Shared()); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	synctest.Wait()
	places := func() int { // and what was let in
		state, err := store.Inspect(t.Context(), "k")
		if err != nil {
			t.Error(err)
		}
		return len(state.Waiters) + len(state.Holders)
	}
	if n := places(); n != readers+1 {
		t.Fatalf("%d wait, want %d", n-1, readers)
	}
	b.one <- struct{}{}
	time.AfterFunc(with, func() { <-b.one })
	began := time.Now()
	cancel()
	all.Wait()
	took, left = time.Since(began), max(places()-1, readers-int(b.done.Load()))
	if err := errors.Join(g.Unlock(), l.Close()); err != nil {
		t.Error(err)
	}
	if n := places(); n > 0 {
		t.Errorf("%d places are left after Close", n)
	}
	_ = store.Close()
	return took, left
}

// However many readers give up at once, nothing of them is in the store when all have returned, as
// long as it answers: each place is withdrawn, and none is dropped. Where the store can, those of a
// key go together.
//
// covers: W13, W7
func TestWithdrawnTogether(t *testing.T) {
	for name, b := range map[string]*busy{
		"one by one": {single: true, each: 200 * time.Microsecond},
		"together":   {each: 20 * time.Millisecond}, // as of a store that is far away
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				readers, with := 5000, 500*time.Millisecond
				if !b.single {
					readers = 2000
				}
				took, left := giveUp(t, b, readers, with)
				if left > 0 {
					t.Errorf("%d places are left of readers that have gone", left)
				}
				if most := with + time.Duration(readers)*300*time.Microsecond; took > most {
					t.Errorf("it took %v, want %v at most", took, most)
				}
				if n := b.asked.Load(); !b.single && int(n) > readers/20 {
					t.Errorf("%d requests for %d claims", n, readers)
				}
			})
		})
	}
}

// A store that does not answer is not waited for, and is asked behind those who have gone. However
// many they are, nothing is left out that it may yet answer.
//
// covers: W7, W13, E2
func TestWithdrawnFromASilentStore(t *testing.T) {
	for readers, most := range map[int]time.Duration{
		1: 100 * time.Millisecond, 1000: 2 * time.Second, 9000: 2 * time.Second,
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &busy{single: readers < 9000, each: 200 * time.Microsecond}
			if took, _ := giveUp(t, b, readers, 5*time.Second); took > most {
				t.Errorf("%d readers were back after %v, want %v at most", readers, took, most)
			}
		})
	}
}

// late is a store whose answers to attempts take a while, unless the caller has gone.
type late struct {
	backend.Backend
	takes    time.Duration
	released chan backend.Claim
}

func (b *late) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	g, err = b.Backend.TryAcquire(ctx, c)
	select {
	case <-time.After(b.takes):
		return g, err
	case <-ctx.Done():
		return backend.Grant{}, ctx.Err()
	}
}

func (b *late) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	b.released <- c
	return b.Backend.Release(ctx, c)
}

// Who gives up while its attempt is in flight waits for the answer as long as one may be expected:
// then nothing is in flight that the release has to bar.
//
// covers: W7, A4
func TestGivingUpWaitsForTheAnswer(t *testing.T) {
	for takes, answered := range map[time.Duration]bool{
		90 * time.Millisecond: true,
		time.Hour:             false,
	} {
		synctest.Test(t, func(t *testing.T) {
			store := membackend.New()
			defer store.Close()
			held := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
			if _, err := store.TryAcquire(t.Context(), held); err != nil {
				t.Fatal(err)
			}
			b := &late{store, takes, make(chan backend.Claim, 1)}
			l, err := locker.New(b, locker.Bare, locker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Millisecond, cancel)
			began := time.Now()
			_, err = l.Lock(ctx, "k", locker.Shared())
			if took := time.Since(began); !errors.Is(err, context.Canceled) ||
				took > 101*time.Millisecond {
				t.Errorf("Lock = %v after %v", err, took)
			}
			if c := <-b.released; c.NoneInFlight != answered {
				t.Errorf("released with none in flight %v, and that was answered: %v",
					c.NoneInFlight, answered)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if state, err := store.Inspect(t.Context(), "k"); err != nil || len(state.Waiters) > 0 {
				t.Errorf("left: %+v, %v", state.Waiters, err)
			}
		})
	}
}

// Who gives up while its attempt is in flight does not wait for as long as the store answers
// others:
// it may be that attempt alone that is never answered, as of a shard that is away.
//
// covers: W7, E2
func TestGivingUpBesideOthersWhoAreAnswered(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if c.Key == "away" {
			<-ctx.Done()
			return backend.Grant{}, ctx.Err()
		}
		return b.Backend.TryAcquire(ctx, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		returned := make(chan struct{})
		var others sync.WaitGroup
		others.Go(func() {
			for began := time.Now(); time.Since(began) < time.Minute; {
				select {
				case <-returned:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if g, err := l.TryLock(t.Context(), "k"); err != nil || g.Unlock() != nil {
					t.Errorf("TryLock of another key = %v", err)
				}
			}
		})
		began := time.Now()
		_, err := l.Lock(t.Context(), "away", locker.Shared(), locker.WaitLimit(time.Second))
		wantErr(t, err, context.DeadlineExceeded)
		if took := time.Since(began); took > 2200*time.Millisecond {
			t.Errorf("a Lock of 1s came back after %v", took)
		}
		close(returned)
		others.Wait()
	})
}

// far is a store that can release several at once, and has a key whose requests are never answered.
type far struct{ backend.Backend }

func (b far) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if c.Key == "away" {
		<-ctx.Done()
		return backend.Grant{}, ctx.Err()
	}
	return b.Backend.TryAcquire(ctx, c)
}

func (b far) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if c.Key == "away" {
		<-ctx.Done()
		return backend.Released{}, ctx.Err()
	}
	return b.Backend.Release(ctx, c)
}

func (b far) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if len(claims) > 0 && claims[0].Key == "away" {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return b.Backend.ReleaseAll(ctx, claims)
}

// A release that is repeated, and takes long, is not waited for by who gives up later.
//
// covers: W7, E2
func TestGivingUpBesideARepeatedRelease(t *testing.T) {
	bubble(t, far{membackend.New()}, locker.Config{},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			returned := make(chan struct{})
			var others sync.WaitGroup
			others.Go(func() { // whose releases are answered all the time
				for {
					select {
					case <-returned:
						return
					default:
					}
					_, err := l.Lock(t.Context(), "k", locker.Shared(),
						locker.WaitLimit(10*time.Millisecond))
					wantErr(t, err, context.DeadlineExceeded)
				}
			})
			for i := range 16 { // some of them while the release of one before is repeated
				began, limit := time.Now(), time.Duration(i+1)*70*time.Millisecond
				_, err := l.Lock(t.Context(), "away", locker.Shared(), locker.WaitLimit(limit))
				wantErr(t, err, context.DeadlineExceeded)
				if took := time.Since(began); took > limit+2050*time.Millisecond {
					t.Errorf("a Lock of %v came back after %v", limit, took)
				}
			}
			close(returned)
			others.Wait()
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		})
}

// A release that a shard which is away does not answer keeps no place in another shard's queue.
//
// covers: W7, W13
func TestWithdrawnBesideAShardThatIsAway(t *testing.T) {
	b := hook()
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		if c.Key == "away" {
			<-ctx.Done()
			return backend.Grant{}, ctx.Err()
		}
		return b.Backend.TryAcquire(ctx, c)
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		if c.Key == "away" {
			<-ctx.Done() // after 3 seconds, see hooked
			return ctx.Err()
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		if _, err := l.Lock(t.Context(), "away", locker.Shared(),
			locker.WaitLimit(time.Second)); err == nil {
			t.Error("what is away was locked")
		}
		time.Sleep(2 * time.Second) // its release was tried once, and is tried again
		longest := time.Duration(0)
		for range 20 {
			if _, err := l.Lock(t.Context(), "k", locker.Shared(),
				locker.WaitLimit(100*time.Millisecond)); err == nil {
				t.Error("what is held was locked")
			}
			began := time.Now()
			for {
				state, err := b.Inspect(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				if len(state.Waiters) == 0 {
					break
				}
				time.Sleep(time.Millisecond)
			}
			longest = max(longest, time.Since(began))
		}
		if longest > 200*time.Millisecond {
			t.Errorf("a place was left for %v after its Lock had failed", longest)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
}

// A release that fails at once is not repeated at once, however long the store has been silent.
//
// covers: W13
func TestOwedIsRepeatedWithPauses(t *testing.T) {
	b := hook()
	var broken atomic.Bool
	broken.Store(true)
	lost := errors.New("connection reset")
	b.acquire = func(context.Context, backend.Claim) (backend.Grant, error) {
		return backend.Grant{}, lost
	}
	b.release = func(ctx context.Context, c backend.Claim) error {
		if broken.Load() && b.releases.Load() < 10_000 {
			return lost
		}
		return storetest.Release(ctx, b.Backend, c)
	}
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		if _, err := l.TryLock(t.Context(), "k"); !errors.Is(err, lost) {
			t.Errorf("TryLock = %v", err)
		}
		time.Sleep(time.Second)
		if n := b.releases.Load(); n < 2 || n > 40 {
			t.Errorf("%d releases in the first second of a store that fails at once, want some", n)
		}
		broken.Store(false)
	})
}
