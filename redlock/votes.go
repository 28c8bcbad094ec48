package redlock

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/backend"
)

// A verdict is what the votes of a verb come to, once.
type verdict struct {
	over    bool          // what is heard now comes too late; guarded by the run's mu
	reached chan struct{} // has something in its one slot then
}

func newVerdict() verdict { return verdict{reached: make(chan struct{}, 1)} }

func (v *verdict) reach() {
	v.over = true
	v.reached <- struct{}{}
}

// votes is what a verb has heard.
type votes struct {
	red     *Backend
	errs    []error
	heard   []bool
	yes     int
	no      int // certainly not, and nothing is on its way
	unknown int
}

func (r *Backend) poll() *votes {
	return &votes{red: r, errs: make([]error, len(r.nodes)), heard: make([]bool, len(r.nodes))}
}

// count counts node i's answer. Its last one stands.
func (v *votes) count(i int, err error) {
	if v.heard[i] {
		v.add(v.errs[i], -1)
	}
	v.heard[i], v.errs[i] = true, err
	v.add(err, 1)
}

func (v *votes) add(err error, n int) {
	switch backend.AnswerOf(err) {
	case backend.Yes:
		v.yes += n
	case backend.No:
		v.no += n
	default:
		v.unknown += n
	}
}

// pending is how many nodes have not answered.
func (v *votes) pending() int { return len(v.heard) - v.yes - v.no - v.unknown }

// failed makes an error of the votes, which is what is says.
func (v *votes) failed(is ...error) error {
	e := &QuorumError{Need: v.red.quorum, is: is}
	for i, n := range v.red.nodes {
		err := v.errs[i]
		if !v.heard[i] {
			err = errWaiting
		}
		e.Nodes = append(e.Nodes, NodeError{n.name, err})
	}
	return e
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

// An inquiry is the votes of a renewal or a release, which are counted until they decide. It is guarded by the run's mu.
type inquiry struct {
	*claimRun
	ctx   context.Context
	votes *votes
	verdict
}

func (u *claimRun) inquire(ctx context.Context) *inquiry {
	return &inquiry{claimRun: u, ctx: ctx, votes: u.red.poll(), verdict: newVerdict()}
}

// hear takes node i's answer. The caller has mu.
func (q *inquiry) hear(i int, err error) {
	if !q.over {
		q.votes.count(i, err)
		q.settle()
	}
}

// settle ends the inquiry if the votes decide it. The caller has mu.
func (q *inquiry) settle() {
	if v := q.votes; v.yes >= v.red.quorum || v.tooManyLost() || v.open() {
		q.reach()
	}
}

// await returns what the majority said, after then was called with it. then has mu.
func (q *inquiry) await(then func(error)) (err error) {
	select {
	case <-q.reached:
	case <-q.ctx.Done():
	}
	q.mu.Lock()
	defer q.unlock()
	if !q.over {
		q.over = true
		return q.ctx.Err()
	}
	switch {
	case q.votes.yes >= q.red.quorum:
	case q.votes.tooManyLost():
		err = q.votes.failed(backend.ErrLost)
	default:
		err = q.votes.inconclusive()
	}
	then(err)
	return err
}

// tooManyLost reports whether so many have it certainly not that the others are no majority.
func (v *votes) tooManyLost() bool { return len(v.errs)-v.lost() < v.red.quorum }
