package redisbackend

import (
	"context"
	"fmt"

	"github.com/redis/go-redis/v9"

	store "github.com/holdfast-go/holdfast/internal/redis"
)

// messages is a pub/sub connection of go-redis.
type messages struct{ *redis.PubSub }

// Receive is that of go-redis, which panics on a message of a shape that it does not expect: here that is a broken connection.
func (m messages) Receive(ctx context.Context) (message store.Message, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("redis: pub/sub message is not understood: %v", r)
		}
	}()
	got, err := m.PubSub.Receive(ctx)
	switch got := got.(type) {
	case *redis.Message:
		message = store.Message{Kind: store.Published, Channel: got.Channel, Payload: got.Payload}
	case *redis.Subscription:
		if got.Kind == "subscribe" {
			message = store.Message{Kind: store.Confirmed, Channel: got.Channel}
		}
	}
	return message, err
}

// Ping sends one; its answer is for Receive.
func (m messages) Ping(ctx context.Context) error { return m.PubSub.Ping(ctx) }
