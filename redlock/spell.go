package redlock

import (
	"context"
	"sync"
	"time"
)

// A spell is for how long each request of a verb is waited for. Those that are sent at the same time share a ctx and a timer: to have
// one each is a fifth of what a request costs.
type spell struct {
	parent context.Context // its values alone
	limit  time.Duration

	mu     sync.Mutex
	window *window // the last one; nil before the first request
}

// A window is the ctx of requests that were sent together.
type window struct {
	ctx    context.Context
	cancel context.CancelFunc
	opened time.Time
	users  int // guarded by the spell's mu
}

// newSpell runs on the values of ctx, not on its end: what was sent must be known to be answered or not, whoever is still interested.
func newSpell(ctx context.Context, limit time.Duration) *spell {
	return &spell{parent: context.WithoutCancel(ctx), limit: limit}
}

// enter returns a window for a request that is sent now. One that others have is as good if it was opened just now; what a request then
// lacks of the limit is no more than clocks and schedulers differ by.
func (s *spell) enter() *window {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if w := s.window; w == nil || w.users == 0 || now.Sub(w.opened) > s.limit/64 {
		w = &window{opened: now}
		w.ctx, w.cancel = context.WithTimeout(s.parent, s.limit)
		s.window = w
	}
	s.window.users++
	return s.window
}

// leave ends a request's part in w.
func (s *spell) leave(w *window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.users--; w.users == 0 {
		w.cancel()
	}
}
