package redis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/waiting"
)

// Observe tells who holds key, as [backend.Backend] says: the server tells a connection of its own
// of every write to the key (CLIENT TRACKING in BCAST mode, which costs no other client anything),
// and then the key is read. Writes that come together are told of together, so a hold that begins
// and ends while one read is in flight is not seen.
//
// The error is [errors.ErrUnsupported] if the server, or something between, has no CLIENT TRACKING
// or no RESP3, or the user may not use it.
func (s *Store) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	return func(yield func(backend.State, error) bool) {
		if err := s.checkKey(key); err != nil {
			yield(backend.State{}, err)
			return
		}
		// Close waits for the tracking, and not for the caller's loop.
		if err := s.Begin(ctx); err != nil {
			yield(backend.State{}, err)
			return
		}
		tracking, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(s.waiters.ctx, cancel)
		o := &observation{store: s, key: key, changed: make(chan struct{}, 1)}
		go func() {
			defer s.End()
			defer o.close()
			o.track(tracking)
		}()
		defer func() {
			stop()
			cancel()
			for range o.changed { // until it is closed
			}
		}()
		select {
		// The server tells, or cannot be asked to; what comes after the first look is not missed.
		case <-o.changed:
		case <-ctx.Done():
		}
		if backend.ObserveBy(ctx, backend.SlowLook, o.changed, o.look, yield) {
			yield(backend.State{}, o.refusal)
		}
	}
}

// An observation is one Observe.
type observation struct {
	store   *Store
	key     string
	changed chan struct{} // closed when there will be no more
	renew   atomic.Pointer[context.CancelFunc]
	seen    backend.State // by the last look
	refusal error         // why changed is closed

	mu     sync.Mutex // guards the rest
	told   bool       // a signal came since the last look
	closed bool       // changed is
}

// track keeps a connection on which the server tells of changes, until ctx is done or the server
// refuses it. Each time one is made or lost is a signal, as a change may have been missed.
func (o *observation) track(ctx context.Context) {
	backoff := waiting.NewBackoff(firstRestart, lastRestart)
	for ctx.Err() == nil {
		one, cancel := context.WithCancel(ctx)
		o.renew.Store(&cancel)
		var active atomic.Bool
		err := o.store.t.Track(one, o.store.Layout.Key(o.key), func() {
			active.Store(true)
			o.signal()
		})
		cancel()
		if o.refusal = o.store.untracked(err); o.refusal != nil {
			return
		}
		if active.Load() {
			backoff.Reset()
		}
		o.signal()
		waiting.Pause(ctx, backoff.Next())
	}
}

func (o *observation) signal() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.told = true; o.closed {
		return
	}
	select {
	case o.changed <- struct{}{}:
	default: // one waits there
	}
}

func (o *observation) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	close(o.changed)
}

// look reads the key. If others hold than before, and nobody had said so, the connection is given
// up: it may be to a server that is the primary no more. (Or a lease has ended; then a new
// connection does no harm.)
func (o *observation) look(ctx context.Context) (backend.State, error) {
	o.mu.Lock()
	told := o.told
	o.told = false
	o.mu.Unlock()
	state, err := o.store.Inspect(ctx, o.key)
	if err == nil {
		if renew := o.renew.Load(); !told && renew != nil && !state.SameHolders(o.seen) {
			(*renew)()
		}
		o.seen = state
	}
	return state, err
}

// untracked is the refusal that err, which ended a [Transport.Track], says; nil if it says that the
// connection was lost, or not made.
func (s *Store) untracked(err error) error {
	var reply string
	if err != nil {
		reply = s.t.Explain(err).Reply
	}
	err = s.Failure(context.Background(), err)
	switch {
	case errors.Is(err, script.ErrNotPermitted):
		return fmt.Errorf("%w: changes of a key: the user may not CLIENT TRACKING: %s",
			errors.ErrUnsupported, err.Error())
	case errors.Is(err, errors.ErrUnsupported), reply != "" &&
		backend.AnswerOf(err) == backend.Unknown:
		return fmt.Errorf("%w: changes of a key (CLIENT TRACKING with RESP3): %s",
			errors.ErrUnsupported, err.Error())
	}
	return nil
}
