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
	votes := u.red.poll()
	spell := newSpell(ctx, u.red.cfg.timeout(c.TTL))
	answers := u.extend(spell, c, votes)
	for {
		switch {
		case votes.yes >= u.red.quorum:
			u.fillIn(spell, c)
			return nil
		case len(u.lanes)-votes.lost() < u.red.quorum:
			u.giveAllBack(spell, c)
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

// open reports whether what is still to come can make no majority for a yes, nor one against it.
func (v *votes) open() bool {
	return v.yes+v.pending() < v.red.quorum && len(v.errs)-v.lost()-v.pending() >= v.red.quorum
}

// lost is how many nodes have certainly not what was asked about.
func (v *votes) lost() int {
	n := 0
	for i, err := range v.errs {
		if v.heard[i] && errors.Is(err, backend.ErrLost) {
			n++
		}
	}
	return n
}

// inconclusive is the error where no majority said yes, or no.
func (v *votes) inconclusive() error {
	var causes []error
	refusals, refusal := 0, error(nil)
	for i, err := range v.errs {
		switch {
		case !v.heard[i]:
			causes = append(causes, errWaiting)
		case backend.Refused(err):
			refusals, refusal = refusals+1, err
		case backend.AnswerOf(err) == backend.Unknown:
			causes = append(causes, err)
		}
	}
	switch {
	case refusals > len(v.errs)-v.red.quorum:
		return v.failed(refusal)
	case len(causes) == 0:
		return v.failed(backend.ErrUnavailable)
	}
	return v.failed(causes...)
}

// extend asks the nodes that may hold.
func (u *claimRun) extend(s *spell, c backend.Claim, votes *votes) <-chan vote {
	answers := make(chan vote, len(u.lanes))
	well := u.red.asked()
	u.mu.Lock()
	defer u.mu.Unlock()
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
			votes.count(i, errNotHeld)
		case !well[i] && count >= u.red.quorum:
			votes.count(i, errPassedOver)
		default:
			u.queue(i, func() { answers <- vote{node: i, err: u.raise(s, i, c, token)} })
		}
	}
	return answers
}

// lapsed takes note that node i said no to the holder. The caller has mu.
func (u *claimRun) lapsed(i int, err error) {
	if errors.Is(err, backend.ErrLost) {
		u.lanes[i].held = false
	}
}

// fillIn asks the nodes that have not granted c to do so now. It is safe because it only keeps others out: no answer of the hold's
// rests on them before they have proved the hold in a renewal, while a majority holds. A node that is still to answer the renewal is
// looked at again when it has.
func (u *claimRun) fillIn(s *spell, c backend.Claim) {
	well := u.red.asked()
	u.mu.Lock()
	defer u.mu.Unlock()
	for i := range u.lanes {
		if !u.known || !well[i] || !u.lanes[i].busy && !u.lacks(i) {
			continue
		}
		u.queue(i, func() {
			u.mu.Lock()
			token, wanted := u.token, u.lacks(i) && !u.ended
			u.mu.Unlock()
			if wanted {
				u.fill(s, i, c, token)
			}
		})
	}
}

// lacks reports whether node i certainly has not the hold. The caller has mu.
func (u *claimRun) lacks(i int) bool { return !u.lanes[i].held && !u.lanes[i].unsure }

// fill is one node of fillIn. The token that the node grants may be above the hold's, as its clock has gone on: that is as good.
func (u *claimRun) fill(s *spell, i int, c backend.Claim, token uint64) {
	u.mu.Lock()
	on := u.on(i, c)
	u.mu.Unlock()
	var g backend.Grant
	err := u.send(s, i, func(ctx context.Context, b backend.Backend) (err error) {
		g, err = b.TryAcquire(ctx, on)
		return err
	})
	u.mu.Lock()
	l := &u.lanes[i]
	switch backend.AnswerOf(err) {
	case backend.Yes:
		l.held, l.token = true, g.Token
	case backend.Unknown:
		l.unsure = true
	}
	u.mu.Unlock()
	if err == nil && g.Token < token {
		_ = u.raise(s, i, c, token)
	}
}

// giveAllBack ends what is left of a hold that is lost.
func (u *claimRun) giveAllBack(s *spell, c backend.Claim) {
	u.mu.Lock()
	defer u.mu.Unlock()
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
