package main

import (
	"context"
	"errors"
	"io"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A writer is a terminal that does something when it is written to.
type writer func()

func (w writer) Write(p []byte) (int, error) {
	w()
	return len(p), nil
}

// A look is followed by 99 times as long without one, or by the interval if that is longer.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, interrupt := context.WithCancel(t.Context())
		began := time.Now()
		var looks []time.Duration // when they began
		var busy time.Duration
		stopped := writer(func() { // for a while, at the second frame
			if len(looks) == 2 {
				time.Sleep(5 * time.Second)
			}
		})
		err := live(ctx, func(took time.Duration) time.Duration {
			return pace(2*time.Second, took)
		}, stopped, func(context.Context) ([]byte, error) {
			looks = append(looks, time.Since(began))
			takes := []time.Duration{
				time.Millisecond, 20 * time.Millisecond, time.Second,
				300 * time.Millisecond, 0,
			}[len(looks)-1]
			time.Sleep(takes)
			if busy += takes; takes == 0 {
				time.AfterFunc(time.Second, interrupt) // within a pause
			}
			return nil, nil
		}, nil)
		if want := []int64{0, 2001, 9021, 109021, 139021}; err != nil ||
			!slices.EqualFunc(looks, want, func(d time.Duration, ms int64) bool {
				return d == time.Duration(ms)*time.Millisecond
			}) {
			t.Errorf("looks began after %v, %v; want %v ms", looks, err, want)
		}
		if took := time.Since(began); took != looks[len(looks)-1]+time.Second {
			t.Errorf("it ended after %v, and was interrupted 1s into the last pause", took)
		}
		if busy > looks[len(looks)-1]/100 {
			t.Errorf("%v of %v were looks", busy, looks[len(looks)-1])
		}
	})
}

// What goes wrong in the first look ends it, but for what comes of an interruption. Later a store
// that gives no answer is waited for, and one that refuses ends it.
func TestLiveEnds(t *testing.T) {
	failed := errors.New("no answer")
	never := func(time.Duration) time.Duration { return time.Hour }
	if err := live(t.Context(), never, io.Discard, func(context.Context) ([]byte, error) {
		return nil, failed
	}, nil); !errors.Is(err, failed) {
		t.Errorf("a look that fails: %v", err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	if err := live(ctx, never, io.Discard, func(context.Context) ([]byte, error) {
		interrupt()
		return nil, failed
	}, nil); err != nil {
		t.Errorf("a look that is interrupted: %v", err)
	}
	at := func(time.Duration) time.Duration { return time.Nanosecond }
	answers := []error{nil, failed, backend.ErrUnavailable, nil, failed, backend.ErrDenied, nil}
	looks, told := 0, 0
	err := live(t.Context(), at, io.Discard, func(context.Context) ([]byte, error) {
		looks++
		return nil, answers[looks-1]
	}, func(err error) {
		if told++; !errors.Is(err, failed) {
			t.Errorf("it tells of %v", err)
		}
	})
	// Once for each time without an answer.
	if !errors.Is(err, backend.ErrDenied) || looks != 6 || told != 2 {
		t.Errorf("after %d looks, of which %d were told of, it ended with %v", looks, told, err)
	}
	closed, _ := os.Open(os.DevNull)
	_ = closed.Close()
	if err := live(t.Context(), at, closed, func(context.Context) ([]byte, error) {
		return []byte("x"), nil
	}, nil); !errors.Is(err, os.ErrClosed) {
		t.Errorf("nobody reads: %v", err)
	}
}

// Holds are new that were not there in the last look, and nothing is said of the time before the
// first.
func TestNewHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := func(key string, owners ...string) lockView {
			var s backend.State
			for _, owner := range owners {
				s.Holders = append(s.Holders, backend.Holder{Owner: owner, ID: owner + "'s hold"})
			}
			return viewOf(key, s)
		}
		var top top
		for i, look := range []struct {
			views []lockView
			want  int
		}{
			{[]lockView{held("a", "1"), held("b", "1")}, 2},
			{[]lockView{held("a", "1"), held("b", "2"), held("c")}, 1},
			{[]lockView{held("b", "2", "3", "4"), held("c", "5")}, 3},
			{[]lockView{held("a", "1"), held("b", "2", "3", "4"), held("c", "5")}, 1},
			{nil, 0},
		} {
			began := time.Now()
			time.Sleep(100 * time.Millisecond)
			grants, within := top.count(began, look.views)
			want := 2100 * time.Millisecond
			if i == 0 {
				want = 0
			}
			if grants != look.want || within != want {
				t.Errorf("look %d: %d within %v, want %d within %v", i, grants, within, look.want,
					want)
			}
			time.Sleep(1900 * time.Millisecond)
		}
	})
}
