package rueidisbackend

import (
	"context"
	"errors"
	"sync"

	"github.com/redis/rueidis"

	store "github.com/holdfast-go/holdfast/internal/redis"
)

var errMessagesClosed = errors.New("redis: the pub/sub connection was closed")

// messages is a connection of its own for pub/sub, made when it is first used. The one that
// requests share would do, but then its loss would not be told from a refusal to subscribe.
type messages struct {
	b      *Backend
	come   chan store.Message
	closed chan struct{}
	once   sync.Once

	mu    sync.Mutex
	wire  rueidis.DedicatedClient
	ended <-chan error
}

// Messages returns a pub/sub connection.
func (t transport) Messages(context.Context) store.Messages {
	return &messages{b: t.Backend, come: make(chan store.Message, 64), closed: make(chan struct{})}
}

// connected returns the connection.
func (m *messages) connected() (rueidis.DedicatedClient, <-chan error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wire == nil {
		m.wire, _ = m.b.client.Dedicate()
		m.ended = m.wire.SetPubSubHooks(rueidis.PubSubHooks{
			OnMessage: func(p rueidis.PubSubMessage) {
				m.pass(store.Message{Kind: store.Published, Channel: p.Channel, Payload: p.Message})
			},
			OnSubscription: func(s rueidis.PubSubSubscription) {
				if s.Kind == "subscribe" {
					m.pass(store.Message{Kind: store.Confirmed, Channel: s.Channel})
				}
			},
		})
	}
	return m.wire, m.ended
}

// pass hands a message to Receive. It runs in the connection's reader, which nobody else waits
// for.
func (m *messages) pass(got store.Message) {
	select {
	case m.come <- got:
	case <-m.closed:
	}
}

// Subscribe waits for the server's answer.
func (m *messages) Subscribe(ctx context.Context, channels ...string) error {
	wire, _ := m.connected()
	return wire.Do(ctx, wire.B().Subscribe().Channel(channels...).Build()).Error()
}

// Unsubscribe waits for the server's answer.
func (m *messages) Unsubscribe(ctx context.Context, channels ...string) error {
	wire, _ := m.connected()
	return wire.Do(ctx, wire.B().Unsubscribe().Channel(channels...).Build()).Error()
}

// Ping waits for the answer, which Receive reports as Alive.
func (m *messages) Ping(ctx context.Context) error {
	wire, _ := m.connected()
	err := wire.Do(ctx, wire.B().Ping().Build()).Error()
	if err == nil {
		m.pass(store.Message{Kind: store.Alive})
	}
	return err
}

// Receive waits for a message, or for the end of the connection.
func (m *messages) Receive(ctx context.Context) (store.Message, error) {
	_, ended := m.connected()
	select {
	case got := <-m.come:
		return got, nil
	case err := <-ended:
		if err == nil {
			err = errMessagesClosed
		}
		return store.Message{}, err
	case <-m.closed:
		return store.Message{}, errMessagesClosed
	case <-ctx.Done():
		return store.Message{}, ctx.Err()
	}
}

// Close ends the connection.
func (m *messages) Close() error {
	m.once.Do(func() { close(m.closed) })
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.wire != nil {
		m.wire.Close()
	}
	return nil
}
