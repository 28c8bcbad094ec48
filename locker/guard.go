package locker

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A Guard is a held lock and the value it protects. It is safe for concurrent use. Unlock it.
//
// A guard that is dropped without Unlock is renewed no more, is logged with the place where it was
// locked, and its lease then runs out by itself, since code may still be at work. That is noticed
// at the first renewal after the garbage collector has run, which Go does every two minutes at
// least. A guard is not dropped while its Context is in use, or a context derived from it has not
// been cancelled: Config.MaxHold bounds that. A nil or zero Guard behaves like an unlocked one. A
// Guard must not be copied: the copy would not count as in use.
type Guard[T any] struct {
	_ noCopy
	handle
	v T
}

// noCopy lets go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

// Value returns the protected value while the hold is provably good, else an error that wraps
// [ErrLost], [ErrMaxHold], [ErrClosed] or [ErrUnlocked]. It asks nobody. Call it before each use
// rather than keeping the value.
func (g *Guard[T]) Value() (T, error) {
	var none T
	if g == nil || g.h == nil {
		return none, &Error{"value", "", ErrUnlocked}
	}
	if err := g.h.valid(); err != nil {
		return none, &Error{"value", g.h.info.Key, err}
	}
	return g.v, nil
}

// Context returns a context for the work under the lock. It is done when the hold ends, and its
// Cause then wraps [ErrLost], [ErrMaxHold], [ErrClosed] or [ErrUnlocked]. Derived from the ctx
// given to Lock, it is also done when that one is; the hold then goes on, and if it was out of time
// the Cause says so and names [WaitLimit].
//
// After the machine was suspended, it may take up to a third of the TTL to end; Value and Check
// know at once.
func (g *Guard[T]) Context() context.Context {
	if g == nil || g.h == nil {
		return unlocked
	}
	return holdContext{&g.handle}
}

// Lost returns a channel that is closed when the hold is lost. It is not closed by Unlock or by
// Config.MaxHold.
func (g *Guard[T]) Lost() <-chan struct{} {
	if g == nil || g.h == nil {
		return nil
	}
	return g.h.lostChan()
}

// Hold says what is held.
func (g *Guard[T]) Hold() Hold {
	if g == nil || g.h == nil {
		return Hold{}
	}
	return g.h.info
}

// Until returns the local deadline until which the hold is provably good. Renewals move it.
func (g *Guard[T]) Until() time.Time {
	if g == nil || g.h == nil {
		return time.Time{}
	}
	return g.h.goodUntil()
}

// Check asks the store now whether the lock is still held, and renews it if so. It blocks for a
// round trip, until ctx is done, or until the deadline. The error wraps the cause if the hold
// ended; any other means that the store gave no answer and the hold is as good as it was.
func (g *Guard[T]) Check(ctx context.Context) error {
	if g == nil || g.h == nil {
		return &Error{"check", "", ErrUnlocked}
	}
	if err := g.h.lease.check(ctx, g.h); err != nil {
		return &Error{"check", g.h.info.Key, err}
	}
	return nil
}

// Unlock ends the hold and releases the lock, and returns when the store has confirmed it or
// Config.ReleaseTimeout is over: it takes no ctx, because locks leak by passing a dead one. The
// guard is unusable from the moment of the call.
//
// It returns nil if the hold was good until the call. The error wraps [ErrLost] or [ErrMaxHold] if
// the hold ended earlier, which means that work under it may have overlapped with another holder's.
// Any other error means that the store did not confirm: the lease then runs out by itself. Further
// calls return the same.
func (g *Guard[T]) Unlock() error { return g.unlock(byUnlock, nil) }

// Forgo is [Guard.Unlock] for a job that was not done: it gives the period of [OncePer] back, so
// that another may run the job in it. Without OncePer it is Unlock. If Unlock was called before, it
// does nothing more.
func (g *Guard[T]) Forgo() error { return g.unlock(byForgo, nil) }

func (g *Guard[T]) unlock(how way, store backend.Backend) error {
	if g == nil || g.h == nil {
		return &Error{"unlock", "", ErrUnlocked}
	}
	if err := g.h.unlock(how, store); err != nil {
		return &Error{"unlock", g.h.info.Key, err}
	}
	return nil
}

// unlocked is the Context of a nil Guard.
var unlocked = func() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(ErrUnlocked)
	return ctx
}()
