package backend

import (
	"context"
	"errors"
	"fmt"
)

// A Relayer is a [Backend] that can give one hold back and ask for the next in one request. It is for a process whose waiters take turns:
// each turn costs the store one request instead of two, and the key is never free in between. It is optional; wrappers forward it, by
// [RelayOf].
type Relayer interface {
	// Relay does what Release(ended) and then TryAcquire(next) would, of one key, with nobody's request in between, and gives both answers.
	// ended.Settled must be true, and next a claim that was not asked for before. If released is unknown, so is the other answer, and the
	// verbs themselves are what to ask next with: a Relay that is executed late grants next only if ended holds still.
	//
	// An error that is [errors.ErrUnsupported] says that nothing was done, and that no other Relay will be.
	Relay(ctx context.Context, ended, next Claim) (released error, g Grant, err error)
}

// RelayOf asks b; both errors are [errors.ErrUnsupported] if b is no [Relayer].
func RelayOf(ctx context.Context, b Backend, ended, next Claim) (released error, g Grant, err error) {
	if r, ok := b.(Relayer); ok {
		return r.Relay(ctx, ended, next)
	}
	err = fmt.Errorf("%w: releasing and acquiring in one request", errors.ErrUnsupported)
	return err, Grant{}, err
}
