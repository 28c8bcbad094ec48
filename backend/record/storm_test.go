package record_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/backend/record/recordtest"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
)

var (
	seeds = flag.Int("seeds", 60, "how many seeds of TestStorm to run")
	one   = flag.Uint64("seed", 0, "a seed of TestStorm to repeat")
)

// A flaw is what a store does that it must not.
type flaw struct {
	name   string
	budget int // of seeds, in which it shows

	swap func(m *recordtest.Memory) record.Versioned
	step time.Duration // its clients' clocks are as far apart, and say less
}

const (
	stormTTL     = 2 * time.Second
	stormSkew    = 40 * time.Millisecond
	stormAway    = 5 * time.Millisecond // less than stormSkew, as a client's clock is read before
	stormClients = 4
	stormTakers  = 3
)

// TestStorm has clients of package locker take turns, share and have permits on a store that loses
// writes, answers and notices, writes late, and has no exact clock. Nobody holds beside another,
// tokens rise, and in the end nothing is left.
//
// covers: A2, A3, A4, W2, C4
func TestStorm(t *testing.T) {
	if *one != 0 {
		report(t, *one, flaw{})
		return
	}
	holds, n := 0, *seeds
	if testing.Short() {
		n = min(n, 15)
	}
	for seed := range uint64(n) {
		holds += report(t, seed+1, flaw{})
	}
	t.Logf("%d holds in %d seeds", holds, n)
	if holds < 24*n {
		t.Errorf("%d holds in %d seeds: the store is worse than it should be", holds, n)
	}
}

func report(t *testing.T, seed uint64, f flaw) int {
	t.Helper()
	holds, found := storm(t, seed, f)
	if found != nil {
		t.Errorf("seed %d, repeat with go test ./backend/record -run 'TestStorm$' -seed=%d\n%v",
			seed, seed, found)
	}
	return holds
}

// TestStormFindsFlaws has stores that break the contract, which must show: else TestStorm shows
// nothing. The budgets are such that each is missed in less than one of a million runs: it shows in
// 298, 32 and 299 of 300 seeds.
func TestStormFindsFlaws(t *testing.T) {
	for _, f := range []flaw{
		{name: "writes over others", budget: 20, swap: func(m *recordtest.Memory) record.Versioned {
			return blind{m}
		}},
		{name: "forgets", budget: 200, swap: func(m *recordtest.Memory) record.Versioned {
			return &forgetful{Memory: m}
		}},
		{name: "clocks", budget: 20, step: stormTTL},
	} {
		t.Run(f.name, func(t *testing.T) {
			for seed := range uint64(f.budget) {
				if _, found := storm(t, seed+1, f); found != nil {
					first, _, _ := strings.Cut(found.Error(), "\n")
					t.Logf("found in %d seeds: %s", seed+1, first)
					return
				}
			}
			t.Errorf("not found in %d seeds", f.budget)
		})
	}
}

// A distant store is some milliseconds away, so that others come in between a look and a write.
type distant struct {
	record.Versioned
	mu sync.Mutex
	r  *rand.Rand
}

func (s *distant) away() {
	s.mu.Lock()
	d := time.Duration(s.r.Int64N(int64(stormAway)))
	s.mu.Unlock()
	time.Sleep(d)
}

func (s *distant) Get(ctx context.Context, key string) (record.Value, error) {
	s.away()
	defer s.away()
	return s.Versioned.Get(ctx, key)
}

func (s *distant) Swap(ctx context.Context, key string, old record.Value, next []byte) error {
	s.away()
	defer s.away()
	return s.Versioned.Swap(ctx, key, old, next)
}

// blind is a store that writes over what others have written.
type blind struct{ *recordtest.Memory }

func (s blind) Swap(ctx context.Context, key string, old record.Value, next []byte) error {
	now, err := s.Get(ctx, key)
	if err != nil {
		return err
	}
	old.Version = now.Version
	return s.Memory.Swap(ctx, key, old, next)
}

// forgetful is a store that does not write, one time of fifteen, and says that it did.
type forgetful struct {
	*recordtest.Memory
	swaps atomic.Int64
}

func (s *forgetful) Swap(ctx context.Context, key string, old record.Value, next []byte) error {
	if s.swaps.Add(1)%15 == 0 {
		return nil
	}
	return s.Memory.Swap(ctx, key, old, next)
}

// Room is what the holds of a key may take at a time: as much as all who take locks, if they share
// it.
const room, permits = stormClients * stormTakers, 3

// ways is how the key of each name is locked, and how much of its room that takes.
var ways = map[string]func(r *rand.Rand) (opts []locker.Option, weight int){
	"exclusive": func(*rand.Rand) ([]locker.Option, int) { return nil, room },
	"shared": func(r *rand.Rand) ([]locker.Option, int) {
		if r.IntN(3) == 0 {
			return nil, room
		}
		return []locker.Option{locker.Shared()}, 1
	},
	"permits": func(r *rand.Rand) ([]locker.Option, int) {
		n := 1 + r.IntN(2)
		return []locker.Option{locker.Permit(permits), locker.Weight(n)}, n * room / permits
	},
}

// storm runs one seed in a bubble, and returns how many holds there were, and what is wrong.
func storm(t *testing.T, seed uint64, f flaw) (holds int, found error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log history.Log
		m := recordtest.NewMemory()
		began := time.Now()
		errs := make(chan error, stormClients)
		for client := range cap(errs) {
			//nolint:gosec // it is small
			go func() {
				errs <- stormClient(t.Context(), m, f, seed<<8+uint64(client), began, &log)
			}()
		}
		all := make([]error, 0, cap(errs)+2)
		for range cap(errs) {
			all = append(all, <-errs)
		}
		holds = len(log.Events())
		found = errors.Join(append(all, history.Join(history.CheckCapacity(log.Events(), room)),
			left(t.Context(), m))...)
	})
	return holds, found
}

// left is an error if there is a claim in the store when all leases are over.
func left(ctx context.Context, m *recordtest.Memory) error {
	time.Sleep(2 * stormTTL)
	b := record.New(record.ByVersion(m), m.Config())
	defer func() { _ = b.Close() }()
	for key := range ways {
		if state, err := b.Inspect(ctx, key); err != nil || state.Holders != nil ||
			state.Waiters != nil {
			return fmt.Errorf("left behind: %+v, %w", state, err)
		}
	}
	return nil
}

// stormClient is a client on a bad day, of which three goroutines take locks.
func stormClient(ctx context.Context, m *recordtest.Memory, f flaw, seed uint64, began time.Time,
	log *history.Log,
) error {
	r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // a seed
	part := func(most float64) float64 { return most * r.Float64() }
	var versioned record.Versioned = m
	if f.swap != nil {
		versioned = f.swap(m)
	}
	//nolint:gosec // a seed
	store := record.ByVersion(&distant{Versioned: versioned, r: rand.New(rand.NewPCG(seed, 2))})
	faulty := recordtest.NewFaulty(store, seed, recordtest.Faults{
		Conflict: part(0.3), LoseNotice: part(1), Twice: part(0.3), LateNotice: part(0.3),
		Step:   max(stormSkew/2, f.step),
		Refuse: part(0.1), Vanish: part(0.1), LoseAnswer: part(0.2), Late: part(0.1),
		Delay: stormTTL / 4,
	})
	cfg := m.Config()
	cfg.Watch, cfg.Skew = faulty.Watch(m.Watch), stormSkew
	b := record.New(faulty, cfg)
	l, err := locker.New[struct{}](b, locker.Bare,
		locker.Config{TTL: stormTTL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	var takers sync.WaitGroup
	errs := make([]error, stormTakers)
	for i := range errs {
		takers.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(3+i))) //nolint:gosec // a seed
			for n := 0; n < 6 && errs[i] == nil; n++ {
				errs[i] = stormHold(ctx, l, r, fmt.Sprint(seed&0xff, "/", i), began, log)
			}
		})
	}
	takers.Wait()
	closed := l.Shutdown(ctx)
	faulty.EndFaults()
	return errors.Join(append(errs, closed, b.Close())...)
}

// stormHold takes a lock, and holds it for up to a TTL unless it is lost before.
func stormHold(ctx context.Context, l *locker.Client[struct{}], r *rand.Rand, worker string,
	began time.Time, log *history.Log,
) error {
	key := []string{"exclusive", "shared", "permits"}[r.IntN(3)]
	opts, weight := ways[key](r)
	lasts, pause := time.Duration(r.Int64N(int64(stormTTL))),
		time.Duration(r.Int64N(int64(stormTTL/4)))
	g, err := l.Lock(ctx, key, append(opts, locker.WaitLimit(40*stormTTL))...)
	if err != nil {
		if errors.Is(err, locker.ErrNotAcquired) {
			return nil
		}
		return fmt.Errorf("lock of %s: %w", key, err)
	}
	e := history.Event{
		Worker: worker, Key: key, Token: g.Hold().Token, Weight: weight,
		Start: time.Since(began),
	}
	timer := time.NewTimer(lasts)
	select {
	case <-timer.C:
	case <-g.Lost():
	}
	e.End = time.Since(began)
	log.Add(e)
	_ = g.Unlock()
	time.Sleep(pause)
	return nil
}
