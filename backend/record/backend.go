package record

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// Backend is one client of a store of records.
type Backend struct {
	backend.Base
	store Store
	cfg   Config
	caps  backend.Capabilities
	hub   waiting.Hub[backend.Wake]
	look  lookout

	mu     sync.Mutex // guards closed, and verbs.Add against verbs.Wait
	closed bool
	verbs  sync.WaitGroup // under way
}

var _ backend.Backend = (*Backend)(nil)

// New returns a client of store. Several of one store, in one process or in many, keep the same
// locks, if they agree on Config.
func New(store Store, cfg Config) *Backend {
	cfg.MinTTL = cmp.Or(cfg.MinTTL, 100*time.Millisecond)
	cfg.MaxRecord = cmp.Or(cfg.MaxRecord, 64<<10)
	cfg.Timeout = cmp.Or(cfg.Timeout, 5*time.Second)
	cfg.Poll = cmp.Or(cfg.Poll, 250*time.Millisecond)
	b := &Backend{store: store, cfg: cfg, caps: Capabilities}
	b.caps.Name, b.caps.MinTTL = cfg.Name, cfg.MinTTL
	b.caps.Observe = cfg.Watch != nil
	b.look.start(b)
	return b
}

// Capabilities are [Capabilities], without Observe if the store gives no notice of changes.
func (b *Backend) Capabilities() backend.Capabilities { return b.caps }

// errAsItIs has a store write nothing where the rules have changed nothing.
var errAsItIs = errors.New("the record stays as it is")

// change makes one verb about key. refuse says that the verb may be refused for want of room.
func (b *Backend) change(ctx context.Context, key string, refuse bool,
	verb func(r *Record, now time.Time) error,
) error {
	ctx, done, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	defer b.look.asked(key) // safeguard: record-asked
	var answer error
	var after *Record
	err = b.store.Change(ctx, key, func(value []byte, now time.Time) ([]byte, error) {
		after, err = Decode(key, value)
		if err != nil {
			return nil, err
		}
		after.slack = b.cfg.Skew
		answer = verb(after, now)
		next, err := b.encode(key, after, len(value), refuse, now)
		if err == nil && bytes.Equal(next, value) {
			err = errAsItIs
		}
		return next, err
	})
	switch {
	case errors.Is(err, errAsItIs):
		return answer
	case err != nil:
		return err
	}
	if after.NewSignals { // those of other processes hear of the change
		after.Signal(&b.hub, key)
	}
	return answer
}

// encode returns the value of r: nil if nothing of it is left. The last eighth of the room is for
// those who hold or wait already: their claims leave tombstones.
func (b *Backend) encode(key string, r *Record, before int, refuse bool,
	now time.Time,
) ([]byte, error) {
	if r.Trim(now) && r.Passed(now) {
		return nil, nil
	}
	value, limit := r.Encode(key), b.cfg.MaxRecord
	if refuse {
		limit -= limit / 8
	}
	// Safety: who repeats its claim, as it does not know the answer, makes the record no longer,
	// and is told.
	// safeguard: record-room
	over := func() bool { return len(value) > before && len(value)-len(r.Saved) > limit }
	if over() {
		for i := range r.Holds {
			if h := r.Holds[i].Handed; h != nil {
				h.Before = nil // for tracing alone
			}
		}
		value = r.Encode(key)
	}
	if over() {
		return nil, &FullError{
			Bytes: len(value) - len(r.Saved), Limit: limit,
			Claims: len(r.Holds) + len(r.Queue) + len(r.Tombs),
		}
	}
	return value, nil
}

// use returns ctx, bounded, until done is called.
func (b *Backend) use(ctx context.Context) (bounded context.Context, done func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return nil, nil, backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, err
	}
	b.verbs.Add(1)
	bounded, cancel := context.WithTimeout(ctx, b.cfg.Timeout)
	return bounded, func() { cancel(); b.verbs.Done() }, nil
}

// TryAcquire implements [backend.Backend]. A claim for which the record has no room is a
// *[FullError].
func (b *Backend) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	if err := c.Validate(b.caps); err != nil {
		return backend.Grant{}, err
	}
	err = b.change(ctx, c.Key, true, func(r *Record, now time.Time) (err error) {
		g, err = r.Acquire(c, now)
		return err
	})
	if err != nil {
		return backend.Grant{}, err
	}
	return g, nil
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := c.Validate(b.caps); err != nil {
		return err
	}
	return b.change(ctx, c.Key, false, func(r *Record, now time.Time) error {
		return r.Renew(c, now)
	})
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, c backend.Claim) (told backend.Released, err error) {
	if err := c.ValidateRelease(b.caps); err != nil {
		return told, err
	}
	err = b.change(ctx, c.Key, false, func(r *Record, now time.Time) (err error) {
		told, err = r.Release(c, now)
		return err
	})
	if err != nil {
		return backend.Released{}, err
	}
	return told, nil
}

// Heartbeat implements [backend.Backend], with one change for each key.
func (b *Backend) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if err := backend.ValidateHeartbeat(claims, b.caps); err != nil {
		return nil, err
	}
	_, done, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	done()
	answers := make([]error, len(claims))
	b.together(ctx, claims, backend.ByKey(claims), answers, (*Record).Heartbeat)
	return answers, nil
}

// ReleaseAll implements [backend.Backend], with one change for each key.
func (b *Backend) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	groups, answers, err := backend.ValidateReleaseAll(claims, b.caps)
	if err != nil {
		return nil, err
	}
	_, done, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	done()
	b.together(ctx, claims, groups, answers, (*Record).ReleaseAll)
	return answers, nil
}

// together makes one verb about the claims of each key.
func (b *Backend) together(
	ctx context.Context, claims []backend.Claim, groups [][]int, answers []error,
	verb func(*Record, []backend.Claim, time.Time) []error,
) {
	backend.Together(claims, groups, answers, func(some []backend.Claim) (told []error, err error) {
		err = b.change(ctx, some[0].Key, false, func(r *Record, now time.Time) error {
			told = verb(r, some, now)
			return nil
		})
		return told, err
	})
}

// Inspect implements [backend.Backend].
func (b *Backend) Inspect(ctx context.Context, key string) (backend.State, error) {
	r, now, err := b.read(ctx, key)
	if err != nil {
		return backend.State{}, err
	}
	return r.Inspect(now), nil
}

// Saved implements [backend.Backend].
func (b *Backend) Saved(ctx context.Context, key string) ([]byte, error) {
	r, _, err := b.read(ctx, key)
	if err != nil {
		return nil, err
	}
	return r.Saved, nil
}

// read returns key's record, which is the caller's.
func (b *Backend) read(ctx context.Context, key string) (*Record, time.Time, error) {
	if err := backend.ValidateKey(key); err != nil {
		return nil, time.Time{}, err
	}
	ctx, done, err := b.use(ctx)
	if err != nil {
		return nil, time.Time{}, err
	}
	defer done()
	value, now, err := b.store.Read(ctx, key)
	if err != nil { // safeguard: record-read
		return nil, now, err
	}
	r, err := Decode(key, value)
	return r, now, err
}

// List implements [backend.Backend], with a read of each key. A value that is no record is passed
// over, and an error after all others.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	if b.cfg.Keys == nil {
		return b.Base.List(ctx, prefix)
	}
	return func(yield func(backend.Listed, error) bool) {
		var unread error
		for key, err := range b.keys(ctx, prefix) {
			state := backend.State{}
			if err == nil {
				state, err = b.Inspect(ctx, key)
			}
			switch {
			case errors.Is(err, backend.ErrForeign):
				unread = err
			case err != nil:
				yield(backend.Listed{}, err)
				return
			case state.Holders == nil && state.Waiters == nil:
			case !yield(backend.Listed{Key: key, State: state}, nil):
				return
			}
		}
		if unread != nil {
			yield(backend.Listed{}, unread)
		}
	}
}

// keys are Config.Keys, of which each step is a call of the store.
func (b *Backend) keys(ctx context.Context, prefix string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		whole, end := context.WithCancel(ctx)
		defer end()
		next, stop := iter.Pull2(b.cfg.Keys(whole, prefix))
		defer stop()
		for {
			step, done, err := b.use(ctx)
			if err != nil { // safeguard: record-list-closed
				yield("", err)
				return
			}
			inTime := context.AfterFunc(step, end) // safeguard: record-list-silent
			key, err, more := next()
			inTime()
			done()
			if err != nil && whole.Err() != nil && ctx.Err() == nil {
				err = fmt.Errorf("%w: no keys within %v: %w", backend.ErrUnavailable, b.cfg.Timeout,
					err)
			}
			if !more || !yield(key, err) || err != nil {
				return
			}
		}
	}
}

// ForceRelease implements [backend.Backend].
func (b *Backend) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, b, key, token)
}

// Identity implements [backend.Backend]: it is Config.Identity.
func (b *Backend) Identity(ctx context.Context) (string, error) {
	if b.cfg.Identity == "" {
		return b.Base.Identity(ctx)
	}
	_, done, err := b.use(ctx)
	if err != nil {
		return "", err
	}
	done()
	return b.cfg.Identity, nil
}

// Close implements [backend.Backend]. Leases that this client holds run out by themselves.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	b.verbs.Wait()
	if !first {
		return nil
	}
	b.look.close()
	b.hub.Close()
	if b.cfg.Close != nil {
		return b.cfg.Close()
	}
	return nil
}
