package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// release tells the store to forget claim, again and again until it answers or the budget is spent. It never runs on the
// caller's ctx, which may be long done: a release under a dead ctx is not sent at all, and the lock stays for a TTL (redsync,
// open-match#1578, ncps#913). What it leaves to the lease's end when the store stays silent is not an error of safety.
//
// An ErrLost that follows an unanswered release is most likely that release's own work, see below.
func (c *core) release(ctx context.Context, claim backend.Claim, hold Hold, budget time.Duration) (err error) {
	ctx, end := c.begin(ctx, OpRelease, hold)
	defer func() { end(hold, err) }()
	ctx, cancel := context.WithTimeout(detached{c.life.detach, ctx}, budget)
	defer cancel()
	var retry *waiting.Backoff // most releases need none
	for unanswered := false; ; {
		err := c.b.Release(ctx, claim)
		switch {
		case err == nil:
			return nil
		case errors.Is(err, backend.ErrLost) && unanswered:
			// Whoever calls release believed in the hold when it did. Until that belief's deadline only a release of this
			// claim can have ended the hold, and the one that was not answered is such a release.
			return nil
		case errors.Is(err, backend.ErrLost), backend.Refused(err):
			return err
		}
		unanswered = unanswered || backend.AnswerOf(err) == backend.Unknown
		if retry == nil {
			retry = waiting.NewBackoff(retryFirst, retryMost)
		}
		if !waiting.Pause(ctx, retry.Next()) {
			return fmt.Errorf("store did not confirm, the lease runs out by itself: %w", err)
		}
	}
}

// detached is a context that ends with the Client, and has the values of a call. The Client's own comes first, as package
// context looks for its own kind of parent among the values.
type detached struct {
	context.Context
	values context.Context
}

// Value returns the Client's value for key, or else the call's.
func (d detached) Value(key any) any {
	if v := d.Context.Value(key); v != nil {
		return v
	}
	return d.values.Value(key)
}

// withdraw undoes an acquisition that came to nothing: its place in line, a grant whose reply was lost, and an attempt that
// is still on its way (refused by the tombstone when it lands). It returns when that is done, or after withdrawGrace, and
// then goes on in the background for as long as the claim's lease could last.
func (a *acquisition) withdraw(ctx context.Context) {
	if !a.asked || !a.unsure && !a.claim.Queue {
		return // every question was answered with a definite no, and nobody stands in line
	}
	c, claim, hold := a.core, a.claim, a.hold
	claim.NoneInFlight = !a.unsure
	budget := max(orTTL(c.cfg.ReleaseTimeout, claim.TTL), claim.TTL)
	done := make(chan struct{})
	c.life.follow()
	go func() {
		defer c.life.leave()
		defer close(done)
		err := c.release(ctx, claim, hold, budget)
		if err != nil && !errors.Is(err, backend.ErrLost) {
			c.cfg.Logger.Warn("holdfast: could not withdraw a claim; if it was granted, its lease runs out by itself",
				"key", hold.Key, "ttl", claim.TTL, "error", err)
		}
	}()
	patiently(done)
}

// abandon unlocks a hold that its caller will never see, and goes on behind the caller's back if that takes long.
func (c *core) abandon(k *keeper) {
	done := make(chan struct{})
	c.life.follow()
	go func() {
		defer c.life.leave()
		defer close(done)
		_ = k.unlock()
	}()
	patiently(done)
}

// patiently waits until done is closed, for withdrawGrace at most. Nil is nothing to wait for.
func patiently(done <-chan struct{}) {
	if done == nil {
		return
	}
	grace := time.NewTimer(withdrawGrace)
	defer grace.Stop()
	select {
	case <-done:
	case <-grace.C:
	}
}
