package rueidisbackend

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var _ backend.Starter = (*Backend)(nil)

// Start implements [backend.Starter].
func (b *Backend) Start(ctx context.Context, limit time.Duration, v backend.Verb, c backend.Claim, done func(backend.Grant, error)) {
	lanes := b.lanes
	if b.line.cluster || b.held != nil { // they have ways of their own
		lanes = nil
	}
	b.store.Start(ctx, b, lanes, limit, v, c, done)
}
