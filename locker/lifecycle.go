package locker

import (
	"context"
	"sync"
)

// lifecycle counts what is under way, so that Close can refuse what is new and wait for the rest. (A sync.WaitGroup must not
// be added to while it is waited for at zero; here releases may begin while Close waits.)
type lifecycle struct {
	closing context.Context // done when Close begins: ends waits
	detach  context.Context // what clean-up runs on: neither the caller's ctx nor closing; done when Close runs out of time

	endWaits, endAll context.CancelCauseFunc

	mu     sync.Mutex
	closed bool
	open   int           // calls, holds and clean-ups under way
	idle   chan struct{} // closed when open first falls to 0 after Close began
	over   bool          // idle is closed
}

func newLifecycle() *lifecycle {
	l := &lifecycle{idle: make(chan struct{})}
	l.closing, l.endWaits = context.WithCancelCause(context.Background())
	l.detach, l.endAll = context.WithCancelCause(context.Background())
	return l
}

// enter counts something new, unless Close has begun.
func (l *lifecycle) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return false
	}
	l.open++
	return true
}

// follow counts something that belongs to what is counted already, so Close cannot have ended.
func (l *lifecycle) follow() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open++
}

// leave ends what enter or follow began.
func (l *lifecycle) leave() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
	l.check()
}

// check closes idle when Close has begun and nothing is under way. The caller has mu. Something may yet follow after that:
// the Unlock of a guard that was lost. It finds detach done.
func (l *lifecycle) check() {
	if l.closed && l.open == 0 && !l.over {
		l.over = true
		close(l.idle)
	}
}

// shut refuses what is new, ends waits, and returns a channel that is closed when all is over.
func (l *lifecycle) shut() <-chan struct{} {
	l.mu.Lock()
	l.closed = true
	l.check()
	l.mu.Unlock()
	l.endWaits(ErrClosed)
	return l.idle
}
