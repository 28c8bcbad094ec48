package record_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/backend/record/recordtest"
	"github.com/holdfast-go/holdfast/internal/history"
)

// TestConformanceUnnoticed runs the suite on a store that does what no caller may notice: changes
// meet, notices are lost, late and doubled, and the clocks of clients are apart.
func TestConformanceUnnoticed(t *testing.T) {
	const skew = 5 * time.Millisecond
	memory := memories()
	var seed atomic.Uint64
	recordtest.Run(t, recordtest.Harness{
		Bubble: true, Brief: true,
		Open: func(t testing.TB) (record.Store, record.Config) {
			m := memory(t)
			cfg := m.Config()
			s := recordtest.NewFaulty(record.ByVersion(m), seed.Add(1), recordtest.Faults{
				Conflict: 0.2, Twice: 0.2, LateNotice: 0.2, Delay: 2 * time.Millisecond,
				Step: skew / 2,
			})
			cfg.Watch, cfg.Skew = s.Watch(m.Watch), skew
			cfg.Close = func() error { s.EndFaults(); return nil }
			return s, cfg
		},
	})
}

// lossy is a store whose next answers to Swap are lost, after they were written; but not that a key
// without a value has one.
type lossy struct {
	*recordtest.Memory
	lose bool
}

func (s *lossy) Swap(ctx context.Context, key string, old record.Value, next []byte) error {
	if err := s.Memory.Swap(ctx, key, old, next); err != nil || !s.lose ||
		old.Bytes == nil {
		return err
	}
	return errors.New("no answer")
}

// A lost answer is unknown, and nothing is begun anew because of it. The repeated verb finds by the
// claim's name what the lost one has written.
//
// covers: A2, A3
func TestLostAnswer(t *testing.T) {
	m := recordtest.NewMemory()
	s := &lossy{m, true}
	b := record.New(record.ByVersion(s), m.Config())
	defer func() { _ = b.Close() }()
	c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Minute}
	if g, err := b.TryAcquire(t.Context(), c); backend.AnswerOf(err) != backend.Unknown ||
		g.Token != 0 {
		t.Fatalf("TryAcquire without an answer = %v, %v; want unknown", g, err)
	}
	s.lose = false
	state, err := b.Inspect(t.Context(), "k")
	if err != nil || len(state.Holders) != 1 {
		t.Fatalf("Inspect = %+v, %v", state, err)
	}
	if g, err := b.TryAcquire(t.Context(), c); err != nil || g.Token != state.Holders[0].Token {
		t.Errorf("repeated: %v, %v; want the grant that was written, token %d", g, err,
			state.Holders[0].Token)
	}
	s.lose = true
	if _, err := b.Release(t.Context(), c); backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("Release without an answer = %v, want unknown", err)
	}
	s.lose = false
	if _, err := b.Release(t.Context(), c); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Release again = %v, want ErrLost: the one before did it", err)
	}
	if _, err := b.TryAcquire(t.Context(), c); !errors.Is(err, backend.ErrLost) {
		t.Errorf("TryAcquire of what was released = %v, want ErrLost", err)
	}
}

// busy is a store in which somebody else changes every value before each swap.
type busy struct{ *recordtest.Memory }

func (s busy) Swap(context.Context, string, record.Value, []byte) error { return record.ErrChanged }

// A change that never comes through was certainly not made, and ends with its context.
//
// covers: A2
func TestNeverSwapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := recordtest.NewMemory()
		cfg := m.Config()
		cfg.Timeout = time.Second
		b := record.New(record.ByVersion(busy{m}), cfg)
		defer func() { _ = b.Close() }()
		began := time.Now()
		_, err := b.TryAcquire(t.Context(), backend.Claim{Key: "k", Owner: "o", TTL: time.Minute})
		if backend.AnswerOf(err) != backend.No || backend.Refused(err) ||
			time.Since(began) != time.Second {
			t.Errorf("after %v: %v; want a no that is not for good, after 1s", time.Since(began),
				err)
		}
	})
}

// A lease lasts for Skew longer in the store, so that a client whose clock is ahead by as much does
// not end it early; and so does everything that is left for a time.
//
// covers: R1
func TestSkew(t *testing.T) {
	const skew, ttl, place, every = time.Second, 10 * time.Second, 3 * time.Second, 40 * time.Second
	mine := backend.Claim{Key: "k", Owner: "a", TTL: ttl}
	queued := backend.Claim{Key: "k", Owner: "b", TTL: ttl, Queue: true, WaiterTTL: place}
	job := backend.Claim{Key: "k", Owner: "c", TTL: ttl, NotBefore: every, NoneInFlight: true}
	type client struct {
		testing.TB
		*record.Backend
	}
	acquire := func(b client, c backend.Claim) {
		b.Helper()
		if _, err := b.TryAcquire(b.Context(), c); err != nil &&
			(!c.Queue || !errors.Is(err, backend.ErrHeld)) {
			b.Fatal(err)
		}
	}
	release := func(b client, c backend.Claim) {
		b.Helper()
		if _, err := b.Release(b.Context(), c); err != nil {
			b.Fatal(err)
		}
	}
	other := backend.Claim{Key: "k", Owner: "d", TTL: ttl}
	for name, left := range map[string]struct {
		by    func(b client)
		lasts time.Duration
		then  func(b client) // of which something is left still
		claim backend.Claim
		want  error // while it is left
	}{
		"a grant": {func(b client) { acquire(b, mine) }, ttl, nil, other, backend.ErrHeld},
		"a repeat": {func(b client) {
			acquire(b, mine)
			time.Sleep(ttl / 2)
			acquire(b, mine)
		}, ttl, nil, other, backend.ErrHeld},
		"a renewal": {func(b client) {
			acquire(b, mine)
			time.Sleep(ttl / 2)
			if err := b.Renew(b.Context(), mine); err != nil {
				b.Fatal(err)
			}
		}, ttl, nil, other, backend.ErrHeld},
		"a place": {func(b client) {
			acquire(b, mine)
			acquire(b, queued)
		}, place, func(b client) { release(b, mine) }, other, backend.ErrHeld},
		"a place that was kept": {func(b client) {
			acquire(b, mine)
			acquire(b, queued)
			time.Sleep(place / 2)
			if _, err := b.Heartbeat(b.Context(), []backend.Claim{queued}); err != nil {
				b.Fatal(err)
			}
		}, place, func(b client) { release(b, mine) }, other, backend.ErrHeld},
		"a hand-over": {func(b client) {
			acquire(b, mine)
			acquire(b, queued)
			release(b, mine)
		}, place, nil, other, backend.ErrHeld},
		"a release": {func(b client) {
			acquire(b, mine)
			release(b, mine)
		}, 2*ttl + time.Minute, nil, mine, backend.ErrLost},
		"a run": {
			func(b client) {
				acquire(b, job)
				release(b, job)
			}, every, nil,
			backend.Claim{Key: "k", Owner: "e", TTL: ttl, NotBefore: every},
			backend.ErrEarly,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := recordtest.NewMemory()
				cfg := m.Config()
				cfg.Skew = skew
				slow := record.New(record.ByVersion(m), cfg)
				ahead := client{t, record.New(ahead{record.ByVersion(m), skew}, cfg)}
				defer func() { _, _ = slow.Close(), ahead.Close() }()
				left.by(client{t, slow})
				time.Sleep(left.lasts - time.Millisecond)
				if left.then != nil {
					left.then(ahead)
				}
				if _, err := ahead.TryAcquire(t.Context(), left.claim); !errors.Is(err, left.want) {
					t.Errorf("what it left is over too early: %v, want %v", err, left.want)
				}
				time.Sleep(2 * ttl)
				if _, err := ahead.TryAcquire(t.Context(), left.claim); err != nil {
					t.Errorf("long after it = %v", err)
				}
			})
		})
	}
}

// ahead is a store by a clock that is ahead.
type ahead struct {
	record.Store
	by time.Duration
}

func (s ahead) Change(ctx context.Context, key string,
	f func([]byte, time.Time) ([]byte, error),
) error {
	return s.Store.Change(ctx, key, func(value []byte, now time.Time) ([]byte, error) {
		return f(value, now.Add(s.by))
	})
}

// A record that is full refuses claims, certainly and not for good, and nobody who is in it: all
// can ask again, and be released, with tombstones.
//
// covers: W5
func TestFull(t *testing.T) {
	m := recordtest.NewMemory()
	cfg := m.Config()
	cfg.MaxRecord = 4 << 10
	b := record.New(record.ByVersion(m), cfg)
	defer func() { _ = b.Close() }()
	var in []backend.Claim
	for {
		c := backend.Claim{
			Key: "k", Owner: backend.NewOwner(), TTL: time.Minute, Queue: true,
			WaiterTTL: time.Minute, Meta: backend.Meta{Service: "shop"},
		}
		_, err := b.TryAcquire(t.Context(), c)
		if err == nil || errors.Is(err, backend.ErrHeld) {
			in = append(in, c)
			continue
		}
		var full *record.FullError
		if !errors.As(err, &full) || backend.AnswerOf(err) != backend.No || backend.Refused(err) ||
			full.Claims != len(in)+1 {
			t.Fatalf("after %d claims: %v; want a *FullError that is a no, and not for good",
				len(in), err)
		}
		break
	}
	t.Logf("%d claims fill 4 KiB", len(in))
	if len(in) < 20 {
		t.Errorf("%d claims fill 4 KiB", len(in))
	}
	for range 3 { // into the room that is kept for those who are in it
		if _, err := b.Release(t.Context(), backend.Claim{
			Key: "k", Owner: backend.NewOwner(),
			TTL: time.Minute,
		}); !errors.Is(err, backend.ErrLost) {
			t.Errorf("Release of a claim whose attempt is in flight = %v, want %v", err,
				backend.ErrLost)
		}
	}
	for i, c := range in { // one whose answer was lost asks again
		if _, err := b.TryAcquire(t.Context(), c); (i > 0 || err != nil) &&
			!errors.Is(err, backend.ErrHeld) {
			t.Errorf("a repeat of claim %d = %v", i, err)
		}
	}
	for _, c := range in {
		if err := b.Renew(t.Context(), c); err != nil && !errors.Is(err, backend.ErrLost) {
			t.Errorf("Renew = %v", err)
		}
		// Tracing has to go without.
		c.Before = []backend.Past{{Meta: backend.Meta{Service: string(make([]byte, 2<<10))}}}
		if _, err := b.Release(t.Context(), c); err != nil {
			t.Errorf("Release = %v", err)
		}
	}
	if state, err := b.Inspect(t.Context(), "k"); err != nil || state.Holders != nil ||
		state.Waiters != nil {
		t.Errorf("left: %+v, %v", state, err)
	}
}

// stalls is a store whose next swap of what is not there comes late.
type stalls struct {
	*recordtest.Memory
	meanwhile func()
}

func (s *stalls) Swap(ctx context.Context, key string, old record.Value, next []byte) error {
	if f := s.meanwhile; f != nil && old.Bytes == nil {
		s.meanwhile = nil
		f()
	}
	return s.Memory.Swap(ctx, key, old, next)
}

// A client has read that a key has no value, and its swap is late: meanwhile another held, and has
// left no value either. The token of the late one is above that of the other, which nothing but the
// clock remembers.
//
// covers: K1, B13
func TestLateSwapOfNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := recordtest.NewMemory()
		s := &stalls{Memory: m}
		b, other := record.New(record.ByVersion(s), m.Config()),
			record.New(record.ByVersion(m), m.Config())
		defer func() { _, _ = b.Close(), other.Close() }()
		claim := func() backend.Claim {
			return backend.Claim{
				Key: "k", Owner: backend.NewOwner(), TTL: time.Minute, NoneInFlight: true,
			}
		}
		last := uint64(0)
		s.meanwhile = func() {
			time.Sleep(time.Millisecond)
			c := claim()
			g, err := other.TryAcquire(t.Context(), c)
			if err != nil {
				t.Error(err)
			}
			last = g.Token
			time.Sleep(time.Millisecond)
			if _, err := other.Release(t.Context(), c); err != nil {
				t.Error(err)
			}
			if v, err := m.Get(t.Context(), "k"); err != nil || v.Bytes != nil {
				t.Errorf("%v, %v are left: this shows nothing", v, err)
			}
		}
		g, err := b.TryAcquire(t.Context(), claim())
		if err != nil || last == 0 {
			t.Fatalf("TryAcquire = %v, after token %d", err, last)
		}
		if g.Token <= last {
			t.Errorf(history.Broken+"token %d after %d: it is of the look before", g.Token, last)
		}
	})
}
