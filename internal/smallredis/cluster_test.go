package smallredis_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/smallredis"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TestSameAnswersWhileASlotMoves has two servers hand on a slot, key by key, and two small ones:
// both answer the same, at either server, with ASKING and without.
func TestSameAnswersWhileASlotMoves(t *testing.T) {
	testserver.OnlyInAll(t, "a cluster")
	set := testserver.Cluster(t)
	testserver.OnlyWhere(t, set.Nodes[0], func(v testserver.Version) bool {
		return v.AtLeast(7, 0)
	},
		"TRYAGAIN where a slot comes from: Redis 6 says ASK, and TRYAGAIN where it goes to")
	l, err := script.NewLayout("same:", time.Hour, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	for round := range 30 {
		r := rand.New(rand.NewPCG(uint64(round), 2))
		m := &move{r: r, l: l, key: fmt.Sprint("k", round)}
		from, err := set.Owner(l.Key(m.key))
		if err != nil {
			t.Fatal(err)
		}
		to := set.Nodes[0]
		if to == from {
			to = set.Nodes[1]
		}
		slots := []*smallredis.Slot{{}, {Owner: "from"}}
		for i, srv := range []*testserver.Server{from, to} {
			c := redis.NewClient(&redis.Options{
				Addr: srv.Addr(), DisableIdentity: true,
				PoolSize: 1, MaxRetries: -1,
			})
			t.Cleanup(func() { _ = c.Close() })
			small := smallredis.New(time.Now, strings.Repeat("a", 40))
			small.Slot = func(string) *smallredis.Slot { return slots[i] }
			m.at[i] = &pair{t: t, r: r, small: small, real: c}
		}
		m.steps(10)
		end := set.BeginMove(t, l.Key(m.key), from, to)
		slots[0], slots[1] = &smallredis.Slot{To: "to"}, &smallredis.Slot{
			Owner: "from",
			From:  "from",
		}
		for left := m.at[0].small.Keys(); len(left) > 0; left = m.at[0].small.Keys() {
			m.steps(10)
			set.MoveKey(t, left[0], from, to)
			m.at[0].small.Migrate(left[0], m.at[1].small)
		}
		m.steps(10)
		end()
		slots[0], slots[1] = &smallredis.Slot{Owner: "to"}, &smallredis.Slot{}
		m.steps(10)
		for i, p := range m.at {
			if p.differs != "" {
				t.Fatalf("round %d, server %d: %s\n%s", round, i, p.differs,
					strings.Join(m.log, "\n"))
			}
		}
	}
}

// A move is a slot that moves between two servers, each of which there is twice.
type move struct {
	r   *rand.Rand
	l   script.Layout
	key string
	at  [2]*pair
	log []string
}

func (m *move) steps(n int) {
	name := m.l.Key(m.key)
	for range n {
		p := m.at[m.r.IntN(2)]
		if m.at[0].differs+m.at[1].differs != "" {
			return
		}
		p.log = nil
		if m.r.IntN(2) == 0 {
			p.both("ASKING")
		}
		c := backend.Claim{
			Key: m.key, Owner: fmt.Sprint("owner", m.r.IntN(3)), TTL: time.Hour,
			NoneInFlight: m.r.IntN(2) == 0,
		}
		c.Queue, c.WaiterTTL, c.Load = m.r.IntN(2) == 0, time.Hour, m.r.IntN(3) == 0
		switch m.r.IntN(8) {
		case 0, 1:
			m.eval(p, "acquire", m.l.Acquire(c))
		case 2:
			if c.Load {
				c.Save = []byte("saved")
			}
			m.eval(p, "release", m.l.Release(c))
		case 3:
			m.eval(p, "renew", m.l.Renew(c))
		case 4:
			p.both("DEL", name+":none", name+":early")
		case 5:
			m.eval(p, "saved", script.Request{
				Script: script.Saved,
				Keys:   []string{name + ":state"},
			})
		default:
			p.both([][]string{
				{"GET", name + ":state"},
				{"SET", name + ":early", "1", "PX", "100000"},
				{"PTTL", name},
			}[m.r.IntN(3)]...)
		}
		m.log = append(m.log, p.log...)
	}
}

// eval runs a script on both at a time that is part of it, as no key of another slot may say it.
func (m *move) eval(p *pair, verb string, r script.Request) {
	source := clock.ReplaceAllLiteralString(r.Script.Source(), "{'1800000000', '0'}")
	mine, err := p.small.Eval(source, r.Keys, r.Args)
	given := make([]any, len(r.Args))
	for i := range r.Args {
		given[i] = r.Args[i]
	}
	theirs, real := p.real.Eval(p.t.Context(), source, r.Keys, given...).Result()
	p.same(fmt.Sprint(verb, r.Keys, r.Args), mine, err, theirs, real)
}
