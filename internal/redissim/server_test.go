package redissim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/simstore"
	"github.com/holdfast-go/holdfast/internal/smallredis"
	"github.com/holdfast-go/holdfast/waiting"
)

// A server is one that clients connect to: a small Redis with a clock of its own, and a process
// that can pause and fail. Only the network's goroutine calls it, but for its faults, which are
// events too.
type server struct {
	w     *world
	index int
	redis *smallredis.Server
	guard bool // clients know that it may forget

	records      records // of one that is no Redis; redis is not used
	capabilities backend.Capabilities
	watches      []chan struct{} // of records; closed to end them

	rate   float64
	offset time.Duration
	origin time.Time
	lives  int

	stepped time.Duration // how far its clock was set back

	released map[string]time.Duration // claims, by id, and when this process executed their release

	paused time.Time // nothing is executed until then
	down   bool      // connections are refused
	before *server   // after a failover, the one that was the primary
	moved  map[int]time.Time

	// by tag; those that it has, or has not, as at first are not there
	slots map[string]*smallredis.Slot
}

func newServer(w *world, index int, r *rand.Rand) *server {
	s := &server{w: w, index: index, rate: 1 + (2*r.Float64()-1)*0.009, origin: time.Now()}
	s.offset = either(r, w.apart)
	// servers that hand locks on to each other have nearly one clock, see guarantees.md.
	if w.moves && index > 0 {
		s.rate, s.offset = w.servers[0].rate, w.servers[0].offset+either(r, w.ttl/400)
	}
	s.redis = smallredis.New(s.now, s.life())
	s.released = map[string]time.Duration{}
	s.redis.Publish = func(channel, payload string) int { return w.publish(s, channel, payload) }
	s.redis.IFEQ, s.redis.Cover = w.kind.native, w.v.cover
	if w.moves {
		s.slots, s.redis.Slot = map[string]*smallredis.Slot{}, s.slot
	}
	if w.kind.guard {
		s.guard = true
		s.redis.Journal()
	}
	if w.kind.quorum {
		s.asNode(r)
	}
	if w.kind.records {
		s.records = simstore.New(simstore.Config{Now: s.ran})
	}
	if s.records != nil {
		s.capabilities = s.records.Capabilities()
	}
	return s
}

// now is the server's clock.
func (s *server) now() time.Time {
	return s.origin.Add(time.Duration(float64(time.Since(s.origin))*s.rate) + s.offset).Round(0)
}

// life is another replication id with each start.
func (s *server) life() string {
	s.lives++
	return fmt.Sprintf("%040x", uint64(s.index+1)<<32|uint64(s.lives))
}

// faults has what the kind of world allows befall the server, until ctx is done.
func (s *server) faults(ctx context.Context, r *rand.Rand) {
	ttl := s.w.ttl
	for waiting.Pause(ctx, min(ttl/2, s.w.calm)+fraction(r, s.w.calm)) {
		cuts := s.w.kind.quorum && s.index == 0
		if (s.w.kind.guard || cuts) && r.IntN(4) > 0 &&
			!s.w.someoneHolds(ctx, fraction(r, ttl/20)) {
			return
		}
		what, long, lost := cmp.Or(s.w.v.always, r.IntN(10)), fraction(r, ttl), r.Float64()
		s.w.net.submit(fmt.Sprintf("fault %d", s.index), "", "", func(r *rand.Rand) {
			s.w.net.at(time.Now().Add(time.Duration(1+r.IntN(1000))), func() {
				if cuts && what < 6 {
					s.w.powerCut(r)
				} else {
					s.fault(what, long, lost)
				}
			})
		})
	}
}

// someoneHolds waits until somebody has begun to hold, and a little longer: what a server forgets
// is worth something then. False: ctx is done.
func (w *world) someoneHolds(ctx context.Context, d time.Duration) bool {
	select {
	case <-w.held: // an older one
	default:
	}
	select {
	case <-w.held:
	case <-ctx.Done():
		return false
	}
	return waiting.Pause(ctx, d)
}

// stepBack is the number of the fault that sets a clock back, where there is no guard.
const stepBack = 7

func (s *server) fault(what int, long time.Duration, lost float64) {
	w := s.w
	switch {
	case w.kind.records:
		s.recordFault(what, long, lost)
	case what < 3:
		s.paused = time.Now().Add(long)
		w.net.note("server %d pauses for %v", s.index, long)
	case what == 3:
		s.redis.Full = !s.redis.Full
		w.net.note("server %d full: %v", s.index, s.redis.Full)
	case what == 4 && w.kind.native:
		s.redis.IFEQ = !s.redis.IFEQ
		w.net.note("server %d has IFEQ: %v", s.index, s.redis.IFEQ)
	case what == 5:
		w.cut(s)
		w.net.note("server %d drops its connections", s.index)
	case what >= 6 && what < 9 && w.moves:
		w.moveSlot(rand.New(rand.NewPCG(w.seed, uint64(time.Since(w.net.start)))))
	case what >= 6 && what < 9 && w.kind.quorum:
		s.reboot(long, lost < 0.5)
	case what == 6 && w.kind.guard:
		s.restart(long, int(lost*2)*s.redis.Written()) // with all that it had, or nothing
	case what == 7 && w.kind.guard:
		s.restart(long, s.redis.Written()-int(lost*10)) // without the last of it
	case what == 8 && w.kind.guard:
		s.redis.Flush()
		w.net.note("server %d is flushed", s.index)
	case what == 9 && w.kind.slower > 0 && s.lives < 4:
		// By less than the retention in all: a token that was dropped meanwhile is below the clock.
		s.offset -= time.Duration(lost * float64(min(w.kind.slower, w.retention/4)))
		s.redis.ID = s.life()
		w.cut(s)
		w.net.note("server %d is replaced by a replica that lacks nothing, and whose "+
			"clock is behind", s.index)
	case what == 9 && w.kind.guard:
		s.failover(lost)
	// back, by a little: forward is what no lease survives.
	case what == 9 && w.kind.quorum && s.stepped < w.ttl/5, what == stepBack && s.stepped < w.ttl:
		step := time.Duration(lost * float64(w.ttl/20))
		if w.v.always == stepBack { // so that it shows sooner
			step *= 5
		}
		s.offset -= step
		s.stepped += step
		w.net.note("server %d sets its clock back by %v", s.index, step)
	default:
		s.paused = time.Now().Add(long / 10)
	}
}

// restart has the server come back with the first n writes of its journal.
func (s *server) restart(d time.Duration, n int) {
	w := s.w
	w.net.note("server %d restarts with %d of %d writes", s.index, n, s.redis.Written())
	s.become(s.redis.Follow(max(n, 0), s.now, s.life()))
	s.down = true
	w.cut(s)
	w.net.at(time.Now().Add(d), func() { s.down = false })
}

// become replaces the process.
func (s *server) become(r *smallredis.Server) {
	r.Publish, r.IFEQ, r.Cover = s.redis.Publish, s.redis.IFEQ, s.redis.Cover
	if s.w.v.sameLife {
		r.ID = s.redis.ID
	}
	r.Journal()
	s.redis, s.released = r, map[string]time.Duration{}
}

// failover promotes a replica that lacks the last writes. Clients learn of it one after the other;
// until then they talk to the old primary, which writes until it has heard nothing of its replicas
// for the replica lag.
func (s *server) failover(lost float64) {
	w := s.w
	r := rand.New(rand.NewPCG(w.seed, uint64(time.Since(w.net.start))))
	old := *s
	old.lives += 100
	s.before = &old
	s.moved = map[int]time.Time{}
	lag := fraction(r, w.kind.lag)
	for _, c := range w.clients {
		s.moved[c.index] = time.Now().Add(fraction(r, 2*w.kind.lag))
	}
	w.net.note("server %d is replaced by a replica that lacks %d writes", s.index, int(lost*10))
	old.redis.Now = old.now // the old primary keeps its clock
	s.offset += either(r, w.ttl/20)
	s.become(s.redis.Follow(max(s.redis.Written()-int(lost*10), 0), s.now, s.life()))
	w.net.at(time.Now().Add(lag), func() { old.redis.Replica = true })
}

// of returns the process that a client is connected to.
func (s *server) of(client int) *server {
	if s.before != nil && time.Now().Before(s.moved[client]) {
		return s.before
	}
	return s
}

// fraction draws a part of d.
func fraction(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Float64() * float64(d))
}

// either draws a part of d, or of its opposite.
func either(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration((2*r.Float64() - 1) * float64(d))
}

// sees that a claim that was released is not granted: by a request that was sent before, and comes
// late, or by one that is sent in spite of it.
func (s *server) executed(verb, id string, granted bool) {
	switch verb {
	case "RELEASE":
		s.released[id] = time.Since(s.w.net.start)
	case "ACQUIRE":
		if s.w.kind.quorum {
			return // which may ask again by the same name, if nothing is in flight
		}
		if at, ok := s.released[id]; ok && granted {
			s.w.violate("a claim was granted that had been released at %v", at)
		}
	}
}

// expires sees that a script leaves no lock that the server would keep for good if nobody came any
// more. A saved state may stay, the server's mark, and what a user's fenced script writes.
func (s *server) expires(verb string, keys []string) {
	if verb == "" {
		return // a script of the user
	}
	for _, key := range keys {
		if strings.HasSuffix(key, ":state") || strings.HasSuffix(key, "mark") {
			continue
		}
		if left, err := s.redis.Do("PTTL", key); err == nil && left == int64(-1) {
			s.w.violate("%s left %q without an expiry", verb, key)
		}
	}
}

// TestOldPrimaryKeepsItsClock replaces a primary by a replica with another clock: the old one,
// which some clients still talk to, goes on by its own. A clock that makes a step is what no lease
// survives.
func TestOldPrimaryKeepsItsClock(t *testing.T) {
	k := kinds[slices.IndexFunc(kinds, func(k kind) bool { return k.name == "failover" })]
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(k, 1, variant{})
		s := w.servers[0]
		w.inNet("a failover", func() {
			before := s.redis.Now()
			s.failover(0.5)
			if now := s.before.redis.Now(); !now.Equal(before) {
				t.Errorf("the clock of the old primary was set from %v to %v", before, now)
			}
			if now := s.redis.Now(); now.Equal(before) {
				t.Error("the new primary has the clock of the old one: that shows nothing")
			}
		})
		for _, c := range w.clients {
			c.close()
		}
		w.net.close()
	})
}
