package recordtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

// ErrFault is what a [Faulty] store answers where it lost something.
var ErrFault = errors.New("recordtest: a fault")

// Faults are what befalls the calls of a [Faulty] store: each of so many, from 0 to 1.
type Faults struct {
	// What a caller of the backend does not notice.
	// others have changed the value meanwhile: what the first call of f made is thrown away
	Conflict   float64
	LoseNotice float64
	Twice      float64 // a notice comes twice
	LateNotice float64
	// each call is given a time that is so far off at most, in either direction
	Step time.Duration

	// What it does.
	Refuse     float64 // nothing is written: backend.ErrUnavailable
	Vanish     float64 // nothing is written, and nobody knows: ErrFault
	LoseAnswer float64 // it is written, and nobody knows: ErrFault
	Late       float64 // it is written after the caller was told ErrFault, within Delay
	Delay      time.Duration
}

// Faulty is a store on a bad day. All that it does may happen to a store that keeps to the
// contract; a backend that breaks on it is wrong.
type Faulty struct {
	store  record.Store
	faults Faults

	mu    sync.Mutex
	rand  *rand.Rand
	ended bool // no more tasks
	tasks sync.WaitGroup
}

// NewFaulty returns store with faults that follow from seed.
func NewFaulty(store record.Store, seed uint64, faults Faults) *Faulty {
	//nolint:gosec // a seed
	return &Faulty{store: store, faults: faults, rand: rand.New(rand.NewPCG(seed, 0))}
}

// EndFaults ends the faults of calls that are made from now on, and returns when all late writes
// are there.
func (s *Faulty) EndFaults() {
	s.mu.Lock()
	s.faults, s.ended = Faults{Step: s.faults.Step}, true
	s.mu.Unlock()
	s.tasks.Wait()
}

func (s *Faulty) draw(f func(Faults, *rand.Rand)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.faults, s.rand)
}

// later runs f after a while, or at once when faults have ended.
func (s *Faulty) later(f func()) {
	d := s.delay()
	s.mu.Lock()
	if s.ended {
		s.mu.Unlock()
		f()
		return
	}
	defer s.mu.Unlock()
	s.tasks.Go(func() {
		time.Sleep(d)
		f()
	})
}

// chance reports whether one of share happens.
func (s *Faulty) chance(share func(Faults) float64) (is bool) {
	s.draw(func(f Faults, r *rand.Rand) { is = r.Float64() < share(f) })
	return is
}

func (s *Faulty) delay() (d time.Duration) {
	s.draw(func(f Faults, r *rand.Rand) { d = time.Duration(r.Float64() * float64(f.Delay)) })
	return d
}

func (s *Faulty) off(now time.Time) time.Time {
	s.draw(func(f Faults, r *rand.Rand) {
		now = now.Add(time.Duration((2*r.Float64() - 1) * float64(f.Step)))
	})
	return now
}

// Read implements [record.Store].
func (s *Faulty) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	value, now, err := s.store.Read(ctx, key)
	return value, s.off(now), err
}

// Change implements [record.Store].
func (s *Faulty) Change(ctx context.Context, key string,
	f func([]byte, time.Time) ([]byte, error),
) error {
	change := func(ctx context.Context) error {
		return s.store.Change(ctx, key, func(value []byte, now time.Time) ([]byte, error) {
			now = s.off(now)
			if s.chance(func(f Faults) float64 { return f.Conflict }) {
				_, _ = f(nil, now) // as it was before somebody changed it
			}
			return f(value, now)
		})
	}
	switch {
	case s.chance(func(f Faults) float64 { return f.Refuse }):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, ErrFault)
	case s.chance(func(f Faults) float64 { return f.Vanish }):
		return ErrFault
	case s.chance(func(f Faults) float64 { return f.LoseAnswer }):
		_ = change(ctx)
		return ErrFault
	case s.chance(func(f Faults) float64 { return f.Late }):
		return s.late(ctx, key, f)
	}
	return change(ctx)
}

// late has a compare-and-swap under way when its caller is told ErrFault.
func (s *Faulty) late(ctx context.Context, key string,
	f func([]byte, time.Time) ([]byte, error),
) error {
	old, now, err := s.store.Read(ctx, key)
	if err != nil {
		return err
	}
	next, err := f(old, s.off(now))
	if err != nil {
		return err
	}
	if old == nil { // meanwhile there may be another value, and none again
		return s.store.Change(ctx, key, f)
	}
	old = bytes.Clone(old)
	s.later(func() {
		_ = s.store.Change(context.WithoutCancel(ctx), key,
			func(value []byte, _ time.Time) ([]byte, error) {
				if !bytes.Equal(value, old) {
					return nil, record.ErrChanged
				}
				return next, nil
			})
	})
	return ErrFault
}

// Watch returns watch with faults, for a [record.Config].
func (s *Faulty) Watch(
	watch func(context.Context, func(string)) error,
) func(context.Context, func(string)) error {
	return func(ctx context.Context, changed func(string)) error {
		return watch(ctx, func(key string) {
			if s.chance(func(f Faults) float64 { return f.LoseNotice }) {
				return
			}
			if s.chance(func(f Faults) float64 { return f.LateNotice }) {
				s.later(func() { changed(key) })
				return
			}
			changed(key)
			if s.chance(func(f Faults) float64 { return f.Twice }) {
				changed(key)
			}
		})
	}
}
