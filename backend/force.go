package backend

import (
	"context"
	"errors"
	"fmt"
)

// ForceReleaseBy is [Backend.ForceRelease] by means of Inspect and Release, for backends whose
// Holder.ID is all that a Release needs.
//
// Between the two the hold may end by itself, and nothing else can go wrong: an ID is one claim's
// for ever, so what is released is that claim or nothing.
func ForceReleaseBy(ctx context.Context, b Backend, key string, token uint64) (Holder, error) {
	state, err := b.Inspect(ctx, key)
	if err != nil {
		return Holder{}, err
	}
	for _, h := range state.Holders {
		switch {
		case h.Token != token || token == 0:
		case h.ID == "":
			return h, fmt.Errorf("%w: release of a hold of another library", errors.ErrUnsupported)
		default:
			_, err = b.Release(ctx, h.Claim(key))
			return h, err
		}
	}
	return Holder{}, fmt.Errorf("%w: no hold has token %d", ErrLost, token)
}

// Claim is what releases the hold of key.
func (h Holder) Claim(key string) Claim {
	c := Claim{Key: key, Owner: h.Owner, Mode: h.Mode, TTL: h.TTL}
	if h.ID != h.Owner {
		c.Reentrant, c.Hold = true, h.ID
	}
	return c
}
