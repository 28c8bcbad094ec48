package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
	"github.com/holdfast-go/holdfast/waiting"
)

// Watch signals when c.Key is released, by anybody; for a claim in line, when the key is handed over to it. All watches of a Backend share one connection, which is restored when it
// breaks; then every watcher is signalled, as it may have missed a message. Watch returns when the server has confirmed the
// subscription, when ctx is done, or after RequestTimeout.
//
// The error is [errors.ErrUnsupported] if the user may not subscribe, or may not publish: then nobody would be woken.
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	if b.noPublish.Load() {
		return nil, fmt.Errorf("%w: wake-ups: the user may not PUBLISH (needed: %s)", errors.ErrUnsupported, redisclaim.NeedsCommands)
	}
	if c.Queue {
		return b.waiters.watch(ctx, b.layout.ClientChannel(), &b.waiters.line, b.layout.Topic(c))
	}
	channel := b.layout.Channel(c.Key)
	return b.waiters.watch(ctx, channel, &b.waiters.hub, channel)
}

// watch enters topic in hub and waits until channel, on which its messages come, is confirmed. For a claim in line that is
// the client's one channel, so only the first of them waits for the server.
func (s *subscription) watch(
	ctx context.Context, channel string, hub *waiting.Hub[backend.Wake], topic string,
) (<-chan backend.Wake, error) {
	if s.ctx.Err() != nil {
		return nil, backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	watching, leave := context.WithCancel(ctx)
	wake, _ := hub.Watch(watching, topic, nil)
	state, err := s.want(channel)
	if err == nil {
		err = s.await(ctx, state)
	}
	if err != nil {
		leave()
		return nil, err
	}
	context.AfterFunc(ctx, leave)
	// What was signalled so far, the confirmation above all, is older than the attempt that the caller makes next, and
	// would cost another one. A grant that was handed over meanwhile stays.
	select {
	case w := <-wake:
		if w.Granted {
			hub.Deliver(topic, w)
		}
	default:
	}
	return wake, nil
}

func (s *subscription) await(ctx context.Context, state *confirmation) error {
	if state.settled() { // somebody watches already: no timer for the common case
		return state.err
	}
	timer := time.NewTimer(s.b.cfg.RequestTimeout)
	defer timer.Stop()
	select {
	case <-state.done:
		return state.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return backend.ErrClosed
	case <-timer.C:
		return fmt.Errorf("redis: subscription was not confirmed within %v", s.b.cfg.RequestTimeout)
	}
}

// listening marks the beginning of a connection for the watch over its silence.
func (s *subscription) listening() { s.heard.Store(int64(time.Since(s.start))) }

// listen reads until the connection ends, which it always does with an error.
func (s *subscription) listen(ctx context.Context, ps *redis.PubSub, confirmations *atomic.Int64) error {
	for {
		message, err := receive(ctx, ps)
		if err != nil {
			return err
		}
		s.listening()
		switch m := message.(type) {
		case *redis.Message:
			s.deliver(m)
		case *redis.Subscription:
			if m.Kind == "subscribe" {
				confirmations.Add(1)
				s.confirm(m.Channel)
			}
		}
	}
}

// deliver passes a message on. On the client's channel it is a grant for one claim, which takes the place of an older signal;
// on a lock's, whatever it says, the lock may be free.
func (s *subscription) deliver(m *redis.Message) {
	if m.Channel != s.b.layout.ClientChannel() {
		s.hub.Wake(m.Channel, backend.Wake{})
	} else if topic, w, ok := redisclaim.DecodeHanded(m.Payload); ok {
		s.line.Deliver(topic, w)
	}
}

// confirm lets those return who wait for the channel, and signals those who watched it on an earlier connection: what was
// published in between is lost.
func (s *subscription) confirm(name string) {
	if name == s.b.layout.ClientChannel() {
		s.line.WakeAll(backend.Wake{})
	} else {
		s.hub.Wake(name, backend.Wake{}) // first, so that a Watch that returns has it behind
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[name]; c != nil && !c.state.settled() {
		c.lived = true
		close(c.state.done)
	}
}

// receive is ps.Receive, which panics on a message of a shape that it does not expect: here that is a broken connection.
func receive(ctx context.Context, ps *redis.PubSub) (message any, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("redis: pub/sub message is not understood: %v", r)
		}
	}()
	return ps.Receive(ctx)
}
