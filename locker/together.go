package locker

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/holdfast-go/holdfast/backend"
)

// A together makes one request of those for several keys of All. Each key is locked, or unlocked, by a goroutine
// of its own, as if it were alone, with a seat in the place of the store: there it comes with its claim, and is
// told what the store answers for it. So there is one way only to get a lease and to end it. The request is sent by
// the last who has come or left. A store that has no such request is asked by each of them itself.
type together struct {
	store  backend.Backend
	send   func(t *together)
	seats  []seat          // in the order of keys
	claims []backend.Claim // of those who have come, each in its seat's place

	mu       sync.Mutex
	away     int           // how many have not come yet, nor left
	answered chan struct{} // closed when the seats have their answers
}

// A seat is one key's. Who has come reads it when it is answered.
type seat struct {
	backend.Backend // for all else
	at              *together
	i               int             // its place
	ctx             context.Context // of who has come
	settled, came   bool            // somebody has come, or left

	grant    backend.Grant
	released bool
	err      error
}

var (
	// errNotAsked is why a key of All is not locked before its turn for which nothing was sent to the store, or
	// nothing of it is there.
	errNotAsked = fmt.Errorf("behind a key that is not free: %w", backend.ErrHeld)

	// errNoAnswer is what everybody has been told until the store has answered: nobody knows what it did.
	errNoAnswer = errors.New("no answer to a request for several keys")
)

func newTogether(store backend.Backend, n int, send func(*together)) *together {
	t := &together{
		store: store, send: send, seats: make([]seat, n), claims: make([]backend.Claim, n), away: n, answered: make(chan struct{}),
	}
	for i := range t.seats {
		t.seats[i] = seat{Backend: store, at: t, i: i, err: errNoAnswer}
	}
	return t
}

// leave says that nobody comes for the key, or comes any more.
func (s *seat) leave() { s.settle(context.Background(), nil) }

// come brings a claim, and returns when it is answered. It reports false if that is to be asked for without
// the others, as the seat was left.
func (s *seat) come(ctx context.Context, c *backend.Claim) bool {
	if !s.settle(ctx, c) {
		return false
	}
	<-s.at.answered
	return !errors.Is(s.err, errors.ErrUnsupported)
}

// settle has the seat settled, by a claim or by none, and sends the request of all when the others are. It
// reports false if it was settled before.
func (s *seat) settle(ctx context.Context, c *backend.Claim) bool {
	t := s.at
	t.mu.Lock()
	if s.settled {
		t.mu.Unlock()
		return false
	}
	s.settled = true
	if c != nil {
		s.ctx, s.came, t.claims[s.i] = ctx, true, *c
	}
	t.away--
	last := t.away == 0
	t.mu.Unlock()
	if last {
		defer close(t.answered) // also if the backend panics: then nobody is told anything
		t.send(t)
	}
	return true
}

// TryAcquire is an attempt of the seat's key, by TryAcquireAll.
func (s *seat) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if !s.come(ctx, &c) {
		return s.Backend.TryAcquire(ctx, c)
	}
	return s.grant, s.err
}

// Release is the release of the seat's key, by TryReleaseAll if it may be.
func (s *seat) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if !c.NoneInFlight || c.Save != nil || c.NotBefore != 0 { // safeguard: all-leaves
		s.leave()
	}
	if !s.come(ctx, &c) || !s.released && s.err == nil { // safeguard: all-not-released
		return s.Backend.Release(ctx, c)
	}
	return backend.Released{}, s.err
}

// acquireTogether sends the attempts of the keys before the first that nobody came for. The first of them that is
// not granted it asks for alone: a key that is free may have more in the store than such a request takes. Then
// those behind it ask for themselves; if it is held, nobody does.
//
// Safety: the store grants each claim as by an attempt of its own, which was begun before the request was sent. Of
// a key that is not granted nothing is in the store, as the store says so; without an answer each attempt is
// unsure, and withdrawn with a tombstone.
func acquireTogether(t *together) {
	n := 0
	for n < len(t.seats) && t.seats[n].came {
		n++
	}
	tell(t.seats[n:], errNotAsked) // safeguard: all-behind
	if n < 2 {
		tell(t.seats[:n], errors.ErrUnsupported)
		return
	}
	grants, err := t.store.TryAcquireAll(t.seats[0].ctx, t.claims[:n])
	if err != nil {
		tell(t.seats[:n], err)
		return
	}
	for i := range grants {
		t.seats[i].grant, t.seats[i].err = grants[i], nil // safeguard: all-own-grant
	}
	if rest := t.seats[len(grants):n]; len(rest) > 0 {
		first := &rest[0]
		if first.grant, first.err = t.store.TryAcquire(first.ctx, t.claims[first.i]); first.err == nil {
			tell(rest[1:], errors.ErrUnsupported)
		} else {
			tell(rest[1:], errNotAsked)
		}
	}
}

// tell is the answer of all of seats. One that is [errors.ErrUnsupported] has them ask by themselves.
func tell(seats []seat, err error) {
	for i := range seats {
		seats[i].err = err
	}
}

// releaseTogether sends the releases of all keys that somebody came for.
func releaseTogether(t *together) {
	var of []*seat
	claims := t.claims[:0]
	for i := range t.seats {
		if s := &t.seats[i]; s.came {
			claims, of = append(claims, t.claims[i]), append(of, s)
		}
	}
	released, err := []bool(nil), errors.ErrUnsupported
	if len(of) > 1 {
		released, err = t.store.TryReleaseAll(of[0].ctx, claims)
	}
	for i, s := range of {
		s.err = err
		s.released = err == nil && i < len(released) && released[i]
	}
}
