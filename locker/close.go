package locker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// closeGrace is how long Close waits for the Unlocks.
const closeGrace = 10 * time.Second

// Close ends the Client. Pending and later calls fail with [ErrClosed]. The contexts of what is
// held end with cause ErrClosed, and Close waits until every guard is unlocked and every clean-up
// is done, for ten seconds at most. Until then the leases are renewed, so that whoever stops and
// unlocks has held the lock to the end.
//
// A guard that is still not unlocked then is lost ([ErrLost] with ErrClosed): its lease is renewed
// no more and runs out by itself, as code may still be at work under it. The error names it, with
// the place where it was locked, and wraps [context.DeadlineExceeded]. An Unlock that comes even
// later still releases the lock in the store.
//
// No goroutine of the Client is left either way; a request that is under way is waited for, up to
// the backend's request timeout. Close may be called twice, and concurrently.
func (c *Client[T]) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeGrace)
	defer cancel()
	c.core.refuseNew()
	c.core.endHolds(ErrClosed)
	return c.core.drain(ctx)
}

// Shutdown is Close without haste: the contexts of what is held go on, and it waits for the Unlocks
// until ctx is done. Then it is like Close at the end of its time, and the error wraps ctx.Err.
func (c *Client[T]) Shutdown(ctx context.Context) error {
	c.core.refuseNew()
	return c.core.drain(ctx)
}

// refuseNew fails pending and later calls with ErrClosed.
func (c *core) refuseNew() {
	c.mu.Lock()
	c.refuse(ErrClosed) // with mu: no cohort begins after it, and nothing becomes free
	if open := c.open.Load(); open >= 0 && c.open.Add(closedOpen) == closedOpen {
		c.closeIdle()
	}
	cohorts := slices.Collect(maps.Values(c.cohorts))
	for _, k := range c.free {
		if k.timer != nil {
			k.timer.Stop()
		}
	}
	c.free = nil
	c.mu.Unlock()
	for _, co := range cohorts {
		co.close()
	}
}

// endHolds ends every hold because of cause. Each later one looks at closing when it begins.
func (c *core) endHolds(cause error) {
	for _, l := range c.allLeases() {
		if h := l.holder(); h != nil {
			h.end(c.now(), cause)
		}
	}
}

// allLeases returns the leases that are held. One that is on its way to the caller that waited for
// it may be missing: its hold looks for Close itself, see newHold.
func (c *core) allLeases() []*lease {
	c.mu.Lock()
	all, cohorts := slices.Collect(maps.Keys(c.alone)), slices.Collect(maps.Values(c.cohorts))
	c.mu.Unlock()
	for _, co := range cohorts {
		co.mu.Lock()
		if co.lease != nil {
			all = append(all, co.lease)
		}
		co.mu.Unlock()
	}
	return all
}

// drain waits until nothing is under way, or until ctx is done: what is held then is lost, and
// clean-ups end.
func (c *core) drain(ctx context.Context) error {
	defer c.cutOff(ErrClosed)
	select {
	case <-c.idle:
		return nil
	default:
	}
	select {
	case <-c.idle:
		return nil
	case <-ctx.Done():
	}
	c.cutOff(ErrClosed)
	var held []string
	for _, l := range c.allLeases() {
		if h := l.holder(); h != nil {
			held = append(held, fmt.Sprintf("%q, locked at %s", h.info.Key, &h.site))
		}
		_ = l.lose(lostBecause(ErrClosed))
	}
	pending, open := c.pending.close(), c.stillOpen()
	<-c.idle // soon: what is still under way waits for requests alone, which the backend bounds
	var left []string
	if len(held) > 0 {
		left = append(left, fmt.Sprintf("not unlocked: %s", strings.Join(held, "; ")))
	}
	if len(open) > 0 {
		left = append(left, "what is protected is not closed: "+strings.Join(open, ", "))
	}
	if pending > 0 {
		left = append(left, fmt.Sprintf("%d releases not confirmed", pending))
	}
	left = append(left, "out of time")
	return fmt.Errorf("holdfast: close: %s: %w", strings.Join(left, "; "), ended(ctx))
}
