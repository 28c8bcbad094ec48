package etcdbackend

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A hold goes to another client, which puts its entry on a lease of its own. The first one says
// nothing more, and its own belief ends: its keepalives for others leave the entry alone.
//
// covers: B3, C1
func TestEndedHereAndHeldElsewhere(t *testing.T) {
	const ttl = slackFrom - time.Second // no slack: each renewal is a keepalive
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		first, next := p.other, p.b
		hold, alive := claim(key(t)), claim(key(t))
		hold.TTL, alive.TTL = ttl, ttl // so they share a lease
		acquired(t, first, hold)
		acquired(t, first, alive)
		want(t, "Renew by who takes the hold over", next.Renew(t.Context(), hold), nil)
		time.Sleep(ttl * 4 / 5)
		want(t, "Renew of the other hold", first.Renew(t.Context(), alive), nil)
		want(t, "Renew by who has the hold", next.Renew(t.Context(), hold), nil)
		time.Sleep(ttl * 2 / 5)
		want(t, "Renew of the other hold", first.Renew(t.Context(), alive), nil)
		time.Sleep(time.Second / 2) // for the look, and a deletion
		first.mu.Lock()
		lc := first.claims[first.scheme.paths(hold.Key).topic(hold.ID())]
		if lc == nil || !lc.ended {
			t.Error("the claim has not ended with the first client: that shows nothing")
		}
		first.mu.Unlock()
		_, err := first.TryAcquire(t.Context(), claim(hold.Key))
		want(t, "TryAcquire by another, beside who has the hold", err, backend.ErrHeld)
		want(t, "Renew by who has the hold", next.Renew(t.Context(), hold), nil)
		want(t, "Release by who has the hold", storetest.Release(t.Context(), next, hold), nil)
	})
}

// A claim is made by the second copy of a request, as a member hung with the first one, and is then
// written over, which is answered. When it is released, and the member makes the first copy after
// that, there is no entry that would live on in the keepalives of others.
//
// covers: A4, C2, X10
func TestFirstCopyComesAfterAnAnsweredWrite(t *testing.T) {
	const ttl = slackFrom - time.Second // no slack: each renewal is a keepalive
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		b, other, conn, s := p.other, p.b, p.conn, p.etcd
		alive, hold := claim(key(t)), claim(key(t))
		alive.TTL, hold.TTL, hold.NoneInFlight = ttl, ttl, true // the caller is answered each time
		acquired(t, b, alive)                                   // the lease is there, and goes on
		hung, third := s.members[1], s.members[2]
		s.mu.Lock()
		s.quiet = true // what waits for a member is not dropped
		hung.paused = true
		s.mu.Unlock()
		conn.asks(hung)
		acquired(t, b, hold)
		lc := known(b, hold)
		b.mu.Lock()
		if !lc.putPending {
			t.Error("the first copy was answered: that shows nothing")
		}
		written := lc.entry.modified
		b.mu.Unlock()
		longer := hold
		longer.TTL = 2 * ttl // so it writes
		conn.asks(third)
		want(t, "Renew for longer", b.Renew(t.Context(), longer), nil)
		b.mu.Lock()
		if lc.entry.modified == written {
			t.Error("the renewal has written nothing: that shows nothing")
		}
		b.mu.Unlock()
		conn.asks(third)
		want(t, "Release", storetest.Release(t.Context(), b, longer), nil)
		s.resume(hung, s.dice("wake"))
		for range 6 { // the first copy is made, and its lease goes on
			time.Sleep(ttl / 2)
			want(t, "Renew of the other hold", b.Renew(t.Context(), alive), nil)
		}
		_, err := other.TryAcquire(t.Context(), claim(hold.Key))
		want(t, "TryAcquire by another, after the release", err, nil)
	})
}

// An attempt is refused by the second copy of its request, as a member hung with the first one.
// When the holder has released, and the member makes the first copy after that, its entry ends with
// the attempt, although others' keepalives keep its lease.
//
// covers: A4, C2, X10
func TestFirstCopyComesAfterARefusal(t *testing.T) {
	const ttl = slackFrom - time.Second // no slack: each renewal is a keepalive
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		b, other, conn, s := p.other, p.b, p.conn, p.etcd
		alive, held := claim(key(t)), claim(key(t))
		alive.TTL, held.TTL, held.NoneInFlight = ttl, ttl, true
		acquired(t, other, held)
		acquired(t, b, alive) // the lease is there, and goes on
		refused := claim(held.Key)
		refused.TTL = ttl
		hung := s.members[1]
		s.mu.Lock()
		s.quiet = true // what waits for a member is not dropped
		hung.paused = true
		s.mu.Unlock()
		conn.asks(hung)
		_, err := b.TryAcquire(t.Context(), refused)
		want(t, "TryAcquire of a held lock", err, backend.ErrHeld)
		want(t, "Release", storetest.Release(t.Context(), other, held), nil)
		s.resume(hung, s.dice("wake"))
		time.Sleep(ttl / 4)
		if _, err = other.TryAcquire(t.Context(), claim(held.Key)); !errors.Is(err,
			backend.ErrHeld) {
			t.Errorf("the first copy was not made, which shows nothing: TryAcquire = %v", err)
		}
		for range 6 {
			time.Sleep(ttl / 2)
			want(t, "Renew of the other hold", b.Renew(t.Context(), alive), nil)
		}
		_, err = other.TryAcquire(t.Context(), claim(held.Key))
		want(t, "TryAcquire by another, three leases later", err, nil)
	})
}
