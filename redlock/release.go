package redlock

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/backend"
)

// Release releases c on all nodes that may have been reached, and returns when a majority has: nil if a majority held until now. A node
// that does not answer is asked again in the background until the lease has run out.
func (r *Backend) Release(ctx context.Context, c backend.Claim) error {
	if err := c.ValidateRelease(r.Capabilities()); err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.tasks.Done()
	u := r.enter(c, false)
	defer u.leave()
	return u.release(ctx, c)
}

// release asks each node once it has answered what it was asked before, and remembers what it said: who repeats a release that had no
// answer asks only those that have not confirmed it.
func (u *claimRun) release(ctx context.Context, c backend.Claim) error {
	q, spell := u.inquire(ctx), newSpell(ctx, u.red.cfg.timeout(c.TTL))
	well := u.red.asked()
	u.mu.Lock()
	u.ended = true
	for i := range u.lanes {
		if l := &u.lanes[i]; l.done {
			q.votes.count(i, l.release)
		} else {
			u.queue(i, func() { u.releaseOn(spell, i, c, well[i], q) })
		}
	}
	q.settle()
	u.unlock()
	return q.await(func(err error) {
		if err == nil {
			u.spend()
		}
	})
}

// spend makes the yes of a release count once: who releases again did not hold. The caller has mu.
func (u *claimRun) spend() {
	for i := range u.lanes {
		if u.lanes[i].done {
			u.lanes[i].release = errNotHeld
		}
	}
}

// releaseOn releases c on node i, in its lane. A tombstone is left unless every attempt is known to have been answered there: the
// node's own answers are, each before the next request was sent.
func (u *claimRun) releaseOn(s *spell, i int, c backend.Claim, well bool, q *inquiry) {
	u.mu.Lock()
	l := &u.lanes[i]
	on := u.on(i, c)
	on.NoneInFlight = c.NoneInFlight && u.known && !l.unsure
	if !l.done && u.known && !l.held && !l.unsure && (c.NoneInFlight || !well) {
		l.done, l.release = true, errNotHeld
	}
	switch {
	case l.done:
		q.hear(i, l.release)
	case !well:
		u.owe(i, on)
		q.hear(i, errPassedOver)
	default:
		u.mu.Unlock()
		u.ask(s, i, backend.Release, on, func(_ backend.Grant, err error) { u.releasedOn(i, on, err); q.hear(i, err) })
		return
	}
	u.pass(i)
	u.unlock()
}

// releasedOn takes note of what node i answered. The caller has mu.
func (u *claimRun) releasedOn(i int, on backend.Claim, err error) {
	if backend.AnswerOf(err) == backend.Unknown || errors.Is(err, backend.ErrUnavailable) {
		u.owe(i, on)
		return
	}
	l := &u.lanes[i]
	l.done, l.release, l.held, l.unsure = true, err, false, false
}
