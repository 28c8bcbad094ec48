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
	a.guess(t)
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
		holder, _, _ := untagged(t.held.Holder)
		return &backend.HeldError{RetryAfter: a.again(when), Holder: holder}
	case t.quarantine != nil:
		return &backend.QuarantineError{RetryAfter: when, Why: t.quarantine.Why}
	}
	return a.votes.failed(backend.ErrUnavailable)
}

// guess takes nodes that were not heard to be like those that were: held by the claim that holds the others, or else free.
func (a *attempt) guess(t tally) {
	guess := time.Duration(0)
	for _, w := range t.waits {
		if t.held != nil && w != never {
			guess = max(guess, w)
		}
	}
	for i := range t.waits {
		if !a.votes.heard[i] {
			t.waits[i] = guess
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
	a.met = true
	d := a.red.apart(a.splits)
	if when > 0 {
		d = min(d, when)
	}
	return d
}

// split reports whether nobody seems to hold: some nodes granted, and no majority of the others was granted to one claim. Then those who met
// give back what they got, no lease needs to end, and whoever asks first wins.
func (a *attempt) split() bool { return a.votes.yes > 0 && !a.taken() }

// unclear reports whether the answers to come tell whether claims met halfway: it may be that no node has granted only because those that did
// were not heard yet. All who met would go away then, and nobody would get a key that is free.
func (a *attempt) unclear() bool { return a.votes.yes == 0 && a.votes.pending() > 0 && !a.taken() }

// taken reports whether a majority is held by one claim, as far as was heard. Where nodes do not say who holds, it cannot be told, and is
// taken for granted: who waits is woken.
func (a *attempt) taken() bool {
	holders := map[string]int{}
	for i, err := range a.votes.errs {
		var h *backend.HeldError
		if !a.votes.heard[i] || !errors.As(err, &h) {
			continue
		}
		if _, tag, _ := untagged(h.Holder); tag != "" {
			if holders[tag]++; holders[tag] >= a.red.quorum {
				return true
			}
		}
	}
	return len(holders) == 0
}

// strange returns a holder's list of nodes that is not what we show ourselves, as far as was heard; empty if there is none.
func (a *attempt) strange() string {
	for i, err := range a.votes.errs {
		var h *backend.HeldError
		if a.votes.heard[i] && err != nil && errors.As(err, &h) {
			if _, _, list := untagged(h.Holder); list != "" && list != *a.red.list.Load() {
				return list
			}
		}
	}
	return ""
}
