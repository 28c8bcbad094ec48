package redis

import "context"

// Messages is one pub/sub connection. One goroutine subscribes, unsubscribes and pings, another one receives.
type Messages interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context) error

	// Receive waits for what the server sends next. Whatever is wrong with the connection is an error, once and for good.
	Receive(ctx context.Context) (Message, error)

	// Close ends the connection, and a Receive that waits.
	Close() error
}

// A Message is what comes on a pub/sub connection.
type Message struct {
	Kind    Kind
	Channel string
	Payload string // of a Published one
}

// Kind is what a Message is.
type Kind uint8

// The kinds. The zero Kind is a sign of life and no more.
const (
	Alive Kind = iota
	Published
	Confirmed // the channel is subscribed
)
