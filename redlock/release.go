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
	votes, answers := u.red.poll(), make(chan vote, len(u.lanes))
	well := u.red.asked()
	spell := newSpell(ctx, u.red.cfg.timeout(c.TTL))
	u.mu.Lock()
	u.ended = true
	for i := range u.lanes {
		if l := &u.lanes[i]; l.done {
			votes.count(i, l.release)
		} else {
			u.queue(i, func() { answers <- vote{node: i, err: u.releaseOn(spell, i, c, well[i])} })
		}
	}
	u.mu.Unlock()
	for {
		switch {
		case votes.yes >= u.red.quorum:
			u.spent()
			return nil
		case len(u.lanes)-votes.lost() < u.red.quorum:
			return votes.failed(backend.ErrLost)
		case votes.open():
			return votes.inconclusive()
		}
		select {
		case v := <-answers:
			votes.count(v.node, v.err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// spent makes the yes of a release count once: who releases again did not hold.
func (u *claimRun) spent() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.lanes {
		if u.lanes[i].done {
			u.lanes[i].release = errNotHeld
		}
	}
}

// releaseOn releases c on node i, in its lane. A tombstone is left unless every attempt is known to have been answered there: the
// node's own answers are, each before the next request was sent.
func (u *claimRun) releaseOn(s *spell, i int, c backend.Claim, well bool) error {
	u.mu.Lock()
	l := &u.lanes[i]
	on := u.on(i, c)
	on.Settled = c.Settled && u.known && !l.unsure
	nothing := u.known && !l.held && !l.unsure
	if l.done {
		defer u.mu.Unlock()
		return l.release
	}
	if nothing && (c.Settled || !well) {
		l.done, l.release = true, errNotHeld
		u.mu.Unlock()
		return errNotHeld
	}
	u.mu.Unlock()
	err := errPassedOver
	if well {
		err = u.send(s, i, func(ctx context.Context, b backend.Backend) error { return b.Release(ctx, on) })
	}
	if backend.AnswerOf(err) == backend.Unknown || errors.Is(err, backend.ErrUnavailable) {
		u.red.nodes[i].owe(on)
		return err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	l.done, l.release, l.held, l.unsure = true, err, false, false
	return err
}
