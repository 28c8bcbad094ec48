package generations

import (
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
)

// The key and the value of the story.
const (
	resource  = "key_resource_id"
	lockValue = "lock_value"
)

var setnxExpire = scenario{
	title: "SETNX, then EXPIRE, and a crash between the two",
	fails: "two commands are not one step: the lock lives for ever, and nobody else ever gets it",
	holds: "a lock and its lease are granted in one step; the lock of a crashed holder is free after its TTL",
	old: func(s *scene) {
		rdb := s.redis(resource)
		s.command("A", rdb, "1", "SETNX", resource, lockValue)
		s.did("A", "crashes before EXPIRE "+resource+" 100", "")
		s.command("B", rdb, "0", "SETNX", resource, lockValue)
		s.command("B", rdb, "-1", "TTL", resource)
	},
	holdfast: func(s *scene) {
		a, b := s.party("A", s.url), s.party("B", s.url)
		g := a.tries(resource)
		a.crashes("crashes")
		b.refused(resource, backend.ErrHeld)
		next := b.waits(resource)
		s.rises(g, next)
		b.unlocks(next, nil)
	},
}

// rises tells that the token of the later hold is the higher one.
func (s *scene) rises(earlier, later *guard) {
	s.want("the fencing token rises", strconv.FormatBool(later.Hold().Token > earlier.Hold().Token), "true")
	s.did("", "the fencing token is higher than that of the hold before", "")
}

// A clock is that of a client of the story, in milliseconds.
type clock int64

const noon clock = 1_700_000_000_000

func (c clock) in(d time.Duration) clock { return c + clock(d.Milliseconds()) }

var clientDeadline = scenario{
	title: "SETNX with the client's own deadline as the value, and GETSET",
	fails: "clocks must agree, which they do not; and a deadline can be overwritten by one who does not get the lock",
	holds: "Redis counts the lease, by a duration; a client's time of day takes no part, and who is refused changes nothing",
	old: func(s *scene) {
		rdb := s.redis(resource)
		const lease = 100 * time.Second
		s.did("A", "its clock says "+noon.String()+", and B's 2 minutes more", "")
		s.command("A", rdb, "1", "SETNX", resource, noon.in(lease))
		ahead := noon.in(2 * time.Minute)
		s.command("B", rdb, "0", "SETNX", resource, ahead.in(lease))
		s.command("B", rdb, noon.in(lease).String(), "GET", resource)
		s.did("B", noon.in(lease).String()+" < "+ahead.String()+": \"expired\"", "")
		s.command("B", rdb, noon.in(lease).String(), "GETSET", resource, ahead.in(lease))
		s.did("B", "the old value is the one it saw: locked, beside A", "")

		// Later, with clocks that agree: B has crashed, and its deadline is over.
		later := ahead.in(2 * lease)
		expired := ahead.in(lease).String()
		s.did("C", "its clock says "+later.String()+", as does D's; B has crashed", "")
		s.command("C", rdb, expired, "GET", resource)
		s.command("D", rdb, expired, "GET", resource)
		s.command("C", rdb, expired, "GETSET", resource, later.in(lease))
		s.did("C", "the old value is the one it saw: locked", "")
		s.command("D", rdb, later.in(lease).String(), "GETSET", resource, later.in(2*lease))
		s.did("D", "the old value is another: not locked", "")
		s.command("C", rdb, later.in(2*lease).String(), "GET", resource)
		s.did("C", "holds with the deadline of D, which holds nothing", "")
	},
	holdfast: func(s *scene) {
		a, b, c, d := s.party("A", s.url), s.party("B", s.url), s.party("C", s.url), s.party("D", s.url)
		g := a.tries(resource)
		b.refused(resource, backend.ErrHeld)
		a.holds(g)
		a.crashes("crashes")
		next := c.waits(resource)
		d.refused(resource, backend.ErrHeld)
		c.holds(next)
		c.unlocks(next, nil)
	},
}

func (c clock) String() string { return strconv.FormatInt(int64(c), 10) }

// MarshalBinary is how go-redis sends it.
func (c clock) MarshalBinary() ([]byte, error) { return []byte(c.String()), nil }

// setNX is the one command that replaced SETNX and EXPIRE.
func (s *scene) setNX(who string, rdb *redis.Client, want, value string) {
	s.command(who, rdb, want, "SET", resource, value, "EX", 100, "NX")
}

var longWork = scenario{
	title: "SET with EX and NX, and work that takes longer than the TTL",
	fails: "the lock is over, and the work is not: A and B are in the critical section together",
	holds: "the lease is renewed while the holder lives; if it cannot be, the holder hears of it (see 4)",
	old: func(s *scene) {
		rdb := s.redis(resource)
		s.setNX("A", rdb, "OK", lockValue)
		s.setNX("B", rdb, "nil", lockValue)
		s.did("A", "works for 150s", "")
		s.pass(rdb, "100s", resource)
		s.setNX("B", rdb, "OK", lockValue)
		s.did("A", "is still at work, and so is B", "")
	},
	holdfast: func(s *scene) {
		a, b := s.party("A", s.url), s.party("B", s.url)
		g := a.tries(resource)
		first := g.Until()
		s.did("A", "works for longer than its TTL", "")
		for g.Until().Before(first.Add(s.ttl)) && s.ctx.Err() == nil && g.Context().Err() == nil {
			s.pause(s.ttl / 20)
		}
		b.refused(resource, backend.ErrHeld)
		a.holds(g)
		a.unlocks(g, nil)
		b.unlocks(b.tries(resource), nil)
	},
}

// pause waits for d, or until the scene has to end.
func (s *scene) pause(d time.Duration) {
	select {
	case <-time.After(d):
	case <-s.ctx.Done():
	}
}
