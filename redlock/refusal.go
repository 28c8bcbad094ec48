package redlock

import (
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// never is the wait for a node of which nobody knows when it can grant.
const never = time.Duration(1<<63 - 1)

// A tally is why nodes said no.
type tally struct {
	lost, foreign, away int // nodes
	why                 error
	held                *backend.HeldError
	quarantine          *backend.QuarantineError
	waits               []time.Duration // until each grants
}

// tally sorts the answers.
func (a *attempt) tally() tally {
	t := tally{waits: make([]time.Duration, len(a.lanes))}
	for i, err := range a.votes.errs {
		t.waits[i] = never
		var h *backend.HeldError
		var q *backend.QuarantineError
		switch {
		case !a.votes.heard[i]:
		case err == nil:
			t.waits[i] = 0
		case errors.As(err, &h):
			t.waits[i] = known(h.RetryAfter)
			if t.held == nil || t.held.Holder == (backend.Meta{}) {
				t.held = h
			}
		case errors.As(err, &q):
			t.waits[i], t.quarantine = known(q.RetryAfter), q
		case errors.Is(err, backend.ErrLost):
			t.lost++
		case backend.Refused(err):
			t.foreign++
			t.why = err
		default:
			t.away++
		}
	}
	a.guess(t.waits)
	return t
}

// refusal is what a definite no is called: what stands in the way of a majority for good, or who holds, or what else it is. The
// caller has mu.
func (a *attempt) refusal() error {
	t := a.tally()
	spare := len(a.lanes) - a.red.quorum // so many may say no to the end
	slices.Sort(t.waits)
	when := t.waits[a.red.quorum-1]
	if when == never {
		when = 0
	}
	switch {
	case t.foreign > spare:
		return a.votes.failed(t.why)
	case t.lost > spare:
		return a.votes.failed(backend.ErrLost)
	case t.away > spare:
		return a.votes.failed(backend.ErrUnavailable)
	case t.held != nil:
		return &backend.HeldError{RetryAfter: a.again(when), Holder: t.held.Holder}
	case t.quarantine != nil:
		return &backend.QuarantineError{RetryAfter: when, Why: t.quarantine.Why}
	}
	return a.votes.failed(backend.ErrUnavailable)
}

// guess takes nodes that were not heard to be like the one that will grant first: to ask too early costs a question.
func (a *attempt) guess(waits []time.Duration) {
	shortest := never
	for _, w := range waits {
		if w > 0 {
			shortest = min(shortest, w)
		}
	}
	for i := range waits {
		if !a.votes.heard[i] {
			waits[i] = shortest
		}
	}
}

func known(d time.Duration) time.Duration {
	if d > 0 {
		return d
	}
	return never
}

// again is when a claim that is held off should ask again.
func (a *attempt) again(when time.Duration) time.Duration {
	if !a.split() {
		a.splits = 0
		return when
	}
	a.splits++
	a.met = a.splits
	d := a.red.apart(a.splits)
	if when > 0 {
		d = min(d, when)
	}
	return d
}

// split reports whether nobody seems to hold: some nodes granted, and no majority of the others was granted to one claim. Then those who met
// give back what they got, no lease needs to end, and whoever asks first wins. One claim's grants have one token, as it was written back.
func (a *attempt) split() bool {
	if a.votes.yes == 0 {
		return false
	}
	tokens := map[uint64]int{}
	for i, err := range a.votes.errs {
		var h *backend.HeldError
		if a.votes.heard[i] && errors.As(err, &h) && h.Token != 0 {
			if tokens[h.Token]++; tokens[h.Token] >= a.red.quorum {
				return false
			}
		}
	}
	return true
}
