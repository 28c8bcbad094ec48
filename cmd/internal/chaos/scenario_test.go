//go:build linux

package chaos

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// What is promised under the faults of a scenario; docs/guarantees.md has it by store and fault.
const (
	belief = 1 << iota // beliefs do not overlap
	tokens             // tokens rise
	data               // what is stored, and fenced in Redis, is there
	all    = belief | tokens | data
)

// A scenario is a store, faults, and what is promised. That who checks tokens loses no update, that
// everybody gets every key when the faults are over, and that nothing is left, is promised always.
type scenario struct {
	name     string
	store    string // for people
	keys     []string
	setUp    func(s *stage)
	faults   [][]fault
	programs []string // that its servers are
	promised int
	long     bool           // not in the short form
	length   time.Duration  // of the faults in the short form; 0 is ten seconds
	ttl      time.Duration  // 0 is a second
	lengthy  [processes]int // one hold of so many of each worker is long; 0 is 70
}

// keys are exclusive ones that all want (x), those that mostly one goroutine wants (n), which are
// locked by native commands where there are any, read and write locks (s), permits (p) and values
// (v). A quorum has exclusive ones only.
var (
	every     = []string{"x0", "x1", "n00", "n10", "n20", "s0", "p0", "v0"}
	mostlyOwn = []string{
		"x0", "n00", "n01", "n02", "n03", "n10", "n11", "n12", "n13", "n20", "n21",
		"n22", "n23", "v0",
	}
	exclusive = []string{"x0", "x1", "n00", "n10", "n20"}
)

// The programs: of Debian, and those of .ci/redis-versions.
const (
	redis7  = "redis 7"
	redis8  = "redis 8"
	valkey9 = "valkey 9"
)

var scenarios = []scenario{
	{
		name: "redis-net", store: "Redis 7", keys: every, setUp: one(""),
		programs: []string{redis7}, promised: all,
		faults: [][]fault{work, network, {killClients, killPubSub, flushScript, pauseAll}},
	},
	{
		name: "redis-native", store: "Redis 8, native commands and scripts", keys: mostlyOwn,
		setUp: one(""), programs: []string{redis8},
		promised: all, faults: [][]fault{work, network, {killClients, flushScript, stopServer}},
	},
	{
		name: "redis-kept", store: "Redis 7, appendfsync always", keys: every,
		setUp: one("", kept...), programs: []string{redis7}, promised: all,
		faults: [][]fault{work, {killServer, stopServer, killClients}},
	},
	{
		name: "redis-upgrade", store: "Redis 7, Redis 8 and Valkey 9, one after the other, " +
			"appendfsync always", keys: every,
		// which the older ones can read
		setUp:    one("", append(kept, "--aof-use-rdb-preamble", "no")...),
		programs: []string{redis7, redis8, valkey9}, promised: all, faults: [][]fault{
			work,
			{upgrade, upgrade, killClients},
		},
	},
	{
		name: "redis-guard", store: "Redis 7, `max_ttl`", keys: every, setUp: one("&max_ttl=1s"),
		programs: []string{redis7},
		promised: belief | tokens, faults: [][]fault{
			work,
			{killServer, oldData, flush, calmServer, calmServer},
		}, length: 15 * time.Second,
	},
	{
		name: "redis-forgets", store: "Redis 7", keys: every, setUp: one(""),
		programs: []string{redis7},
		promised: tokens, faults: [][]fault{work, {killServer, oldData, flush}},
	},
	{
		name: "redis-limits", store: "Redis 7", keys: every, setUp: oneWithUser,
		programs: []string{redis7},
		promised: all, faults: [][]fault{work, {memoryFull, maxClients, denied, denied}},
	},
	{
		name: "valkey-clock", store: "Valkey 9, native commands and scripts", keys: mostlyOwn,
		setUp: one(""), programs: []string{valkey9}, promised: all,
		faults: [][]fault{work, {stepBack, rateWithin, killClients}},
	},
	{
		name: "redis-clock-wrong", store: "Redis 7", keys: every, setUp: one(""),
		programs: []string{redis7}, long: true,
		promised: tokens, faults: [][]fault{work, {stepForward, rateBeyond}},
	},
	{
		name: "sentinel-guard", store: "Sentinel of Redis 7, `max_ttl` and `min-replicas-to-write`",
		keys: every, setUp: sentinel, programs: []string{redis7},
		promised: belief | tokens, faults: [][]fault{work, {killPrimary, stopPrimary, calm}},
		length: 20 * time.Second,
	},
	{
		name: "cluster-slots", store: "Cluster of Redis 8", keys: every, setUp: cluster(0, 0),
		programs: []string{redis8},
		promised: all, faults: [][]fault{work, {moveSlot, moveSlot}, {killClients, flushScript}},
	},
	{
		name: "cluster-clocks", store: "Cluster of Valkey 9, clocks 20 s apart", keys: every,
		setUp: cluster(0, 20*time.Second), programs: []string{valkey9},
		promised: all, faults: [][]fault{work, {killClients, pauseAll, stepBack}}, long: true,
	},
	{
		name: "cluster-failover", store: "Cluster of Redis 7 with replicas", keys: every,
		setUp: cluster(1, 0), programs: []string{redis7},
		promised: tokens, faults: [][]fault{work, {killOwner, calm}}, long: true,
		length: 20 * time.Second,
	},
	{
		name: "etcd", store: "etcd, three members", keys: every, setUp: etcd(3), promised: all,
		length: 15 * time.Second, ttl: 2 * time.Second,
		faults: [][]fault{
			work,
			{hold, halfOpen, delayed, refused},
			{killMember, killLeader, stopLeader, noQuorum, compaction, rejoin},
		},
	},
	{
		name: "quorum-guard", store: "quorum of five Redis 7, `max_ttl`", keys: exclusive,
		setUp: quorum(5, "?max_ttl=1s"), programs: []string{redis7},
		promised: belief | tokens, faults: [][]fault{
			work,
			{killServer, oldData, stopServer, flush},
			network,
		},
	},
	{
		name: "quorum-mixed", store: "quorum of Redis 8, Valkey 9 and etcd", keys: exclusive,
		setUp: mixed, programs: []string{redis8, valkey9},
		promised: belief | tokens, faults: [][]fault{
			work,
			{stopServer, stopServer, killClients},
			network,
		}, long: true, ttl: 2 * time.Second,
	},
}

// kept has a server lose nothing that it has answered.
var kept = []string{"--appendonly", "yes", "--appendfsync", "always"}

// capacity is what the weights of a key's holds add up to at most.
func capacity(key string) int {
	switch key[0] {
	case 's':
		return readers
	case 'p':
		return permits
	}
	return 1
}

// urlsOf makes the addresses for three workers, of go-redis, rueidis, and go-redis.
func urlsOf(rest ...string) []string {
	return []string{"redis" + rest[0], "rueidis" + rest[1%len(rest)], "redis" + rest[2%len(rest)]}
}

const timeout = "?request_timeout=2s"

// one is a server of the first program, with a proxy for each worker. query goes to the URL, args
// to the server.
func one(query string, args ...string) func(s *stage) {
	return func(s *stage) {
		server := s.server(s.scenario.programs[0], args...)
		var rest []string
		for range processes {
			rest = append(rest, "://"+s.proxy(server.Addr())+timeout+query)
		}
		s.urls = urlsOf(rest...)
	}
}

func oneWithUser(s *stage) {
	server := s.server(s.scenario.programs[0])
	server.MustDo(allow...)
	s.urls = urlsOf("://" + aclUser + ":pw@" + server.Addr() + timeout)
}

func sentinel(s *stage) {
	s.sentinel = testserver.Sentinel(s.t, testserver.WithProgram(s.program(s.scenario.programs[0])),
		testserver.WithArgs("--min-replicas-to-write", "1", "--min-replicas-max-lag", "3"))
	// Here one replaced too early is a fault like any other.
	for _, node := range s.sentinel.Sentinels {
		node.MustDo("SENTINEL", "SET", s.sentinel.Name, "down-after-milliseconds", "500")
	}
	_, rest, _ := strings.Cut(s.sentinel.URL(), "redis")
	s.urls = urlsOf(rest + timeout + "&max_ttl=1s&replica_lag=3s")
}

// cluster has so many replicas of each primary, and clocks that are so far apart.
func cluster(replicas int, apart time.Duration) func(s *stage) {
	return func(s *stage) {
		clock := testserver.WithEach(func() testserver.Option {
			c, option := newClock(s.t)
			c.step(s.t, time.Duration(len(s.clocks))*apart)
			s.clocks = append(s.clocks, c)
			return option
		})
		program := testserver.WithProgram(s.program(s.scenario.programs[0]))
		s.cluster = testserver.Cluster(s.t, testserver.WithReplicas(replicas), program, clock)
		_, rest, _ := strings.Cut(s.cluster.URL(), "redis")
		s.urls = urlsOf(rest + timeout)
		s.servers = s.cluster.Nodes[:3]
	}
}

func etcd(members int) func(s *stage) {
	return func(s *stage) {
		s.etcd = testserver.EtcdCluster(s.t, members)
		var hosts []string
		for _, addr := range s.etcd.Addrs() {
			hosts = append(hosts, s.proxy(addr))
		}
		s.urls = slices.Repeat([]string{"etcd://" + strings.Join(hosts, ",")}, processes)
	}
}

// quorum has one proxy for each node: all clients must name the same nodes.
func quorum(n int, query string) func(s *stage) {
	return func(s *stage) {
		var addrs []string
		for range n {
			addrs = append(addrs, s.proxy(s.server(s.scenario.programs[0]).Addr()))
		}
		for i := range processes {
			scheme := []string{"redis", "rueidis", "redis"}[i]
			var nodes []string
			for _, addr := range addrs {
				nodes = append(nodes, "node="+url.QueryEscape(scheme+"://"+addr+query))
			}
			s.urls = append(s.urls, "redlock://?"+strings.Join(nodes, "&"))
		}
	}
}

func mixed(s *stage) {
	a, b := s.proxy(s.server(redis8).Addr()), s.proxy(s.server(valkey9).Addr())
	c := s.proxy(testserver.Etcd(s.t).Addr())
	for i := range processes {
		scheme := []string{"redis", "rueidis", "redis"}[i]
		q := "redlock://?"
		for _, node := range []string{scheme + "://" + a, scheme + "://" + b, "etcd://" + c} {
			q += "node=" + url.QueryEscape(node) + "&"
		}
		s.urls = append(s.urls, strings.TrimSuffix(q, "&"))
	}
}

// kinds says in a few words what the faults are.
func (sc scenario) kinds() string {
	var names []string
	for _, group := range sc.faults {
		for _, f := range group {
			if f.on == onWorker {
				continue
			}
			if f.on == onProxy {
				f.name = "the net is slow, silent or cut"
			}
			if f.name != "" && !slices.Contains(names, f.name) {
				names = append(names, f.name)
			}
		}
	}
	return strings.Join(names, ", ")
}

// promises says what is promised.
func (sc scenario) promises() string {
	names := []string{}
	for i, name := range []string{"exclusion", "tokens rise", "data"} {
		if sc.promised&(1<<i) != 0 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ", ")
}

// unpromised says whether a scenario does not promise what a violation is of.
func (sc scenario) unpromised(v history.Violation) bool {
	ofTokens := v.A.Token != 0 && (v.A.End <= v.B.Start || v.A.Token == v.B.Token)
	if ofTokens {
		return sc.promised&tokens == 0
	}
	return sc.promised&belief == 0
}

func (s *stage) program(name string) string {
	if name == redis7 {
		return "redis-server"
	}
	path, err := serverPath(name)
	s.must(err)
	return path
}

func (s *stage) server(program string, args ...string) *testserver.Server {
	c, option := newClock(s.t)
	server := testserver.Redis(s.t, option, testserver.WithProgram(s.program(program)),
		testserver.WithArgs(args...))
	s.servers, s.clocks = append(s.servers, server), append(s.clocks, c)
	do := server.Connect()
	s.control = append(s.control, func(args ...string) {
		if _, err := do(args...); err != nil {
			s.t.Fatalf("%s: %v", strings.Join(args, " "), err)
		}
	})
	return server
}

// proxy puts a proxy in front of an address, and returns its own.
func (s *stage) proxy(addr string) string {
	p := testserver.NewProxy(s.t, addr)
	s.proxies = append(s.proxies, p)
	return p.Addr()
}

func (sc scenario) String() string { return fmt.Sprintf("%s (%s)", sc.name, sc.store) }
