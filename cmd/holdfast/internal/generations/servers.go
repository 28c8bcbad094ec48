package generations

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// The key and the values of the Redlock text.
const (
	resourceName = "resource_name"
	valueA       = "my_random_value_A"
	valueB       = "my_random_value_B"
)

var failover = scenario{
	title: "A replica is promoted that lacks the last write",
	fails: "replication is asynchronous: A and B hold one lock, one from each server",
	holds: "with max_ttl a promoted server grants nothing until the leases that it may not know of are over; without it holdfast fails, too",
	old: func(s *scene) {
		primary, replica := s.replicated()
		p, r := s.node(primary), s.node(replica)
		s.cutReplica(r)
		s.command("A", p, "OK", "SET", resourceName, valueA, "NX", "PX", 30000)
		s.promote(primary, r)
		s.command("B", r, "OK", "SET", resourceName, valueB, "NX", "PX", 30000)
		s.did("A", "holds for 30s more, and so does B", "")
	},
	holdfast: func(s *scene) {
		primary, replica := s.replicated()
		a := s.party("A", s.guarded(primary))
		s.setUp(a)
		_, err := primary.Do("WAIT", "1", "0")
		s.must("the replica has what was set up", err)
		r := s.node(replica)
		s.cutReplica(r)
		g := a.tries(resourceName)
		s.promote(primary, r)
		b := s.party("B", s.guarded(replica))
		b.refused(resourceName, backend.ErrQuarantined)
		next := b.waits(resourceName)
		a.has(g, locker.ErrLost)
		s.rises(g, next)
		b.unlocks(next, nil)
	},
}

// replicated starts a primary and its replica, and returns when they are in sync.
func (s *scene) replicated() (primary, replica *testserver.Server) {
	primary = testserver.Redis(s.t, testserver.WithArgs("--repl-diskless-sync-delay", "0"))
	replica = testserver.Redis(s.t, testserver.WithArgs("--replicaof", "127.0.0.1", fmt.Sprint(primary.Port())))
	for {
		info, err := replica.Do("INFO", "replication")
		if s.must("the replica", err); strings.Contains(fmt.Sprint(info), "master_link_status:up") {
			return primary, replica
		}
		s.must("the replica does not get in sync", s.ctx.Err())
		s.pause(s.ttl / 100)
	}
}

// cutReplica points the replica to a primary that is not there, which ends the link to its own. It
// keeps what it has.
func (s *scene) cutReplica(replica *redis.Client) {
	s.did("", "the link between primary and replica breaks", "")
	s.must("cut the replica", replica.Do(s.ctx, "REPLICAOF", "127.0.0.1", "1").Err())
}

func (s *scene) promote(primary *testserver.Server, replica *redis.Client) {
	primary.Kill()
	s.did("", "the primary crashes, before it could send that to the replica", "")
	s.must("promote the replica", replica.Do(s.ctx, "REPLICAOF", "NO", "ONE").Err())
	s.did("", "the replica is promoted: REPLICAOF NO ONE", "")
}

// guarded is the URL of a server with the guard against servers that forget.
func (s *scene) guarded(srv *testserver.Server) string {
	if s.unguarded {
		return srv.URL()
	}
	return srv.URL() + "?max_ttl=" + s.ttl.String()
}

// setUp takes a lock once. A server that meets the guard for the first time grants nothing for as
// long as one that has forgotten.
func (s *scene) setUp(p *party) {
	g, err := p.locks.Lock(s.ctx, "set up")
	s.must("the first lock of a new server", err)
	s.must("the first unlock of a new server", g.Unlock())
	s.did("", "max_ttl is "+s.ttl.String()+", and the server has been in use for longer", "")
}

var restart = scenario{
	title: "Redlock, and a node that restarts without its data",
	fails: "A has a majority, nodes 1 to 3, and B has another, nodes 3 to 5: the node in both has forgotten A",
	holds: "with max_ttl a node that restarted does not vote until the leases that it forgot are over; without it holdfast fails, too",
	old: func(s *scene) {
		nodes := testserver.Redises(s.t, 5)
		clients := make([]*redis.Client, len(nodes))
		for i, n := range nodes {
			clients[i] = s.node(n)
		}
		kill(nodes[3:])
		s.did("", "nodes 4 and 5 are down", "")
		s.redlock("A", clients, valueA, "OK, OK, OK, down, down: 3 of 5, locked")
		s.comeBack(nodes)
		s.redlock("B", clients, valueB, "nil, nil, OK, OK, OK: 3 of 5, locked")
		s.did("A", "holds for 10s, and so does B", "")
	},
	holdfast: func(s *scene) {
		nodes := testserver.Redises(s.t, 5)
		quorum := url.Values{}
		for _, n := range nodes {
			quorum.Add("node", s.guarded(n))
		}
		a, b := s.party("A", "redlock://?"+quorum.Encode()), s.party("B", "redlock://?"+quorum.Encode())
		s.setUp(a)
		kill(nodes[3:])
		s.did("", "nodes 4 and 5 are down", "")
		g := a.waits(resourceName)
		s.comeBack(nodes)
		b.refused(resourceName, locker.ErrNotAcquired) // nodes 1 and 2 say that A holds, the others nothing yet
		next := b.waits(resourceName)
		a.has(g, locker.ErrLost)
		s.rises(g, next)
		b.unlocks(next, nil)
	},
}

func kill(nodes []*testserver.Server) {
	for _, n := range nodes {
		n.Kill()
	}
}

// redlock sends the claim to one node after the other, as the text says.
func (s *scene) redlock(who string, nodes []*redis.Client, value, want string) {
	var replies []string
	locked := 0
	for _, n := range nodes {
		got, err := n.Do(s.ctx, "SET", resourceName, value, "NX", "PX", 10000).Result()
		said := reply(got, err)
		switch {
		case err == nil:
			locked++
		case said != "nil":
			said = "down"
		}
		replies = append(replies, said)
	}
	got := fmt.Sprintf("%s: %d of 5", strings.Join(replies, ", "), locked)
	if locked >= 3 {
		got += ", locked"
	}
	did := fmt.Sprintf("SET %s %s NX PX 10000 on 1, 2, 3, 4, 5", resourceName, value)
	s.did(who, did, got)
	s.want(who+"'s "+did, got, want)
}

// comeBack starts nodes 4 and 5 again, and node 3 after a crash.
func (s *scene) comeBack(nodes []*testserver.Server) {
	nodes[3].Restart()
	nodes[4].Restart()
	s.did("", "nodes 4 and 5 are up again", "")
	nodes[2].Restart()
	s.did("", "node 3 crashes, and restarts without its data", "")
}
