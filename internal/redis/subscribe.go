package redis

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/waiting"
)

const (
	defaultIdle  = time.Second
	defaultQuiet = 3 * time.Second
	firstRestart = 10 * time.Millisecond
	lastRestart  = time.Second
)

// Messages is one pub/sub connection. One goroutine subscribes, unsubscribes and pings, another
// one receives.
type Messages interface {
	Subscribe(ctx context.Context, channels ...string) error
	Unsubscribe(ctx context.Context, channels ...string) error
	Ping(ctx context.Context) error

	// Receive waits for what the server sends next. Whatever is wrong with the connection is an
	// error, for good.
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

// The kinds. The zero Kind only says that the server answers.
const (
	Alive Kind = iota
	Published
	Confirmed // the channel is subscribed
)

// Watch signals when c.Key is released, by anybody; for a claim in the queue, when the key is
// handed over to it. All watches of a backend share one connection, which is restored when it
// breaks; then every watcher is signalled, as it may have missed a message. Watch returns when the
// server has confirmed the subscription, when ctx is done, or after RequestTimeout.
//
// The error is [errors.ErrUnsupported] if the user may not subscribe, or may not publish: then
// nobody would be woken.
func (s *Store) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	if s.noPublish.Load() {
		return nil, fmt.Errorf("%w: wake-ups: the user may not PUBLISH (needed: %s)",
			errors.ErrUnsupported, needs)
	}
	if c.Queue {
		return s.waiters.watch(ctx, s.Layout.ClientChannel(), &s.waiters.Queue, s.Layout.Topic(c))
	}
	channel := s.Layout.Channel(c.Key)
	return s.waiters.watch(ctx, channel, &s.waiters.Hub, channel)
}

// Waiters returns the subscription of all who watch.
func (s *Store) Waiters() *Subscription { return s.waiters }

// A Subscription is the one pub/sub connection of a Store. All watchers share it through a Hub.
//
// One goroutine (serve) decides: it alone subscribes and unsubscribes, so both are on the wire in
// the order in which it decided, and the leaving of a last watcher cannot cross the coming of a
// new one. Another (listen) reads. serve lives from the first Watch to Close, the connection and
// listen only while somebody watches.
type Subscription struct {
	store  *Store
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	nudge  chan struct{} // one slot: a channel was added
	heard  atomic.Int64  // when the server last said something, in ns since start
	start  time.Time
	Hub    waiting.Hub[backend.Wake] // of claims that do not queue, by channel name
	// of those that do, by Layout.Topic; all come on the client's channel
	Queue waiting.Hub[backend.Wake]
	// a channel stays for one to two of these without a watcher: the next often comes soon
	Idle  time.Duration
	Quiet time.Duration // a connection on which nothing came for so long is pinged

	mu       sync.Mutex // guards the rest; taken before the Hub's own
	started  bool
	closed   bool
	channels map[string]*channel
}

// A channel is one that the server was asked for, or is to be asked for.
type channel struct {
	sent   bool // asked for on the present connection
	lived  bool // was confirmed at least once, so watchers rely on it
	vacant bool // had no watcher when last looked at
	state  *confirmation
}

// A confirmation is what Watch waits for. rounds is guarded by Subscription.mu, err is written
// before done is closed.
type confirmation struct {
	done   chan struct{}
	err    error
	rounds int // connections that broke before they confirmed
}

func (c *confirmation) answered() bool {
	select {
	case <-c.done:
		return true
	default:
		return false
	}
}

func newConfirmation() *confirmation { return &confirmation{done: make(chan struct{})} }

func newSubscription(store *Store) *Subscription {
	ctx, cancel := context.WithCancel(context.Background())
	return &Subscription{
		store: store, ctx: ctx, cancel: cancel, nudge: make(chan struct{}, 1), start: time.Now(),
		channels: map[string]*channel{},
		Idle:     defaultIdle, Quiet: defaultQuiet,
	}
}

// close ends both goroutines, waits for them, and closes every watch.
func (s *Subscription) close() {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.cancel()
	s.tasks.Wait()
	s.Hub.Close()
	s.Queue.Close()
}

// want returns what to wait for until the channel is confirmed. The watcher must be in the Hub
// before: then sweep either sees it, or has dropped the channel already, and want adds it anew.
func (s *Subscription) want(name string) (*confirmation, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, backend.ErrClosed
	}
	if !s.started {
		s.started = true
		s.tasks.Go(s.serve)
	}
	c := s.channels[name]
	if c == nil {
		c = &channel{state: newConfirmation()}
		s.channels[name] = c
		select {
		case s.nudge <- struct{}{}:
		default: // serve has yet to look, and will see this one too
		}
	}
	return c.state, nil
}

// serve keeps a connection as long as channels are wanted.
func (s *Subscription) serve() {
	backoff := waiting.NewBackoff(firstRestart, lastRestart)
	for s.ctx.Err() == nil {
		if _, left := s.Sweep(); left == 0 {
			backoff.Reset()
			select {
			case <-s.nudge:
			case <-s.ctx.Done():
			}
			continue
		}
		confirmed, err := s.connection()
		if err == nil {
			continue
		}
		if confirmed {
			backoff.Reset()
		}
		s.broken(err)
		waiting.Pause(s.ctx, backoff.Next())
	}
}

// connection makes one connection and serves on it until it breaks, or, with a nil err, until
// nobody watches or close is called. confirmed says that the server confirmed a channel on it.
func (s *Subscription) connection() (confirmed bool, err error) {
	ctx, cancel := context.WithCancel(s.ctx)
	ps := s.store.t.Messages(ctx) // sends nothing yet
	var ended chan error          // of listen; nil until it runs
	var confirmations atomic.Int64
	defer func() {
		cancel()
		_ = ps.Close() // a read is left only when its connection is closed
		if ended != nil {
			//nolint:errcheck // why it ended: because of the lines above, or it was told already
			<-ended
		}
		confirmed = confirmations.Load() > 0
	}()
	ticker := time.NewTicker(s.Idle)
	defer ticker.Stop()
	due := false // to tidy
	for {
		if err := s.subscribe(ctx, ps); err != nil {
			return false, err
		}
		// It is started only now, so that a connection that cannot be made is reported here, once.
		if ended == nil {
			s.listening()
			ended = make(chan error, 1)
			s.tasks.Go(func() {
				ended <- s.listen(ctx, ps, &confirmations)
				close(ended)
			})
		}
		if due {
			if idle, err := s.tidy(ctx, ps); idle || err != nil {
				return false, err
			}
		}
		due = false
		select {
		case err := <-ended:
			return false, err
		case <-s.ctx.Done():
			return false, nil
		case <-s.nudge:
		case <-ticker.C:
			due = true
		}
		// Of what came at once, such as during a request, the end of the connection is first.
		select {
		case err := <-ended:
			return false, err
		default:
		}
		select { // and one tick is tidied for once, whichever of the two was taken above
		case <-ticker.C:
			due = true
		default:
		}
	}
}

// subscribe asks for every channel that was not asked for on this connection yet.
func (s *Subscription) subscribe(ctx context.Context, ps Messages) error {
	var names []string
	s.mu.Lock()
	for name, c := range s.channels {
		if !c.sent {
			c.sent = true
			names = append(names, name)
		}
	}
	s.mu.Unlock()
	if len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, s.store.cfg.RequestTimeout)
	defer cancel()
	return ps.Subscribe(ctx, names...)
}

// tidy unsubscribes what nobody watches any more, and pings a server that says nothing. idle says
// that no channel is left.
func (s *Subscription) tidy(ctx context.Context, ps Messages) (idle bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.store.cfg.RequestTimeout)
	defer cancel()
	dropped, left := s.Sweep()
	if left == 0 {
		return true, nil
	}
	if len(dropped) > 0 { // without names it would unsubscribe from all
		if err := ps.Unsubscribe(ctx, dropped...); err != nil {
			return false, err
		}
	}
	switch silence := time.Since(s.start) - time.Duration(s.heard.Load()); {
	case silence > s.Quiet+s.store.cfg.RequestTimeout:
		return false, errors.New("redis: the pub/sub connection does not answer a ping")
	case silence > s.Quiet:
		return false, ps.Ping(ctx)
	}
	return false, nil
}

// Sweep drops the channels that had no watcher at two sweeps in a row. It decides and drops under
// one lock, see want.
func (s *Subscription) Sweep() (dropped []string, left int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.channels {
		watched := s.Hub.Watched(name)
		if name == s.store.Layout.ClientChannel() {
			watched = !s.Queue.Empty()
		}
		if !watched && c.vacant {
			delete(s.channels, name)
			dropped = append(dropped, name)
		}
		c.vacant = !watched
	}
	return dropped, len(s.channels)
}

// broken takes back what the lost connection had confirmed. Those who wait for a confirmation are
// told at the second connection that breaks, as the first may have been broken before they came,
// or at once if the server forbids it.
func (s *Subscription) broken(err error) {
	err = s.store.Failure(context.Background(), err)
	forbidden := errors.Is(err, script.ErrNotPermitted)
	if forbidden || errors.Is(err, errors.ErrUnsupported) {
		// Not ErrDenied: a user who may not subscribe can lock, and poll.
		forbidden, err = true, fmt.Errorf("%w: wake-ups: %s", errors.ErrUnsupported, err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, c := range s.channels {
		c.sent = false
		if c.state.answered() {
			c.state = newConfirmation()
			continue
		}
		if c.state.rounds++; c.state.rounds < 2 && !forbidden {
			continue
		}
		c.state.err = err
		close(c.state.done)
		c.state = newConfirmation()
		if !c.lived {
			delete(s.channels, name)
		}
	}
}

// watches reports whether somebody watches key without a place in its queue.
func (s *Subscription) watches(key string) bool {
	return !s.Hub.Empty() && s.Hub.Watched(s.store.Layout.Channel(key))
}

// Confirmed reports whether the server has confirmed the channel on the present connection.
func (s *Subscription) Confirmed(channel string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.channels[channel]
	return c != nil && c.state.answered()
}

// watch enters topic in hub and waits until channel, on which its messages come, is confirmed. For
// a claim in the queue that is the client's one channel, so only the first of them waits for the
// server.
func (s *Subscription) watch(
	ctx context.Context, channel string, hub *waiting.Hub[backend.Wake], topic string,
) (<-chan backend.Wake, error) {
	if s.ctx.Err() != nil {
		return nil, backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	// safeguard: watcher-enters-first
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
	// What was signalled so far, the confirmation above all, is older than the attempt that the
	// caller makes next, and would cost another one. A grant that was handed over meanwhile stays.
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
	if state.answered() { // somebody watches already: no timer for the common case
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
		return fmt.Errorf("redis: subscription was not confirmed within %v",
			s.store.cfg.RequestTimeout)
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

// deliver passes a message on. On the client's channel it is a grant for one claim, which takes
// the place of an older signal; on a lock's, whatever it says, the lock may be free.
func (s *Subscription) deliver(m Message) {
	if m.Channel != s.store.Layout.ClientChannel() {
		s.Hub.Wake(m.Channel, backend.Wake{})
	} else if topic, w, ok := script.DecodeHanded(m.Payload); ok {
		if s.store.cfg.Replicas > 0 { // safeguard: handed-unreplicated
			// No grant before the replicas have it, which the claimant's own attempt waits for.
			w = backend.Wake{}
		}
		s.Queue.Deliver(topic, w)
	}
}

// confirm lets those return who wait for the channel, and signals those who watched it on an
// earlier connection: what was published in between is lost.
func (s *Subscription) confirm(name string) {
	if name == s.store.Layout.ClientChannel() {
		s.Queue.WakeAll(backend.Wake{})
	} else {
		s.Hub.Wake(name, backend.Wake{}) // first, so that a Watch that returns has it behind
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.channels[name]; c != nil && !c.state.answered() {
		c.lived = true
		close(c.state.done)
	}
}
