package impl

import (
	"context"

	"github.com/holdfast-go/holdfast/internal/bench/server"
)

// What an acquisition is made of: a round trip, a signal from client to client through the server,
// and a turn among goroutines.
func init() {
	register(
		Impl{
			Name: "ping", Role: Floor, Settings: "PING on one connection, one after the other",
			Sent: []string{"ping"},
			Open: func(_ context.Context, addr string) (Client, error) {
				c, err := server.Dial(addr)
				return lockFunc(func(context.Context, string) (Held, error) {
					_, err := c.Do("PING")
					return nothing, err
				}), err
			},
		},
		Impl{
			Name: "signal", Role: Floor, Settings: "PUBLISH until another connection has it",
			Sent: []string{"publish"},
			Open: openSignal,
		},
		Impl{
			Name: "channel", Role: Floor,
			Settings: "a Go channel of capacity 1, within one process", Sent: []string{"none"},
			Open: func(context.Context, string) (Client, error) {
				turn := make(chan struct{}, 1)
				turn <- struct{}{}
				h := &held{0, func() error {
					turn <- struct{}{}
					return nil
				}}
				return lockFunc(func(ctx context.Context, _ string) (Held, error) {
					select {
					case <-turn:
						return h, nil
					case <-ctx.Done():
						return nil, ctx.Err()
					}
				}), nil
			},
		},
	)
}

var nothing = &held{0, func() error { return nil }}

func openSignal(_ context.Context, addr string) (Client, error) {
	from, err := server.Dial(addr)
	if err != nil {
		return nil, err
	}
	to, err := server.Dial(addr)
	if err != nil {
		return nil, err
	}
	if _, err := to.Do("SUBSCRIBE", "signal"); err != nil {
		return nil, err
	}
	received := make(chan error)
	go func() {
		for {
			_, err := to.Receive()
			if received <- err; err != nil {
				return
			}
		}
	}()
	// The answer to the sender is not part of the signal.
	answered := &held{0, func() error {
		_, err := from.Receive()
		return err
	}}
	return lockFunc(func(context.Context, string) (Held, error) {
		if err := from.Send("PUBLISH", "signal", "x"); err != nil {
			return nil, err
		}
		return answered, <-received
	}), nil
}
