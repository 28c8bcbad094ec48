package rueidisbackend

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// answers are what is known of keys that are held, see Config.HeldAnswers. An entry is made by a read that registered
// interest in its key, so the server tells of the next change, which drops it. It is never more than a refusal: that a key is
// free is always the server's word.
//
// Argument. An entry says "held by others" of the time of its read. From then on every change of the key drops it, and so does
// whatever this client did that may have changed it: its own release, and an attempt that was not answered. So a claim that is
// refused by an entry is none that this client knows to hold, or to be on its way.
type answers struct {
	seed   maphash.Seed
	shards [64]struct {
		sync.Mutex
		entries map[string]entry
		changes uint64 // dropped entries, and such as were not there
	}
}

type entry struct {
	owners []string
	until  time.Time // when the first of their leases ends
	held   backend.HeldError
}

func newAnswers() *answers {
	a := &answers{seed: maphash.MakeSeed()}
	for i := range a.shards {
		a.shards[i].entries = map[string]entry{}
	}
	return a
}

// TryAcquire makes one attempt in one script, as [backend.Backend] says, unless Config.HeldAnswers spares it. The first one
// also checks the server, and is refused with [backend.ErrUnsafe] or [backend.ErrDenied] if it is not fit.
func (b *Backend) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if b.held == nil || c.Queue || c.Reentrant || c.Mode != backend.Exclusive || c.Validate(b.Capabilities()) != nil {
		return b.verbs.TryAcquire(ctx, c)
	}
	name := b.store.Layout.Key(c.Key)
	if held := b.held.look(name, c.Owner); held != nil && ctx.Err() == nil {
		return backend.Grant{}, held
	}
	g, err := b.verbs.TryAcquire(ctx, c)
	switch {
	case errors.Is(err, backend.ErrHeld):
		changes, sent := b.held.begin(name), time.Now()
		if state, err := b.track.read(ctx, c.Key); err == nil {
			b.held.keep(name, changes, sent, state)
		}
	case backend.AnswerOf(err) != backend.No:
		b.held.forget(name)
	}
	return g, err
}

// Release ends the claim in one script, as [backend.Backend] says. It works when the server is out of memory.
func (b *Backend) Release(ctx context.Context, c backend.Claim) error {
	err := b.verbs.Release(ctx, c)
	if b.held != nil {
		b.held.forget(b.store.Layout.Key(c.Key)) // the server's own word may come later than its answer
	}
	return err
}

func (a *answers) shard(name string) int {
	return int(maphash.String(a.seed, name) % uint64(len(a.shards)))
}

// look returns the refusal of a claim by owner, or nil if the server is to be asked.
func (a *answers) look(name, owner string) *backend.HeldError {
	s := &a.shards[a.shard(name)]
	s.Lock()
	defer s.Unlock()
	e, ok := s.entries[name]
	if !ok {
		return nil
	}
	rest := time.Until(e.until)
	if rest <= 0 {
		delete(s.entries, name)
		return nil
	}
	for _, o := range e.owners {
		if o == owner { // a repeat, which extends the lease
			return nil
		}
	}
	held := e.held
	held.RetryAfter = rest
	return &held
}

// begin returns what keep wants to know. It is called before the read is sent.
func (a *answers) begin(name string) (changes uint64) {
	s := &a.shards[a.shard(name)]
	s.Lock()
	defer s.Unlock()
	return s.changes
}

// keep makes an entry of what was read, unless something has changed since.
func (a *answers) keep(name string, changes uint64, sent time.Time, state backend.State) {
	if len(state.Holders) == 0 {
		return
	}
	e := entry{held: backend.HeldError{Token: state.Token, Holder: state.Holders[0].Meta}}
	for i, h := range state.Holders {
		e.owners = append(e.owners, h.Owner)
		if end := sent.Add(h.TTL); i == 0 || end.Before(e.until) {
			e.until = end
		}
	}
	s := &a.shards[a.shard(name)]
	s.Lock()
	defer s.Unlock()
	if s.changes == changes {
		s.entries[name] = e
	}
}

// forget drops what is known of a key. A nil receiver knows nothing.
func (a *answers) forget(name string) {
	if a == nil {
		return
	}
	s := &a.shards[a.shard(name)]
	s.Lock()
	defer s.Unlock()
	s.changes++
	delete(s.entries, name)
}

// forgetAll drops everything.
func (a *answers) forgetAll() {
	if a == nil {
		return
	}
	for i := range a.shards {
		s := &a.shards[i]
		s.Lock()
		s.changes++
		clear(s.entries)
		s.Unlock()
	}
}
