package backend

import (
	"context"
	"time"
)

// A Verb is what a [Starter] is asked to do with a claim.
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

// A Starter is a [Backend] that can be asked by who does not wait, and so needs no goroutine for each request. It is for those who ask
// many stores at once, as package redlock does, and optional: a wrapper that embeds a Backend hides it, and is asked the other way.
type Starter interface {
	// Start begins what [Verb.Do] does, and returns. done is called once, with the answer: perhaps before Start returns, else on a
	// goroutine that other requests wait for. It must not block, and may call Start.
	//
	// Of ctx the values are used, not its end: limit bounds the request. What it bounds may be known late, by as much again, if the
	// request waits behind others. Close waits for done.
	Start(ctx context.Context, limit time.Duration, v Verb, c Claim, done func(Grant, error))
}
