package redis

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/waiting"
)

// watch enters topic in hub and waits until channel, on which its messages come, is confirmed. For a claim in line that is
// the client's one channel, so only the first of them waits for the server.
func (s *Subscription) watch(
	ctx context.Context, channel string, hub *waiting.Hub[backend.Wake], topic string,
) (<-chan backend.Wake, error) {
	if s.ctx.Err() != nil {
		return nil, backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	wake, leave := hub.Enter(topic)
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

func (s *Subscription) await(ctx context.Context, state *confirmation) error {
	if state.settled() { // somebody watches already: no timer for the common case
		return state.err
	}
	timer := time.NewTimer(s.store.cfg.RequestTimeout)
	defer timer.Stop()
	select {
	case <-state.done:
		return state.err
	case <-ctx.Done():
		return ctx.Err()
	case <-s.ctx.Done():
		return backend.ErrClosed
	case <-timer.C:
		return fmt.Errorf("redis: subscription was not confirmed within %v", s.store.cfg.RequestTimeout)
	}
}

// listening marks the beginning of a connection for the watch over its silence.
func (s *Subscription) listening() { s.heard.Store(int64(time.Since(s.start))) }

// listen reads until the connection ends, which it always does with an error.
func (s *Subscription) listen(ctx context.Context, ps Messages, confirmations *atomic.Int64) error {
	for {
		m, err := ps.Receive(ctx)
		if err != nil {
			return err
		}
		s.listening()
		switch m.Kind {
		case Published:
			s.deliver(m)
		case Confirmed:
			confirmations.Add(1)
			s.confirm(m.Channel)
		}
	}
}

// deliver passes a message on. On the client's channel it is a grant for one claim, which takes the place of an older signal;
// on a lock's, whatever it says, the lock may be free.
func (s *Subscription) deliver(m Message) {
	if m.Channel != s.store.Layout.ClientChannel() {
		s.Hub.Wake(m.Channel, backend.Wake{})
	} else if topic, w, ok := script.DecodeHanded(m.Payload); ok {
		if s.store.cfg.Replicas > 0 {
			w = backend.Wake{} // no grant before the replicas have it, which the claimant's own question waits for
		}
		s.Line.Deliver(topic, w)
	}
}

// confirm lets those return who wait for the channel, and signals those who watched it on an earlier connection: what was
// published in between is lost.
func (s *Subscription) confirm(name string) {
	if name == s.store.Layout.ClientChannel() {
		s.Line.WakeAll(backend.Wake{})
	} else {
		s.Hub.Wake(name, backend.Wake{}) // first, so that a Watch that returns has it behind
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[name]; c != nil && !c.state.settled() {
		c.lived = true
		close(c.state.done)
	}
}
