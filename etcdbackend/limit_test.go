package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// Requests end when their time is up, in whatever order they came, and one that was answered does not hold up the others.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		start := time.Now()
		ends := make(chan time.Duration, 5)
		for _, d := range []int{5, 3, 9, 3, 1, 7} {
			one := l.begin(t.Context(), start.Add(time.Duration(d)*time.Second))
			if d == 7 {
				l.end(one)
				if one.Err() == nil {
					t.Error("a request that was answered has a context that goes on")
				}
				continue
			}
			go func() {
				<-one.Done()
				ends <- time.Since(start)
				l.end(one)
				l.end(one) // once more does nothing
			}()
		}
		time.Sleep(20 * time.Second)
		synctest.Wait()
		close(ends)
		var ended []time.Duration
		for d := range ends {
			ended = append(ended, d)
		}
		if want := []time.Duration{1e9, 3e9, 3e9, 5e9, 9e9}; !slices.Equal(ended, want) {
			t.Errorf("ended after %v, want %v", ended, want)
		}
		if l.ring.next != &l.ring || l.ring.prev != &l.ring || !l.due.IsZero() {
			t.Errorf("left: a request, or a timer for %v", l.due)
		}
		again := l.begin(t.Context(), time.Now().Add(time.Second))
		time.Sleep(time.Second)
		synctest.Wait()
		if again.Err() == nil {
			t.Error("the timer was not set again")
		}
	})
}

// A request ends with its caller and with Close, and the server is not told of the caller's deadline.
func TestLimitsEndEarlier(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLimiter()
		caller, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		far := time.Now().Add(time.Hour)
		dated, other := l.begin(caller, far), l.begin(t.Context(), far)
		if _, ok := dated.Deadline(); ok {
			t.Error("the request has a deadline")
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if dated.Err() == nil || other.Err() != nil {
			t.Errorf("the caller's end: %v, another's: %v", dated.Err(), other.Err())
		}
		l.close()
		if late := l.begin(t.Context(), far); other.Err() == nil || late.Err() == nil {
			t.Errorf("Close: %v, and a request after it: %v", other.Err(), late.Err())
		}
		l.end(other)
		l.end(dated)
	})
}

// A span ends with each of three, whether somebody waits for it or just asks.
func TestSpan(t *testing.T) {
	type valueKey struct{}
	for name, c := range map[string]struct {
		end   func(caller, closing context.CancelFunc)
		error error
	}{
		"caller":  {func(caller, _ context.CancelFunc) { caller() }, context.Canceled},
		"close":   {func(_, closing context.CancelFunc) { closing() }, context.Canceled},
		"timeout": {func(_, _ context.CancelFunc) { time.Sleep(3 * time.Second) }, context.DeadlineExceeded},
	} {
		for _, waits := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					caller, cancel := context.WithCancel(context.WithValue(t.Context(), valueKey{}, "theirs"))
					closing, closed := context.WithCancel(t.Context())
					s := &span{Context: caller, closing: closing, until: time.Now().Add(3 * time.Second)}
					defer s.end()
					var child context.Context = s
					if waits {
						var stop context.CancelFunc
						child, stop = context.WithCancel(s)
						defer stop()
					}
					if s.Err() != nil || child.Value(valueKey{}) != "theirs" {
						t.Errorf("Err = %v, Value = %v", s.Err(), child.Value(valueKey{}))
					}
					c.end(cancel, closed)
					synctest.Wait()
					if !errors.Is(s.Err(), c.error) || child.Err() == nil {
						t.Errorf("Err = %v, of a child %v, want %v", s.Err(), child.Err(), c.error)
					}
					cancel()
					closed()
				})
			})
		}
	}
}
