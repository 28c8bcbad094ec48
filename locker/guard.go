package locker

import (
	"context"
	"time"
)

// A Guard is a held lock and the value it protects. It is safe for concurrent use. Unlock it.
//
// A guard that is dropped without Unlock is noticed by the garbage collector, some time: it is renewed no more and logged
// with its caller, and the lease then runs out by itself, since code may still be at work. A guard is not dropped while its
// Context is in use, or a context derived from it has not been cancelled: Config.MaxHold bounds that. A nil or zero Guard
// behaves like an unlocked one. A Guard must not be copied: the copy would not count as in use.
type Guard[T any] struct {
	_ noCopy
	anchor
	v T
}

// noCopy lets go vet report copies.
type noCopy struct{}

func (*noCopy) Lock()   {}
func (*noCopy) Unlock() {}

func newGuard[T any](k *keeper, v T) *Guard[T] {
	g := &Guard[T]{anchor: anchor{k}, v: v}
	k.watchOver(&g.anchor)
	return g
}

// Value returns the protected value while the hold is provably good, else an error that wraps [ErrLost], [ErrMaxHold] or
// [ErrUnlocked]. It asks nobody. Call it before each use rather than keeping the value.
func (g *Guard[T]) Value() (T, error) {
	var none T
	if g == nil || g.k == nil {
		return none, &Error{"value", "", ErrUnlocked}
	}
	if err := g.k.valid(); err != nil {
		return none, &Error{"value", g.k.hold.Key, err}
	}
	return g.v, nil
}

// Context returns a context for the work under the lock. It is done when the hold ends, and its Cause then wraps [ErrLost],
// [ErrMaxHold] or [ErrUnlocked]. Derived from the ctx given to Lock, it is also done when that one is; the hold then goes on.
//
// After the machine was suspended, it may take up to a third of the TTL to end; Value and Check know at once.
func (g *Guard[T]) Context() context.Context {
	if g == nil || g.k == nil {
		return unlocked
	}
	return holdContext{&g.anchor}
}

// Lost returns a channel that is closed when the hold is lost. It is not closed by Unlock or by Config.MaxHold.
func (g *Guard[T]) Lost() <-chan struct{} {
	if g == nil || g.k == nil {
		return nil
	}
	return g.k.lostChan()
}

// Hold says what is held.
func (g *Guard[T]) Hold() Hold {
	if g == nil || g.k == nil {
		return Hold{}
	}
	return g.k.hold
}

// Until returns the local deadline that the hold is provably good for. Renewals move it.
func (g *Guard[T]) Until() time.Time {
	if g == nil || g.k == nil {
		return time.Time{}
	}
	g.k.mu.Lock()
	defer g.k.mu.Unlock()
	if until := g.k.c.until(g.k.until); g.k.cause == nil || until.Before(g.k.ended) {
		return until
	}
	return g.k.ended
}

// Check asks the store now whether the lock is still held, and renews it if so. It blocks for a round trip, until ctx is
// done, or until the deadline. The error wraps the cause if the hold ended; any other means that the store gave no answer
// and the hold is as good as it was.
func (g *Guard[T]) Check(ctx context.Context) error {
	if g == nil || g.k == nil {
		return &Error{"check", "", ErrUnlocked}
	}
	if err := g.k.check(ctx); err != nil {
		return &Error{"check", g.k.hold.Key, err}
	}
	return nil
}

// Unlock ends the hold and releases the lock, and returns when the store has confirmed it or Config.ReleaseTimeout is over:
// it takes no ctx, because locks leak by passing a dead one. The guard is unusable from the moment of the call.
//
// It returns nil if the hold was good until the call. The error wraps [ErrLost] or [ErrMaxHold] if the hold ended earlier,
// which means that work under it may have overlapped with another holder's. Any other error means that the store did not
// confirm: the lease then runs out by itself. Further calls return the same.
func (g *Guard[T]) Unlock() error {
	if g == nil || g.k == nil {
		return &Error{"unlock", "", ErrUnlocked}
	}
	if err := g.k.unlock(); err != nil {
		return &Error{"unlock", g.k.hold.Key, err}
	}
	return nil
}
