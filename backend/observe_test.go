package backend_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// looker is a store that is looked at: when, and what it answers.
type looker struct {
	start time.Time
	at    []time.Duration
	state backend.State
	err   error
	takes time.Duration
	left  int // looks until the caller leaves
}

func (l *looker) observe(ctx context.Context, every time.Duration,
	changed <-chan struct{},
) (closed bool, last error) {
	l.start = time.Now()
	closed = backend.ObserveBy(ctx, every, changed, func(context.Context) (backend.State, error) {
		l.at = append(l.at, time.Since(l.start))
		time.Sleep(l.takes)
		return l.state, l.err
	}, func(_ backend.State, err error) bool {
		last = err
		l.left--
		return l.left > 0
	})
	return closed, last
}

func (l *looker) want(t *testing.T, at ...time.Duration) {
	t.Helper()
	if !slices.Equal(l.at, at) {
		t.Errorf("looked at %v, want %v", l.at, at)
	}
}

const (
	ms     = time.Millisecond
	second = time.Second
)

func TestObserveByLooks(t *testing.T) {
	holders := func(left ...time.Duration) (s backend.State) {
		for _, ttl := range left {
			s.Holders = append(s.Holders, backend.Holder{Owner: "o", ID: "o", TTL: ttl})
		}
		return s
	}
	for name, c := range map[string]struct {
		looker
		want []time.Duration
	}{
		"at once and slowly": {
			looker{left: 3},
			[]time.Duration{0, 5 * second, 10 * second},
		},
		"at the end of a lease": {
			looker{left: 2, state: holders(700 * ms)},
			[]time.Duration{0, 701 * ms},
		},
		"at the first of the ends": {
			looker{left: 2, state: holders(time.Minute, 2*second)},
			[]time.Duration{0, 2001 * ms},
		},
		"sooner after no answer": {
			looker{left: 3, err: backend.ErrUnavailable},
			[]time.Duration{0, second, 2 * second},
		},
		"as soon after a slow one": {looker{
			left: 3, err: backend.ErrUnavailable,
			takes: 3 * second,
		}, []time.Duration{0, 4 * second, 8 * second}},
		"not again after a refusal": {looker{left: 3, err: backend.ErrDenied}, []time.Duration{0}},
		"not again without anything": {
			looker{left: 3, err: errors.ErrUnsupported},
			[]time.Duration{0},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				if closed, _ := c.observe(t.Context(), 5*second, nil); closed {
					t.Error("closed")
				}
				c.looker.want(t, c.want...)
			})
		})
	}
}

// A key that is written to all the time is looked at half of the time, and nothing is lost by that.
func TestObserveByRests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changed := make(chan struct{}, 1)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for ctx.Err() == nil {
				select {
				case changed <- struct{}{}:
				case <-ctx.Done():
				}
			}
		}()
		l := &looker{left: 4, takes: 10 * ms}
		_, _ = l.observe(ctx, 5*second, changed)
		l.want(t, 0, 20*ms, 40*ms, 60*ms)
	})
}

func TestObserveByEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), second)
		defer cancel()
		l := &looker{left: 100}
		closed, last := l.observe(ctx, 5*second, nil)
		if closed {
			t.Error("closed")
		}
		is(t, "the last element", last, context.DeadlineExceeded)
		l.want(t, 0)

		ended := make(chan struct{})
		close(ended)
		l = &looker{left: 100}
		if closed, last = l.observe(t.Context(), 5*second, ended); !closed || last != nil ||
			len(l.at) > 2 {
			t.Errorf("with a channel that is closed: %v, %v after %d looks", closed, last,
				len(l.at))
		}
	})
}

func TestSameHolders(t *testing.T) {
	state := func(holders ...backend.Holder) backend.State {
		return backend.State{Holders: holders}
	}
	a, b := backend.Holder{Owner: "a", ID: "a", Token: 1}, backend.Holder{
		Owner: "b", ID: "b",
		Token: 2,
	}
	renewed := a
	renewed.Token, renewed.TTL = 9, time.Hour
	// Of a library that gives no names.
	one, other := backend.Holder{Token: 1}, backend.Holder{Token: 2}
	for _, c := range []struct {
		x, y backend.State
		same bool
	}{
		{state(), state(), true},
		{state(a), state(), false},
		{state(a), state(renewed), true},
		{state(a, b), state(b, a), true},
		{state(a, b), state(a), false},
		{state(a), state(b), false},
		{state(one), state(one), true},
		{state(one), state(other), false},
	} {
		if got := c.x.SameHolders(c.y); got != c.same || c.y.SameHolders(c.x) != c.same {
			t.Errorf("SameHolders of %+v and %+v = %v", c.x, c.y, got)
		}
	}
}

func TestBaseObservesNothing(t *testing.T) {
	n := 0
	for _, err := range (backend.Base{}).Observe(t.Context(), "k") {
		n++
		is(t, "Observe", err, errors.ErrUnsupported)
	}
	if n != 1 {
		t.Errorf("%d elements", n)
	}
}
