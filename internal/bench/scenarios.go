package main

import (
	"cmp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/worker"
)

// The servers that scenarios run on.
const (
	redis7 = "R7" // scripts only: the redis-server in PATH
	redis8 = "R8" // has SET IFEQ: what .ci/redis-versions unpacks
	etcd   = "etcd"
)

// A fault befalls a server while a cell is measured.
type fault int

const (
	none   fault = iota
	killed       // the last one, as it begins
	hung         // the last one is stopped (SIGSTOP), as it begins
	paused       // the only one, for 100 ms
)

// A scenario is a question about locks. Each cell of it is an implementation with n goroutines,
// waiters or processes, as the title says.
type scenario struct {
	name, title string
	servers     string
	nodes       int           // 1, or the servers of a quorum
	roundTrip   time.Duration // what a proxy adds
	fault       fault
	mode        string // of the workers; Wait and Once have cells of their own
	processes   int
	clientCPUs  int
	oneKey      bool
	gap         time.Duration
	ns, quick   []int
	length      time.Duration
	counts      bool // counts only, which no noise touches: one round is enough
	who         []string
}

const ms = time.Millisecond

// heldFor is how long S4 holds a lock while another waits, so that everything has fallen asleep.
const heldFor = 20 * ms

var (
	bothOurs   = []string{"holdfast+goredis", "holdfast+rueidis"}
	bothStrict = []string{"holdfast+goredis-strict", "holdfast+rueidis-strict"}
	bothRaw    = []string{"raw+goredis", "raw+rueidis"}
	bothFenced = []string{"floor-fenced+goredis", "floor-fenced+rueidis"}
	bothNative = []string{"floor-native+goredis", "floor-native+rueidis"}
	handOffs   = []string{"floor-hand-off+goredis", "floor-hand-off+rueidis"}
	peers      = []string{"bsm-redislock", "redsync+goredis", "redsync+rueidis", "rueidislock"}
	quorums    = []string{
		"raw-redlock", "holdfast+redlock+goredis", "holdfast+redlock+rueidis",
		"redsync-5+rueidis",
	}
	tens = []string{
		"holdfast+goredis" + impl.Ten, "holdfast+rueidis" + impl.Ten,
		"bsm-redislock" + impl.Ten,
	}
	fifties = []string{
		"holdfast+goredis" + impl.Fifty, "holdfast+rueidis" + impl.Fifty,
		"bsm-redislock" + impl.Fifty,
	}
	etcds = []string{"holdfast+etcd", "etcd-concurrency"}
)

// scenarios are all of them, with what they have in common filled in.
func scenarios() []scenario {
	free := slices.Concat(bothRaw, bothFenced, bothOurs, peers)
	contended := slices.Concat(handOffs, bothOurs, bothStrict, peers)
	all := []scenario{
		{
			name: "S1", title: "n goroutines of a process, a key each, Lock and Unlock",
			ns: []int{1, 16, 128, 1000}, quick: []int{1, 128}, who: append(free,
				"holdfast+goredis-traced"),
		},
		{
			name: "S1-2cpu", title: "the same, with clients on two CPUs", ns: []int{128},
			quick: []int{}, clientCPUs: 2, who: free,
		},
		{
			name: "S1-1ms", title: "the same, 1 ms away", ns: []int{1, 16, 64}, quick: []int{64},
			roundTrip: ms, who: free,
		},
		{
			name: "S1-R8", title: "the same, on a server that has SET IFEQ", servers: redis8,
			ns: []int{1, 16, 128, 1000}, quick: []int{128}, who: slices.Concat(bothRaw, bothNative,
				bothOurs),
		},
		{
			name: "S1-pause", title: "the same, while the server stands still for 100 ms",
			fault: paused,
			ns:    []int{1000}, quick: []int{}, length: 600 * ms, who: bothOurs,
		},
		{
			name: "S2", title: "n goroutines of a process, one key, nothing done while it is held",
			oneKey: true,
			ns:     []int{64}, length: 600 * ms, who: append(contended, "ping", "channel"),
		},
		{
			name: "S2-1ms", title: "the same, 1 ms away", oneKey: true, roundTrip: ms,
			ns: []int{64}, length: 700 * ms, who: append(contended, "ping"),
		},
		{
			name: "S3", title: "4 processes of n goroutines each, one key", oneKey: true,
			processes: 4,
			ns:        []int{4}, length: 600 * ms, who: append(contended, "signal"),
		},
		{
			name: "S3-1ms", title: "the same, 1 ms away", oneKey: true, processes: 4, roundTrip: ms,
			ns: []int{4}, quick: []int{}, length: 700 * ms, who: append(contended, "signal"),
		},
		{
			name: "S4", title: "n clients in turn: from the call of Unlock to the return of the " +
				"other's Lock, held 20 ms",
			mode: worker.Relay, gap: heldFor, ns: []int{2}, length: 600 * ms,
			who: slices.Concat(handOffs, bothOurs, peers, []string{"signal"}),
		},
		{
			name: "S4-1ms", title: "the same, 1 ms away", mode: worker.Relay, gap: heldFor,
			roundTrip: ms,
			ns:        []int{2}, quick: []int{}, length: 600 * ms, who: slices.Concat(handOffs,
				bothOurs, peers, []string{"signal"}),
		},
		{
			name: "S5", title: "five servers, n goroutines, a key each", nodes: 5, ns: []int{16},
			quick: []int{}, who: quorums,
		},
		{
			name: "S5-R8", title: "the same, on servers that have SET IFEQ", nodes: 5,
			servers: redis8,
			ns:      []int{16}, quick: []int{}, who: quorums,
		},
		{
			name: "S5-1ms", title: "five servers 1 ms away", nodes: 5, roundTrip: ms, ns: []int{16},
			who: quorums,
		},
		{
			name: "S5-killed-1ms", title: "the same, one of the five is killed as it begins",
			nodes: 5, roundTrip: ms,
			fault: killed, ns: []int{16}, quick: []int{}, who: quorums,
		},
		{
			name: "S5-hung-1ms", title: "the same, one of the five hangs as it begins", nodes: 5,
			roundTrip: ms,
			fault:     hung, ns: []int{16}, quick: []int{}, who: quorums,
		},
		{
			name: "S6", title: "5,000 waiters on n keys while nothing happens", mode: worker.Wait,
			counts: true,
			ns:     []int{1, 5000}, quick: []int{1}, length: 3 * time.Second, who: bothOurs,
		},
		{
			name: "S6-modes", title: "3,000 waiters of one process on n keys, in every mode",
			mode: worker.Wait, counts: true,
			ns: []int{1}, quick: []int{}, length: 3 * time.Second,
			who: []string{
				"holdfast+goredis-shared", "holdfast+goredis-permit",
				"holdfast+goredis-reentrant",
			},
		},
		{
			name: "S7", title: "n goroutines, ten keys at once", ns: []int{1}, quick: []int{},
			who: tens,
		},
		{name: "S7-1ms", title: "the same, 1 ms away", roundTrip: ms, ns: []int{1}, who: tens},
		{
			name: "S7-50", title: "n goroutines, fifty keys at once", ns: []int{1}, quick: []int{},
			who: fifties,
		},
		{
			name: "S7-50-1ms", title: "the same, 1 ms away", roundTrip: ms, ns: []int{1},
			quick: []int{}, who: fifties,
		},
		{
			name: "keys", title: "what n keys leave on the server that were locked and " +
				"unlocked once", mode: worker.Once, counts: true,
			ns: []int{50_000}, quick: []int{}, who: bothOurs,
		},
		{
			name: "E1", title: "etcd: n goroutines, a key each", servers: etcd, ns: []int{1, 16},
			quick: []int{}, length: 600 * ms, who: etcds,
		},
		{
			name: "E4", title: "etcd: n clients in turn, as S4", servers: etcd, mode: worker.Relay,
			gap: heldFor,
			ns:  []int{2}, length: 800 * ms, who: etcds,
		},
	}
	for i := range all {
		s := &all[i]
		s.servers = cmp.Or(s.servers, redis7)
		s.mode = cmp.Or(s.mode, worker.Load)
		s.length = cmp.Or(s.length, 400*ms)
		s.nodes, s.processes, s.clientCPUs = max(s.nodes, 1), max(s.processes, 1), max(s.clientCPUs,
			1)
		if s.quick == nil {
			s.quick = s.ns
		}
	}
	return all
}
