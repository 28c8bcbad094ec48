package redisbackend

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var _ backend.Starter = (*Backend)(nil)

// Start implements [backend.Starter].
func (b *Backend) Start(ctx context.Context, limit time.Duration, v backend.Verb, c backend.Claim, done func(backend.Grant, error)) {
	lanes := b.lanes
	if !b.prompt {
		lanes = nil // a read would last for the client's ReadTimeout
	}
	b.store.Start(ctx, b, lanes, limit, v, c, done)
}
