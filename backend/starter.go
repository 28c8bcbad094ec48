package backend

import "context"

// A Verb is what is asked of a [Backend] with a claim.
type Verb uint8

// The verbs that ask about one claim.
const (
	Acquire Verb = iota
	Renew
	Release
)

// Do makes the request of b, and waits for the answer. The Grant is of Acquire alone.
func (v Verb) Do(ctx context.Context, b Backend, c Claim) (Grant, error) {
	switch v {
	case Acquire:
		return b.TryAcquire(ctx, c)
	case Renew:
		return Grant{}, b.Renew(ctx, c)
	default:
		return Grant{}, b.Release(ctx, c)
	}
}
