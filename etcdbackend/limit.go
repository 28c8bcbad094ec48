package etcdbackend

import (
	"context"
	"sync"
	"time"
)

// A limiter ends requests that take too long. It has one timer for all, which hardly anybody touches: a context with a deadline
// sets one for each request, here and (as gRPC sends deadlines along) in the server.
type limiter struct {
	mu     sync.Mutex
	ring   limit // those under way, in the order of their ends
	timer  *time.Timer
	due    time.Time // when timer fires; zero if it is not set
	closed bool
}

// A limit is the context of one request.
type limit struct {
	context.Context
	cancel     context.CancelFunc
	at         time.Time
	prev, next *limit // nil when it has ended
}

func newLimiter() *limiter {
	l := &limiter{}
	l.ring.prev, l.ring.next = &l.ring, &l.ring
	return l
}

// begin returns a context that ends with ctx, at a moment, or with close. The caller ends it.
func (l *limiter) begin(ctx context.Context, at time.Time) *limit {
	if _, dated := ctx.Deadline(); dated {
		ctx = undated{ctx}
	}
	one := &limit{at: at}
	one.Context, one.cancel = context.WithCancel(ctx)
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		one.cancel()
		return one
	}
	before := l.ring.prev
	for before != &l.ring && at.Before(before.at) { // seldom: nearly all are given as long as the one before
		before = before.prev
	}
	one.prev, one.next = before, before.next
	before.next, one.next.prev = one, one
	if l.due.IsZero() || at.Before(l.due) {
		l.set(at)
	}
	return one
}

// end lets go of a context.
func (l *limiter) end(one *limit) {
	l.mu.Lock()
	one.leave()
	l.mu.Unlock()
	one.cancel()
}

// expire is the timer's function.
func (l *limiter) expire() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.due = time.Time{}
	now := time.Now()
	for one := l.ring.next; one != &l.ring; one = l.ring.next {
		if now.Before(one.at) {
			l.set(one.at)
			return
		}
		one.leave()
		one.cancel()
	}
}

// close ends all requests, and those that come later.
func (l *limiter) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	for one := l.ring.next; one != &l.ring; one = l.ring.next {
		one.leave()
		one.cancel()
	}
	if l.timer != nil {
		l.timer.Stop()
	}
}

// set sets the timer. The caller has mu.
func (l *limiter) set(at time.Time) {
	l.due = at
	if l.timer == nil {
		l.timer = time.AfterFunc(time.Until(at), l.expire)
		return
	}
	l.timer.Reset(time.Until(at))
}

// leave takes one out of the ring. The caller has mu.
func (one *limit) leave() {
	if one.next != nil {
		one.prev.next, one.next.prev = one.next, one.prev
		one.prev, one.next = nil, nil
	}
}

// undated hides a deadline, and still ends at it.
type undated struct{ context.Context }

func (undated) Deadline() (t time.Time, ok bool) { return t, false }

// A span is the context of one verb: it ends with the caller's, with Close, and after RequestTimeout. Requests keep to it by
// limits of their own; for whoever waits for anything else, it makes its channel when it is asked for.
type span struct {
	context.Context // the caller's
	closing         context.Context
	until           time.Time

	mu     sync.Mutex
	made   context.Context // nil until asked for
	cancel func()
}

func (s *span) Deadline() (time.Time, bool) { return s.until, true }

func (s *span) Err() error {
	switch {
	case s.Context.Err() != nil:
		return s.Context.Err()
	case s.closing.Err() != nil:
		return s.closing.Err()
	case !time.Now().Before(s.until):
		return context.DeadlineExceeded
	}
	return nil
}

func (s *span) Done() <-chan struct{} { return s.make().Done() }

// Value is the made context's, if there is one: it may be that of which a child is made.
func (s *span) Value(key any) any {
	s.mu.Lock()
	made := s.made
	s.mu.Unlock()
	if made == nil {
		return s.Context.Value(key)
	}
	return made.Value(key)
}

func (s *span) make() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.made == nil {
		ctx, cancel := context.WithDeadline(s.Context, s.until)
		stop := context.AfterFunc(s.closing, cancel)
		s.made, s.cancel = ctx, func() { stop(); cancel() }
	}
	return s.made
}

// end lets go of what was made.
func (s *span) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancel != nil {
		s.cancel()
	}
}
