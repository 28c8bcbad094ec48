//go:build linux

package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// What a fault strikes.
const (
	onWorker = "worker"
	onServer = "server"
	onProxy  = "proxy"
	onSet    = "set" // of servers: one such fault at a time
)

// A fault is what can go wrong, for some time. begin strikes the one of that number, and returns
// what ends it, or nil.
type fault struct {
	name        string
	on          string
	least, most float64 // how long it lasts, in TTLs
	begin       func(s *stage, i int, r *rand.Rand) (end func())
}

// Of worker processes.
var (
	killWorker = fault{
		"a worker is killed", onWorker, 0.1, 2,
		func(s *stage, i int, _ *rand.Rand) func() {
			s.kill(i)
			return func() { s.start(i) }
		},
	}
	stopWorker = fault{
		"a worker is stopped", onWorker, 0.1, 3,
		func(s *stage, i int, _ *rand.Rand) func() {
			w := s.workers[i]
			s.must(w.Stop())
			return func() { s.must(w.Cont()) }
		},
	}
)

// Of the network: what proxies do.
var (
	hold = setProxy("nothing arrives for a while", testserver.Hold, 0.1, 1.5)
	// Who was cut off hears of it when the connection is closed at last.
	halfOpen = fault{
		"connections are half-open", onProxy, 0.3, 3,
		func(s *stage, i int, _ *rand.Rand) func() {
			p := s.proxies[i]
			p.Set(testserver.Fault{Mode: testserver.HalfOpen})
			return func() { p.Pass(); p.CutAll() }
		},
	}
	delayed      = setProxy("requests are late", testserver.Delay, 0.2, 1)
	delayedReply = setProxy("replies are late", testserver.DelayReply, 0.2, 1)
	heldReplies  = setProxy("replies are held", testserver.HoldReply, 0.5, 1.5)
	// A lease that was granted long ago is believed in now, and its renewal comes late.
	heldThenLate = fault{
		"replies are held, and then requests are late", onProxy, 0.5, 0.95,
		func(s *stage, i int, _ *rand.Rand) func() {
			s.proxies[i].Set(testserver.Fault{Mode: testserver.HoldReply})
			// Until the next fault.
			return func() {
				s.proxies[i].Set(testserver.Fault{Mode: testserver.Delay, Delay: s.ttl})
			}
		},
	}
	lostMessages = setProxy("messages are lost", testserver.LoseMessages, 0.5, 3)
	refused      = fault{
		"no connections are made", onProxy, 0.1, 2,
		func(s *stage, i int, _ *rand.Rand) func() {
			p := s.proxies[i]
			p.Set(testserver.Fault{Mode: testserver.Refuse})
			p.CutAll()
			return p.Pass
		},
	}
	lostReplies  = cutting("replies are lost", testserver.ExecuteThenCut)
	lostRequests = cutting("requests are lost", testserver.CutBeforeRequest)

	network = []fault{
		hold, halfOpen, delayed, delayedReply, heldReplies, heldThenLate,
		lostMessages, refused, lostReplies, lostRequests,
	}
)

func setProxy(name string, mode testserver.Mode, least, most float64) fault {
	return fault{name, onProxy, least, most, func(s *stage, i int, r *rand.Rand) func() {
		s.proxies[i].Set(testserver.Fault{Mode: mode, Delay: fraction(r, s.ttl)})
		return s.proxies[i].Pass
	}}
}

// cutting cuts connections at some of the requests.
func cutting(name string, mode testserver.Mode) fault {
	return fault{name, onProxy, 0.2, 1, func(s *stage, i int, r *rand.Rand) func() {
		n, every := 0, 1+r.IntN(8)
		match := func([]byte) bool { n++; return n%every == 0 } // the proxy asks under its mutex
		s.proxies[i].Set(testserver.Fault{Mode: mode, Match: match})
		return s.proxies[i].Pass
	}}
}

// Of one Redis server.
var (
	stopServer = fault{
		"a server is stopped", onServer, 0.1, 2,
		func(s *stage, i int, _ *rand.Rand) func() {
			s.servers[i].Stop()
			return s.servers[i].Cont
		},
	}
	// What it has is on the disk, if it was started so; else it comes back empty.
	killServer = fault{
		"a server is killed and restarted", onServer, 0, 1,
		func(s *stage, i int, _ *rand.Rand) func() {
			s.servers[i].Kill()
			return s.servers[i].Restart
		},
	}
	oldData = fault{
		"a server comes back with older data", onServer, 0.2, 2,
		func(s *stage, i int, _ *rand.Rand) func() {
			s.servers[i].MustDo("SAVE")
			return s.servers[i].Restart
		},
	}
	upgrade = fault{
		"a server is replaced by one of another version", onServer, 0.5, 2,
		func(s *stage, i int, r *rand.Rand) func() {
			s.servers[i].Kill()
			next := s.scenario.programs[r.IntN(len(s.scenario.programs))]
			return func() {
				s.servers[i].Use(s.program(next))
				s.servers[i].Restart()
				s.passed["now "+next]++
			}
		},
	}
	flush       = command("FLUSHALL", "FLUSHALL")
	flushScript = command("SCRIPT FLUSH", "SCRIPT", "FLUSH")
	killClients = command("CLIENT KILL", "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
	killPubSub  = command("CLIENT KILL of subscriptions", "CLIENT", "KILL", "TYPE", "pubsub")
	pauseAll    = fault{
		"CLIENT PAUSE", onServer, 0.1, 1.5,
		func(s *stage, i int, r *rand.Rand) func() {
			what := []string{"ALL", "WRITE"}[r.IntN(2)]
			s.servers[i].MustDo("CLIENT", "PAUSE", fmt.Sprint(int(100+1400*r.Float64())), what)
			return nil // by itself
		},
	}
	memoryFull = fault{
		"the memory is full", onServer, 0.1, 2,
		func(s *stage, i int, _ *rand.Rand) func() {
			s.servers[i].MustDo("CONFIG", "SET", "maxmemory", "1")
			return func() { s.servers[i].MustDo("CONFIG", "SET", "maxmemory", "0") }
		},
	}
	maxClients = fault{"maxclients", onServer, 0.2, 2, func(s *stage, i int, r *rand.Rand) func() {
		do := s.control[i]
		do("CONFIG", "SET", "maxclients", fmt.Sprint(1+r.IntN(6)))
		do("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		return func() { do("CONFIG", "SET", "maxclients", "1000") }
	}}
	denied = fault{
		"the ACL is taken away", onServer, 0.2, 2,
		func(s *stage, i int, r *rand.Rand) func() {
			do := s.control[i]
			switch r.IntN(4) {
			case 0:
				do("ACL", "SETUSER", aclUser, "-@all")
			case 1:
				do("ACL", "SETUSER", aclUser, "resetkeys")
			case 2:
				do("ACL", "SETUSER", aclUser, "-evalsha", "-publish")
			default:
				do("ACL", "DELUSER", aclUser)
			}
			return func() { do(allow...) }
		},
	}
	stepBack = fault{
		"the clock steps back", onServer, 0.1, 1,
		func(s *stage, i int, r *rand.Rand) func() {
			s.clocks[i].step(s.t, -fraction(r, 3*s.ttl))
			return nil
		},
	}
	stepForward = fault{
		"the clock steps forward", onServer, 0.1, 1,
		func(s *stage, i int, r *rand.Rand) func() {
			s.clocks[i].step(s.t, fraction(r, 2*s.ttl))
			return nil
		},
	}
	rateWithin = rated("the clock runs 0.8 % too fast or slow", 0.008)
	rateBeyond = rated("the clock runs half too fast or slow", 0.5)

	// calmServer leaves a server alone, which waits for long after each fault.
	calmServer = fault{"", onServer, 2, 4, func(*stage, int, *rand.Rand) func() { return nil }}

	work = []fault{killWorker, stopWorker}
)

const aclUser = "app"

// allow makes the user that workers are, where there is one.
var allow = []string{
	"ACL", "SETUSER", aclUser, "reset", "on", ">pw", "~holdfast:*", "&holdfast:*",
	"+@all",
}

func command(name string, args ...string) fault {
	return fault{name, onServer, 0, 0.2, func(s *stage, i int, _ *rand.Rand) func() {
		s.servers[i].MustDo(args...)
		return nil
	}}
}

func rated(name string, rate float64) fault {
	return fault{name, onServer, 1, 4, func(s *stage, i int, r *rand.Rand) func() {
		s.clocks[i].run(s.t, rate*(2*r.Float64()-1))
		return func() { s.clocks[i].run(s.t, 0) }
	}}
}

// Of Sentinel.
var (
	killPrimary = fault{
		"Sentinel: the primary is killed", onSet, 3, 5,
		func(s *stage, _ int, _ *rand.Rand) func() {
			old, err := s.sentinel.Current()
			s.must(err)
			old.Kill()
			return func() {
				s.sentinel.AwaitFailover(s.t, old)
				old.Restart()
			}
		},
	}
	stopPrimary = fault{
		"Sentinel: the primary is stopped, replaced, and goes on", onSet, 3, 5,
		func(s *stage, _ int, _ *rand.Rand) func() {
			old, err := s.sentinel.Current()
			s.must(err)
			old.Stop()
			return func() {
				s.sentinel.AwaitFailover(s.t, old)
				old.Cont()
			}
		},
	}
	// calm lets Sentinel be: it replaces a primary every ten seconds at most.
	calm = fault{"", onSet, 4, 8, func(*stage, int, *rand.Rand) func() { return nil }}
)

// Of a Cluster.
var (
	moveSlot = fault{"a slot moves", onSet, 3, 4, func(s *stage, _ int, r *rand.Rand) func() {
		key := s.scenario.keys[r.IntN(len(s.scenario.keys))]
		name := "holdfast:{" + key + "}"
		from, err := s.cluster.Owner(name)
		s.must(err)
		primaries := s.cluster.Nodes[:3]
		to := primaries[r.IntN(len(primaries))]
		if to != from {
			s.cluster.Move(s.t, name, from, to)
		}
		return nil // and it is not moved on at once
	}}
	killOwner = fault{
		"Cluster: a primary is killed", onSet, 5, 7,
		func(s *stage, _ int, r *rand.Rand) func() {
			name := "holdfast:{" + s.scenario.keys[r.IntN(len(s.scenario.keys))] + "}"
			old, err := s.cluster.Owner(name)
			s.must(err)
			old.Kill()
			return func() {
				s.cluster.AwaitFailover(s.t, name, old)
				old.Restart()
			}
		},
	}
)

// Of etcd.
var (
	killMember = fault{
		"an etcd member is killed", onSet, 0.5, 2,
		func(s *stage, _ int, r *rand.Rand) func() {
			m := s.etcd.Members[r.IntN(len(s.etcd.Members))]
			m.Kill()
			return m.Restart
		},
	}
	killLeader = fault{
		"the etcd leader is killed", onSet, 1, 3,
		func(s *stage, _ int, _ *rand.Rand) func() {
			m, _ := s.etcd.Leader(s.t)
			m.Kill()
			return m.Restart
		},
	}
	stopLeader = fault{
		"the etcd leader is stopped", onSet, 0.2, 3,
		func(s *stage, _ int, _ *rand.Rand) func() {
			m, _ := s.etcd.Leader(s.t)
			m.Stop()
			return m.Cont
		},
	}
	noQuorum = fault{
		"etcd has no quorum", onSet, 0.5, 3,
		func(s *stage, _ int, r *rand.Rand) func() {
			two := slices.Clone(s.etcd.Members)
			r.Shuffle(len(two), func(i, j int) { two[i], two[j] = two[j], two[i] })
			two[0].Kill()
			two[1].Kill()
			return func() {
				two[0].Start()
				two[1].Restart()
			}
		},
	}
	compaction = fault{
		"etcd is compacted", onSet, 0, 0.2,
		func(s *stage, _ int, _ *rand.Rand) func() {
			for _, m := range s.etcd.Members {
				status, err := m.Status()
				if err == nil {
					err = m.Post("/v3/kv/compaction",
						map[string]string{"revision": status.Header.Revision}, nil)
				}
				if err == nil || strings.Contains(err.Error(), "compacted") {
					return nil
				}
			}
			return nil // there is no quorum just now
		},
	}
	rejoin = fault{
		"an etcd member comes back empty", onSet, 1, 2,
		func(s *stage, _ int, r *rand.Rand) func() {
			s.etcd.Leader(s.t) // which it needs
			s.etcd.Rejoin(s.t, s.etcd.Members[r.IntN(len(s.etcd.Members))])
			return nil
		},
	}
)

// An event is a fault that comes at some time.
type event struct {
	fault
	at, length time.Duration
	index      int
	seed       uint64
}

// lane is what is struck by one thing at a time.
func (e event) lane() string { return fmt.Sprint(e.on, e.index) }

func (e event) String() string {
	return fmt.Sprintf("%v for %v: %s (%s %d)", e.at.Round(time.Millisecond),
		e.length.Round(time.Millisecond), e.name, e.on, e.index)
}

// plan draws what befalls how many of each, from the seed alone. What is struck by one thing is not
// struck by another at the same time, and rests for a moment.
func plan(seed uint64, faults []fault, count map[string]int, ttl,
	length time.Duration,
) (events []event) {
	r := rand.New(rand.NewPCG(seed, 0))
	busy := map[string]time.Duration{}
	for at := ttl / 2; at < length; at += time.Duration(r.ExpFloat64() * float64(ttl) * 0.6) {
		f := faults[r.IntN(len(faults))]
		e := event{fault: f, at: at, index: r.IntN(count[f.on]), seed: r.Uint64()}
		e.length = time.Duration((f.least + r.Float64()*(f.most-f.least)) * float64(ttl))
		if busy[e.lane()] > at {
			continue
		}
		busy[e.lane()] = at + e.length + ttl/4
		events = append(events, e)
	}
	return events
}
