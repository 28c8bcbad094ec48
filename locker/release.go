package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// withdrawGrace is how long a failing Lock waits for its clean-up, so that usually nothing is left
// when it returns. A store that takes longer is cleaned up behind the caller.
const withdrawGrace = 100 * time.Millisecond

// maxTimeout caps what defaults to the TTL: a hung store does not silence Lock and Unlock for
// longer.
const maxTimeout = 30 * time.Second

// storeTimeout is how long a store may be silent.
func (c *core) storeTimeout(ttl time.Duration) time.Duration {
	if c.cfg.StoreTimeout > 0 {
		return c.cfg.StoreTimeout
	}
	return min(ttl, maxTimeout)
}

// releaseTimeout is how long a release may take.
func (c *core) releaseTimeout(ttl time.Duration) time.Duration {
	if c.cfg.ReleaseTimeout > 0 {
		return c.cfg.ReleaseTimeout
	}
	return min(ttl, maxTimeout)
}

// giveUp ends a lease and releases it in the store.
func (c *core) giveUp(ctx context.Context, l *lease) error {
	defer c.drop(ctx, l)()
	claim := c.claimForRelease(l)
	leaves := l.save != nil || l.notBefore > 0
	if leaves {
		with := *claim
		with.Save, with.NotBefore = l.save, l.notBefore
		claim = &with
	}
	err := c.release(ctx, claim, Hold{Key: l.info.Key, Mode: l.info.Mode, Token: l.token})
	if leaves && errors.Is(err, errReleasedBefore) && !l.expired(c.now()) {
		return nil // until now only that release can have ended the hold
	}
	return err
}

// errReleasedBefore is what a release comes to that leaves something, was not answered, and finds
// the hold gone when it is repeated: the first has left it, or else the lease ran out before it.
var errReleasedBefore = errors.New("the lease is over, and a release before was not answered")

// expired reports whether the deadline has passed.
func (l *lease) expired(now instant) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return now >= l.until
}

// release tells the store to forget claim, again and again until it answers or the timeout is over.
// It never runs on the caller's ctx, which may be long done and gives values alone: a release under
// a dead ctx is not sent at all, and the lock stays for a TTL (redsync, open-match#1578, ncps#913).
// What it leaves to the lease's end when the store stays silent is not an error of safety.
//
// Nearly every release is answered at once, and the backend bounds each request: so the first has
// a ctx that never ends, unless a timeout is configured that may be shorter.
func (c *core) release(ctx context.Context, claim *backend.Claim, info Hold) (err error) {
	ctx, end := c.observe(context.WithoutCancel(ctx), OpRelease, info)
	defer func() { end(info, err) }()
	began := time.Now()
	if c.cfg.ReleaseTimeout > 0 {
		limited, cancel := context.WithTimeout(ctx, c.cfg.ReleaseTimeout)
		err = c.b.Release(limited, *claim)
		cancel()
	} else {
		err = c.b.Release(ctx, *claim)
	}
	if err != nil && !released(err) {
		return c.releaseAgain(ctx, claim, info, err, c.releaseTimeout(claim.TTL)-time.Since(began))
	}
	c.heard()
	return err
}

// detached returns a context with the values of ctx, which ends after limit, or when Close runs out
// of time. After that, an Unlock that comes late still asks the store.
func (c *core) detached(ctx context.Context, limit time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	if c.cut.Err() != nil {
		return ctx, cancel
	}
	stop := context.AfterFunc(c.cut, cancel)
	return ctx, func() { stop(); cancel() }
}

// released reports whether err is an answer that repeating the release cannot change.
func released(err error) bool {
	return err == nil || errors.Is(err, backend.ErrLost) || backend.Refused(err)
}

// releaseAgain repeats a release that was not answered.
func (c *core) releaseAgain(ctx context.Context, claim *backend.Claim, info Hold, err error, rest time.Duration) error {
	ctx, cancel := c.detached(ctx, rest)
	defer cancel()
	retry := waiting.NewBackoff(retryFirst, retryMost)
	unknown := false
	cause := err
	for {
		unknown = unknown || backend.AnswerOf(err) == backend.Unknown
		if !waiting.Pause(ctx, retry.Next()) {
			c.owed.add(ctx, claim, info)
			return fmt.Errorf("store did not confirm, the lease runs out by itself: %w", cause)
		}
		err = c.b.Release(ctx, *claim)
		if ctx.Err() == nil { // the last request is cut short, and only says so
			cause = err
		}
		switch {
		case errors.Is(err, backend.ErrLost) && unknown:
			// Whoever releases believed in the hold when it did. Until that belief's deadline only
			// a release of this claim can have ended the hold, and the one that was not answered is
			// such a release.
			if claim.Save != nil || claim.NotBefore > 0 {
				return errReleasedBefore // whoever knows the deadline decides
			}
			return nil
		case released(err):
			return err
		}
	}
}

// forget releases a claim that came to nothing, and returns when the store has confirmed it or
// withdrawGrace is over. It then goes on behind the caller, for as long as the claim's lease could
// last. While the store owes answers to others, it does not wait at all.
func (c *core) forget(ctx context.Context, claim *backend.Claim, info Hold) {
	if !c.owed.empty() {
		c.owed.add(ctx, claim, info)
		return
	}
	if !released(c.releaseWithin(ctx, withdrawGrace, claim, info)) {
		c.owed.add(ctx, claim, info)
	}
}

// releaseWithin makes one request that lasts no longer than limit.
func (c *core) releaseWithin(ctx context.Context, limit time.Duration, claim *backend.Claim, info Hold) error {
	ctx, cancel := c.detached(ctx, limit)
	defer cancel()
	ctx, end := c.observe(ctx, OpRelease, info)
	err := c.b.Release(ctx, *claim)
	end(info, err)
	return err
}

// abandon unlocks a hold that its caller will never see, and goes on behind the caller if that
// takes long.
func (c *core) abandon(h *hold) {
	done := make(chan struct{})
	c.add()
	go func() {
		defer c.done()
		defer close(done)
		_ = h.unlock()
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

// owed are releases that the store has not confirmed, of claims whose callers have gone on. One
// goroutine sees to them, one request at a time: while the store is silent that is one probe, and
// when it answers they go one after the other. What is not confirmed within the claim's TTL has run
// out by itself.
type owed struct {
	core *core

	mu      sync.Mutex
	list    []debt // oldest first
	working bool
	dropped int // since the last log
}

// maxOwed bounds the list. Beyond, the oldest is left to its lease.
const maxOwed = 1 << 12

// A debt is one release that is owed.
type debt struct {
	ctx   context.Context // for its values
	claim backend.Claim
	info  Hold
	until time.Time
}

// empty reports whether nothing is owed.
func (o *owed) empty() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.working
}

// add has claim released behind the caller.
func (o *owed) add(ctx context.Context, claim *backend.Claim, info Hold) {
	d := debt{context.WithoutCancel(ctx), *claim, info, time.Now().Add(claim.TTL + maxTimeout)}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.core.cut.Err() != nil {
		o.dropped++
		return
	}
	if len(o.list) == maxOwed {
		o.list = o.list[1:]
		o.dropped++
	}
	o.list = append(o.list, d)
	if !o.working {
		o.working = true
		o.core.add()
		go o.work()
	}
}

// drop forgets what is owed, as Close has run out of time, and returns how many releases that were.
func (o *owed) drop() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := len(o.list) + o.dropped
	o.list, o.dropped = nil, 0
	return n
}

// work sees to the list until it is empty. What is not answered goes to the end, as another may be
// (of another shard).
func (o *owed) work() {
	c := o.core
	defer c.done()
	retry := waiting.NewBackoff(retryFirst, 4*retryMost)
	for {
		o.mu.Lock()
		if len(o.list) == 0 {
			o.working = false
			dropped := o.dropped
			o.dropped = 0
			o.mu.Unlock()
			if dropped > 0 {
				c.cfg.Logger.Warn("holdfast: releases that the store did not confirm were given up; the leases run out by themselves",
					"releases", dropped)
			}
			return
		}
		d := o.list[0]
		o.list = o.list[1:]
		o.mu.Unlock()
		err := c.releaseWithin(d.ctx, c.releaseTimeout(d.claim.TTL), &d.claim, d.info)
		switch {
		case released(err):
			retry.Reset()
			if err != nil && !errors.Is(err, backend.ErrLost) {
				c.cfg.Logger.Warn("holdfast: could not release a lock; its lease runs out by itself", "key", d.info.Key, "error", err)
			}
			continue
		case time.Now().After(d.until):
			o.mu.Lock()
			o.dropped++
			o.mu.Unlock()
		default:
			o.mu.Lock()
			if c.cut.Err() == nil {
				o.list = append(o.list, d)
			}
			o.mu.Unlock()
		}
		waiting.Pause(c.cut, retry.Next())
	}
}
