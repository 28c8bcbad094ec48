package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/backend"
)

// A batch makes one request of those for several keys of All. Each key is locked, or unlocked, by a
// goroutine of its own, as if it were alone, with its part of the batch in the place of the store:
// that takes its claim, and tells it what the store answers for it. So there is one way only to get
// a lease and to end it. The request is sent by the last of them that has come with a claim, or was
// skipped. A store that has no such request is asked by each of them itself.
type batch struct {
	store  backend.Backend
	send   func(b *batch)
	parts  []part          // in the order of keys
	claims []backend.Claim // of those who have come, each in its part's place

	mu       sync.Mutex
	away     int           // how many have neither come nor been skipped
	answered chan struct{} // closed when the parts have their answers
}

// A part is that of one key. Who has come reads it when it is answered.
type part struct {
	backend.Backend // for all else
	of              *batch
	i               int             // its place
	ctx             context.Context // of who has come
	settled, came   bool            // somebody has come, or left

	grant    backend.Grant
	released bool
	err      error
}

var (
	// errNotAsked is why a key of All is not locked before its turn for which nothing was sent to
	// the store, or nothing of it is there.
	errNotAsked = fmt.Errorf("behind a key that is not free: %w", backend.ErrHeld)

	// errNoAnswer is what everybody has been told until the store has answered: nobody knows what
	// it did.
	errNoAnswer = errors.New("no answer to a request for several keys")
)

func newBatch(store backend.Backend, n int, send func(*batch)) *batch {
	b := &batch{
		store: store, send: send, parts: make([]part, n), claims: make([]backend.Claim, n), away: n,
		answered: make(chan struct{}),
	}
	for i := range b.parts {
		b.parts[i] = part{Backend: store, of: b, i: i, err: errNoAnswer}
	}
	return b
}

// skip says that nobody comes for the key, or comes any more.
func (p *part) skip() { p.settle(context.Background(), nil) }

// skip is that of a part of a batch, if store is one: before a wait for another batch, which may
// wait for this one.
func skip(store backend.Backend) {
	if p, ok := store.(*part); ok {
		p.skip() // safeguard: all-unlocked-twice
	}
}

// come brings a claim, and returns when it is answered. It reports false if that is to be asked for
// without the others, as the part was skipped.
func (p *part) come(ctx context.Context, c *backend.Claim) bool {
	if !p.settle(ctx, c) {
		return false
	}
	<-p.of.answered
	return !errors.Is(p.err, errors.ErrUnsupported)
}

// settle has the part settled, by a claim or by none, and sends the request of all when the others
// are. It reports false if it was settled before.
func (p *part) settle(ctx context.Context, c *backend.Claim) bool {
	b := p.of
	b.mu.Lock()
	if p.settled {
		b.mu.Unlock()
		return false
	}
	p.settled = true
	if c != nil {
		p.ctx, p.came, b.claims[p.i] = ctx, true, *c
	}
	b.away--
	last := b.away == 0
	b.mu.Unlock()
	if last {
		defer close(b.answered) // also if the backend panics: then nobody is told anything
		b.send(b)
	}
	return true
}

// TryAcquire is an attempt of the part's key, by TryAcquireAll.
func (p *part) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if !p.come(ctx, &c) {
		return p.Backend.TryAcquire(ctx, c)
	}
	return p.grant, p.err
}

// Release is the release of the part's key, by TryReleaseAll if it may be.
func (p *part) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if !c.NoneInFlight || c.Save != nil || c.NotBefore != 0 { // safeguard: all-leaves
		p.skip()
	}
	if !p.come(ctx, &c) || !p.released && p.err == nil { // safeguard: all-not-released
		return p.Backend.Release(ctx, c)
	}
	return backend.Released{}, p.err
}

// sendAttempts sends the attempts of the keys before the first that nobody came for. The first of
// them that is not granted it asks for alone: a key that is free may have more in the store than
// such a request takes. Then those behind it ask for themselves; if it is held, nobody does.
//
// Safety: the store grants each claim as by an attempt of its own, which was begun before the
// request was sent. Of a key that is not granted nothing is in the store, as the store says so;
// without an answer each attempt is unsure, and withdrawn with a tombstone.
func sendAttempts(b *batch) {
	n := 0
	for n < len(b.parts) && b.parts[n].came {
		n++
	}
	tell(b.parts[n:], errNotAsked) // safeguard: all-behind
	if n < 2 {
		tell(b.parts[:n], errors.ErrUnsupported)
		return
	}
	grants, err := b.store.TryAcquireAll(b.parts[0].ctx, b.claims[:n])
	if err != nil {
		tell(b.parts[:n], err) // safeguard: all-unanswered
		return
	}
	for i := range grants {
		b.parts[i].grant, b.parts[i].err = grants[i], nil // safeguard: all-own-grant
	}
	if rest := b.parts[len(grants):n]; len(rest) > 0 {
		first := &rest[0]
		first.grant, first.err = b.store.TryAcquire(first.ctx, b.claims[first.i])
		if first.err == nil {
			tell(rest[1:], errors.ErrUnsupported)
		} else {
			tell(rest[1:], errNotAsked)
		}
	}
}

// tell is the answer of all of parts. One that is [errors.ErrUnsupported] has them ask by
// themselves.
func tell(parts []part, err error) {
	for i := range parts {
		parts[i].err = err
	}
}

// sendReleases sends the releases of all keys that somebody came for.
func sendReleases(b *batch) {
	var of []*part
	claims := b.claims[:0]
	for i := range b.parts {
		if p := &b.parts[i]; p.came {
			claims, of = append(claims, b.claims[i]), append(of, p)
		}
	}
	released, err := []bool(nil), errors.ErrUnsupported
	if len(of) > 1 {
		released, err = b.store.TryReleaseAll(of[0].ctx, claims)
	}
	for i, p := range of {
		p.err = err
		p.released = err == nil && i < len(released) && released[i]
	}
}
