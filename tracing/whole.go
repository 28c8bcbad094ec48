package tracing

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// whole returns b as what the backend inside of it is, beside a Backend: who asks for it by type must not be told otherwise.
func (b *wrapped) whole() backend.Backend {
	margins, isMarginer := b.Backend.(backend.Marginer)
	inner, isStarter := b.Backend.(backend.Starter)
	starts := starter{b, inner}
	switch {
	case isMarginer && isStarter:
		return struct {
			*wrapped
			backend.Marginer
			starter
		}{b, margins, starts}
	case isMarginer:
		return struct {
			*wrapped
			backend.Marginer
		}{b, margins}
	case isStarter:
		return struct {
			*wrapped
			starter
		}{b, starts}
	}
	return b
}

// A starter asks without waiting.
type starter struct {
	b     *wrapped
	inner backend.Starter
}

// Start implements [backend.Starter]. It does not look who is next, as Release does: who asks many stores at once has no line in any.
func (s starter) Start(ctx context.Context, limit time.Duration, v backend.Verb, c backend.Claim, done func(backend.Grant, error)) {
	name, operation := SpanStoreRelease, "Release"
	switch v {
	case backend.Acquire:
		name, operation = SpanStoreAcquire, "TryAcquire"
	case backend.Renew:
		name, operation = SpanStoreRenew, "Renew"
	}
	ctx, span := s.b.ask(ctx, name, operation)
	s.inner.Start(ctx, limit, v, c, func(g backend.Grant, err error) {
		answered(ctx, span, c.Key, v == backend.Acquire, g, err)
		done(g, err)
	})
}
