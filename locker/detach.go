package locker

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A Ticket is a hold on its way from the guard that was detached to whoever adopts it, here or in
// another process. It can be sent as JSON. It can be used once, and by whoever has it: Hold is
// known to nobody else.
type Ticket struct {
	Key   string        `json:"key"` // without the namespace
	Owner string        `json:"owner"`
	Hold  string        `json:"hold"`
	TTL   time.Duration `json:"ttl"`
	Token uint64        `json:"token"` // the hold's, which stays the same
	Until time.Time     `json:"until"` // about when the lease ends, for people
	Note  string        `json:"note,omitempty"`
}

// Detach ends the hold here and leaves it in the store, for whoever gives the ticket to
// [Client.Adopt]. From the moment of the call the guard is as if unlocked, but the key stays locked
// until the lease ends, which is renewed no more: half of a TTL is left at least. What [Scoped]
// opened is closed first.
//
// It is for locks that were taken with [Reentrant], by an owner that is nobody else's, such as
// [backend.NewOwner] makes; any other is an error that is [errors.ErrUnsupported], and the hold
// goes on. It waits for a renewal that is under way, and renews the lease first if less than half
// of it is left, as it is for a moment after a wait in the store's queue: for a sixth of the TTL at
// most, and not past the deadline. If the store gives no answer, that is the error, and the hold
// goes on. Any other error means that nothing was detached: the hold had ended before, or what was
// opened failed to close, and the lock is released. Unlock then returns nil, or that error.
func (g *Guard[T]) Detach() (Ticket, error) {
	if g == nil || g.h == nil {
		return Ticket{}, &Error{opDetach, "", ErrUnlocked}
	}
	t, err := g.h.detach()
	if err != nil {
		return Ticket{}, &Error{opDetach, g.h.info.Key, err}
	}
	return t, nil
}

// detach is an unlock without the release.
//
// Safety: the hold has ended, and no renewal comes after it, before there is a ticket. A lease that
// the store handed over is only as long as its waiter's place lasts, and nobody renews it after
// this (TestDetachAfterAHandOver).
func (h *hold) detach() (t Ticket, err error) {
	l, c := h.lease, h.lease.core
	if !l.claim.Reentrant {
		return t, fmt.Errorf("%w: it was not locked with Reentrant", errors.ErrUnsupported)
	}
	if err := h.valid(); err != nil {
		return t, err
	}
	if time.Duration(l.deadline()-c.now()) < l.claim.TTL/2 { // safeguard: detached-for-long
		if err := l.check(context.WithoutCancel(h.parent), h); err != nil {
			return t, err
		}
	}
	if err := h.unlock(byDetach, nil); err != nil {
		return t, err
	}
	if h.how != byDetach { // an Unlock was first; safeguard: detach-beside-unlock
		return t, ErrUnlocked
	}
	return Ticket{
		h.info.Key, l.claim.Owner, l.claim.Hold, l.claim.TTL, h.info.Token,
		c.toTime(l.deadline()), h.info.Note,
	}, nil
}

// Adopt takes over the hold of a ticket: of those who have the ticket, one gets a guard. It makes
// an attempt or two and does not wait. The error is [ErrLost] if the ticket was used before or its
// lease has ended, and the key may be another's. After any other error nobody has adopted by this
// call, and it may be tried again; if the store gave no answer, it may turn out that the hold was
// given up. The client must be of the same store and namespace. MaxHold begins anew.
func (c *Client[T]) Adopt(ctx context.Context, t Ticket) (*Guard[T], error) {
	if t.Owner == "" || t.Hold == "" {
		return nil, &Error{
			opAdopt, t.Key,
			&backend.InvalidError{Field: "ticket", Reason: "has no owner or no hold"},
		}
	}
	// safeguard: adopted-note
	opts := []Option{TTL(t.TTL), Reentrant(t.Owner), Note(t.Note), func(o *call) {
		o.ticket = t.Hold
	}}
	return c.acquire(ctx, opAdopt, t.Key, opts)
}
