package redlock

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/backend"
)

// Renew extends the hold on the nodes that have it, and is successful when they are a majority. Then the nodes that have it not are asked
// to take it, behind the caller's back: so a hold gets back the nodes that it lost, or never had.
func (r *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := r.validate(c); err != nil {
		return err
	}
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.tasks.Done()
	u := r.enter(c, false)
	defer u.leave()
	return u.renew(ctx, c)
}

// renew counts only nodes that prove the hold: one that was filled in counts from the next renewal on. A yes extends what was
// continuous on each of a majority until now; that the deadline before had not passed is for the caller to see to.
//
// It is lost when so many nodes have it not that the others are no majority: a renewed minority would block others for nothing.
func (u *claimRun) renew(ctx context.Context, c backend.Claim) error {
	q, spell := u.inquire(ctx), newSpell(ctx, u.red.cfg.timeout(c.TTL))
	u.extend(spell, c, q)
	return q.await(func(err error) {
		switch {
		case err == nil:
			u.fillIn(spell, c)
		case errors.Is(err, backend.ErrLost):
			u.giveAllBack(spell, c)
		}
	})
}

// extend asks the nodes that may hold.
func (u *claimRun) extend(s *spell, c backend.Claim, q *inquiry) {
	well := u.red.asked()
	u.mu.Lock()
	defer u.unlock()
	may := make([]bool, len(u.lanes))
	count := 0
	for i := range u.lanes {
		l := &u.lanes[i]
		may[i] = !u.known || l.held || l.unsure || l.busy
		if may[i] && well[i] {
			count++
		}
	}
	token := u.token
	for i := range u.lanes {
		switch {
		case !may[i]:
			q.votes.count(i, errNotHeld)
		case !well[i] && count >= u.red.quorum:
			q.votes.count(i, errPassedOver)
		default:
			u.queue(i, func() { u.raise(s, i, c, token, func(err error) { q.hear(i, err) }) })
		}
	}
	q.settle()
}

// lapsed takes note that node i said no to the holder. The caller has mu.
func (u *claimRun) lapsed(i int, err error) {
	if errors.Is(err, backend.ErrLost) {
		u.lanes[i].held = false
	}
}

// fillIn asks the nodes that have not granted c to do so now. It is safe because it only keeps others out: no answer of the hold's
// rests on them before they have proved the hold in a renewal, while a majority holds. A node that is still to answer the renewal is
// looked at again when it has. The caller has mu.
func (u *claimRun) fillIn(s *spell, c backend.Claim) {
	well := u.red.asked()
	for i := range u.lanes {
		if u.known && well[i] && (u.lanes[i].busy || u.lacks(i)) {
			u.queue(i, func() { u.fill(s, i, c) })
		}
	}
}

// lacks reports whether node i certainly has not the hold. The caller has mu.
func (u *claimRun) lacks(i int) bool { return !u.lanes[i].held && !u.lanes[i].unsure }

// fill is one node of fillIn. The token that the node grants may be above the hold's, as its clock has gone on: that is as good.
func (u *claimRun) fill(s *spell, i int, c backend.Claim) {
	u.mu.Lock()
	on, token := u.on(i, c), u.token
	if !u.lacks(i) || u.ended {
		u.pass(i)
		u.unlock()
		return
	}
	u.mu.Unlock()
	u.ask(s, i, backend.Acquire, on, func(g backend.Grant, err error) {
		l := &u.lanes[i]
		switch backend.AnswerOf(err) {
		case backend.Yes:
			l.held, l.token = true, g.Token
		case backend.Unknown:
			l.unsure = true
		}
		if err == nil && g.Token < token {
			u.follow(i, func() { u.raise(s, i, c, token, func(error) {}) })
		}
	})
}

// giveAllBack ends what is left of a hold that is lost. The caller has mu.
func (u *claimRun) giveAllBack(s *spell, c backend.Claim) {
	for i := range u.lanes {
		u.queue(i, func() { u.giveBack(s, i, c) })
	}
}

// Margin is how many of the nodes that hold c can fail before its majority is gone. It asks nobody, and is negative if c is not known
// to be held.
func (r *Backend) Margin(c backend.Claim) int {
	r.mu.Lock()
	u := r.runs[runKey{c.Key, c.ID()}]
	r.mu.Unlock()
	margin := -r.quorum
	if u == nil {
		return margin
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.lanes {
		if u.lanes[i].held {
			margin++
		}
	}
	return margin
}
