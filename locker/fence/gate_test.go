package fence_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker/fence"
)

func admit(t *testing.T, g *fence.Gate, key string, token uint64, want error) {
	t.Helper()
	ran := false
	err := g.Admit(t.Context(), key, token, func() error { ran = true; return nil })
	if !errors.Is(err, want) || ran != (want == nil) {
		t.Fatalf("%s %d: %v, ran: %v; want %v", key, token, err, ran, want)
	}
}

// covers: K4
func TestGate(t *testing.T) {
	var g fence.Gate
	admit(t, &g, "a", 5, nil)
	admit(t, &g, "a", 5, nil) // a holder writes more than once
	admit(t, &g, "a", 4, fence.ErrStale)
	admit(t, &g, "b", 4, nil) // another lock
	admit(t, &g, "a", 6, nil)
	admit(t, &g, "a", 5, fence.ErrStale)
	admit(t, &g, "a", 0, backend.ErrInvalid)
	admit(t, &g, "a", 1<<63, backend.ErrInvalid)

	var stale *fence.StaleError
	err := g.Admit(t.Context(), "a", 5, nil)
	if !errors.As(err, &stale) || stale.Key != "a" || stale.Token != 5 || stale.Newest != 6 {
		t.Errorf("%+v, %v", stale, err)
	}
	const text = `holdfast: fence "a": token 5 after 6: stale token: a newer holder was here`
	if err.Error() != text {
		t.Errorf("%v, want %s", err, text)
	}
	if err := g.Admit(t.Context(), "a", 7, nil); err != nil { // announced, ahead of a read
		t.Error(err)
	}
	admit(t, &g, "a", 6, fence.ErrStale)
	own := errors.New("own")
	//nolint:errorlint // as it is
	if err := g.Admit(t.Context(), "a", 7, func() error { return own }); err != own {
		t.Error(err)
	}
}

// An older operation that is under way ends before a newer one begins; nothing of it comes in
// between.
func TestGateWaitsForOlder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		var log []string
		hold, second := make(chan struct{}), make(chan struct{})
		var tasks sync.WaitGroup
		tasks.Go(func() {
			admitted(t, g.Admit(t.Context(), "k", 1, func() error {
				<-hold
				log = append(log, "older")
				return nil
			}))
		})
		synctest.Wait()
		tasks.Go(func() { // the same holder does several things at once
			admitted(t, g.Admit(t.Context(), "k", 1, func() error { <-second; return nil }))
		})
		synctest.Wait()
		for range 2 {
			tasks.Go(func() {
				admitted(t, g.Admit(t.Context(), "k", 2, func() error {
					g2 := len(log)
					if g2 == 0 || log[0] != "older" {
						t.Error("a newer one runs before an older one has ended")
					}
					return nil
				}))
			})
		}
		synctest.Wait()
		admit(t, &g, "k", 1, fence.ErrStale) // the newer one waits, and is marked
		admit(t, &g, "other", 1, nil)

		short, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Admit(short, "k", 2, func() error { t.Error("ran"); return nil })
		if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, fence.ErrStale) {
			t.Errorf("the time is over: %v", err)
		}
		close(hold)
		synctest.Wait()
		if len(log) != 1 {
			t.Errorf("log: %v", log)
		}
		close(second)
		tasks.Wait()
		admit(t, &g, "k", 2, nil)
	})
}

func admitted(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Error(err)
	}
}

// Whoever waits behind an older one and is overtaken by a newer one is refused.
func TestGateOvertakenWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var g fence.Gate
		hold := make(chan struct{})
		var tasks sync.WaitGroup
		tasks.Go(func() {
			admitted(t, g.Admit(t.Context(), "k", 1, func() error { <-hold; return nil }))
		})
		synctest.Wait()
		tasks.Go(func() {
			err := g.Admit(t.Context(), "k", 2, func() error { t.Error("ran"); return nil })
			if !errors.Is(err, fence.ErrStale) {
				t.Errorf("overtaken: %v", err)
			}
		})
		synctest.Wait()
		tasks.Go(func() { admitted(t, g.Admit(t.Context(), "k", 3, nil)) })
		synctest.Wait()
		close(hold)
		tasks.Wait()
	})
}

// Many holders at once: what ran did so in the order of the tokens, and never two holders at a
// time.
func TestGateUnderLoad(t *testing.T) {
	var g fence.Gate
	var inside atomic.Uint64
	var last, ran uint64
	var mu sync.Mutex
	var tasks sync.WaitGroup
	for worker := range 8 {
		tasks.Go(func() {
			for i := range 2000 {
				token := uint64(i*8 + worker + 1)
				err := g.Admit(t.Context(), "k", token, func() error {
					if was := inside.Swap(token); was != 0 {
						t.Errorf("%d is inside with %d", was, token)
					}
					mu.Lock()
					if token < last {
						t.Errorf("%d after %d", token, last)
					}
					last, ran = token, ran+1
					mu.Unlock()
					inside.Store(0)
					return nil
				})
				if err != nil && !errors.Is(err, fence.ErrStale) {
					t.Error(err)
				}
			}
		})
	}
	tasks.Wait()
	if ran == 0 || last != 16000 {
		t.Errorf("%d ran, the last %d", ran, last)
	}
}

// A panic of an operation leaves the gate open.
func TestGatePanic(t *testing.T) {
	var g fence.Gate
	func() {
		defer func() { _ = recover() }()
		_ = g.Admit(t.Context(), "k", 1, func() error { panic("x") })
	}()
	admit(t, &g, "k", 2, nil)
}
