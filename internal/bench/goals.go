package main

import (
	"fmt"
	"strings"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// The verdicts.
const (
	met       = "met"
	notMet    = "not met"
	undecided = "undecided" // the interval contains the goal, or there are too few valid rounds
)

// The client libraries as they are written.
var clientNames = map[string]string{
	impl.Goredis: "go-redis", impl.Rueidis: "rueidis",
	impl.Etcd: "etcd",
}

// A line is one of the page: a piece of work with its goals. In names, % stands for the client
// library, which a line is about in turn.
type line struct {
	work, goal string

	// What the line shows: a metric of ours, of the best peer and of the floor.
	scenario string
	n        int
	metric   string
	ours     string
	floor    string
	clients  []string // default go-redis and rueidis
	checks   []check
}

// A check is a goal that is decided by itself.
type check struct {
	scenario string
	ns       []int
	ours     string // default the line's
	metric   string
	against  string // a participant; best: the best peer; "": the figure itself counts
	minus    bool   // the difference counts, not the quotient
	most     bool   // at most
	worst    bool   // no round may miss it
	goal     float64
}

// best stands for the best peer with the same client library; of a contended key, the best fair
// one.
const best = "best peer"

const (
	oursPlain  = "holdfast+%"
	oursStrict = "holdfast+%-strict"
	oursQuorum = "holdfast+redlock+%"
	fenced     = "floor-fenced+%"
	raw        = "raw+%"
)

var sizes = []int{1, 16, 128, 1000}

// lines are the goals of the design, in its order.
var lines = []line{
	{
		work:     "S1, R7: CPU a pair, client and server",
		goal:     "≤ 1.15 × floor-fenced at n = 1, 16, 128, 1000",
		scenario: "S1", n: 128, metric: "cpu", ours: oursPlain, floor: fenced,
		checks: []check{{ns: sizes, metric: "cpu", against: fenced, most: true, goal: 1.15}},
	},
	{
		work: "S1, R7: rate", goal: "≥ 0.9 × floor-fenced, ≥ best peer; ≥ raw at n ≥ 128",
		scenario: "S1", n: 128, metric: "rate", ours: oursPlain, floor: fenced,
		checks: []check{
			{ns: sizes, metric: "rate", against: fenced, goal: 0.9},
			{ns: sizes, metric: "rate", against: best, goal: 1},
			{ns: []int{128, 1000}, metric: "rate", against: raw, goal: 1},
		},
	},
	{
		work: "S1, R7, clients on two CPUs: rate", goal: "≥ 0.9 × floor-fenced, ≥ best peer",
		scenario: "S1-2cpu", n: 128, metric: "rate", ours: oursPlain, floor: fenced,
		checks: []check{
			{ns: []int{128}, metric: "rate", against: fenced, goal: 0.9},
			{ns: []int{128}, metric: "rate", against: best, goal: 1},
		},
	},
	{
		work: "S1 at 1 ms: rate", goal: "≥ 0.95 × raw and ≥ best peer at n = 64",
		scenario: "S1-1ms", n: 64, metric: "rate", ours: oursPlain, floor: raw,
		checks: []check{
			{ns: []int{64}, metric: "rate", against: raw, goal: 0.95},
			{ns: []int{64}, metric: "rate", against: best, goal: 1},
		},
	},
	{
		work: "S1, R8: rate, and server CPU",
		goal: "≥ 1.05 × raw at n = 1, ≥ 1.0 at 16, 128, 1000; CPU ≤ 1.0 × raw, ≤ " +
			"0.8 at n ≥ 128",
		scenario: "S1-R8", n: 128, metric: "rate", ours: oursPlain, floor: "floor-native+%",
		checks: []check{
			{ns: []int{1}, metric: "rate", against: raw, goal: 1.05},
			{ns: []int{16, 128, 1000}, metric: "rate", against: raw, goal: 1},
			{ns: []int{1, 16}, metric: "server", against: raw, most: true, goal: 1},
			{ns: []int{128, 1000}, metric: "server", against: raw, most: true, goal: 0.8},
		},
	},
	{
		work:     "S2, one process, leases passed on",
		goal:     "≥ 0.2 × a Go channel; ≤ 0.005 commands; shares within 1 %; the same of S3",
		scenario: "S2", n: 64, metric: "rate", ours: oursPlain, floor: "channel",
		checks: []check{
			{ns: []int{64}, metric: "rate", against: "channel", goal: 0.2},
			{ns: []int{64}, metric: "sent", most: true, goal: 0.005},
			{ns: []int{64}, metric: "share", most: true, goal: 1.01},
			{scenario: "S3", ns: []int{4}, metric: "sent", most: true, goal: 0.005},
			{scenario: "S3", ns: []int{4}, metric: "processes", most: true, goal: 1.01},
		},
	},
	{
		work:     "S2 strict: the store sees each lock",
		goal:     "≥ 0.85 × floor-hand-off, ≥ 1.3 × best fair peer; at 1 ms ≥ 0.9 × PING",
		scenario: "S2", n: 64, metric: "rate", ours: oursStrict, floor: "floor-hand-off+%",
		checks: []check{
			{ns: []int{64}, metric: "rate", against: "floor-hand-off+%", goal: 0.85},
			{ns: []int{64}, metric: "rate", against: best, goal: 1.3},
			{scenario: "S2-1ms", ns: []int{64}, metric: "rate", against: "ping", goal: 0.9},
		},
	},
	{
		work:     "S3 strict, 4 processes",
		goal:     "≥ 0.6 × a signal, ≥ 1.4 × best fair peer; at 1 ms ≥ 0.9 × a signal",
		scenario: "S3", n: 4, metric: "rate", ours: oursStrict, floor: "signal",
		checks: []check{
			{ns: []int{4}, metric: "rate", against: "signal", goal: 0.6},
			{ns: []int{4}, metric: "rate", against: best, goal: 1.4},
			{scenario: "S3-1ms", ns: []int{4}, metric: "rate", against: "signal", goal: 0.9},
		},
	},
	{
		work:     "S4, hand-off after 20 ms of silence",
		goal:     "≤ 1.3 signals, at 1 ms ≤ 1.1; 2.0 scripts",
		scenario: "S4", n: 2, metric: "p50", ours: oursPlain, floor: "signal",
		checks: []check{
			{ns: []int{2}, metric: "p50", against: "signal", most: true, goal: 1.3},
			{
				scenario: "S4-1ms", ns: []int{2}, metric: "p50", against: "signal", most: true,
				goal: 1.1,
			},
			// one that is counted at an edge of the cell
			{ns: []int{2}, metric: "sent", most: true, goal: 2.05},
		},
	},
	{
		work: "E4, the same on etcd", goal: "≤ 2.5 ms",
		scenario: "E4", n: 2, metric: "p50", ours: oursPlain, clients: []string{impl.Etcd},
		checks: []check{{ns: []int{2}, metric: "p50", most: true, goal: 2500}},
	},
	{
		work:     "S5, Redlock at 1 ms: all well, one killed, one hung",
		goal:     "≥ 0.95 × raw-redlock; ≥ 1.0, 1.3, 500 × redsync; no Lock over 20 ms",
		scenario: "S5-1ms", n: 16, metric: "rate", ours: oursQuorum, floor: "raw-redlock",
		checks: []check{
			{ns: []int{16}, metric: "rate", against: "raw-redlock", goal: 0.95},
			{
				scenario: "S5-killed-1ms", ns: []int{16}, metric: "rate", against: "raw-redlock",
				goal: 0.95,
			},
			{
				scenario: "S5-hung-1ms", ns: []int{16}, metric: "rate", against: "raw-redlock",
				goal: 0.95,
			},
			{ns: []int{16}, metric: "rate", against: "redsync-5+rueidis", goal: 1},
			{
				scenario: "S5-killed-1ms", ns: []int{16}, metric: "rate",
				against: "redsync-5+rueidis",
				goal:    1.3,
			},
			{
				scenario: "S5-hung-1ms", ns: []int{16}, metric: "rate",
				against: "redsync-5+rueidis",
				goal:    500,
			},
			{
				scenario: "S5-hung-1ms", ns: []int{16}, metric: "max", most: true, worst: true,
				goal: 20_000,
			},
		},
	},
	{
		work: "S5, R8, loopback", goal: "≥ 1.0 × raw-redlock",
		scenario: "S5-R8", n: 16, metric: "rate", ours: oursQuorum, floor: "raw-redlock",
		checks: []check{{ns: []int{16}, metric: "rate", against: "raw-redlock", goal: 1}},
	},
	{
		work:     "S6, 5,000 waiters: commands a second",
		goal:     "≤ 500, heap and stack ≤ 8 KiB each; on one key ≤ 2, ≤ 2.5 KiB",
		scenario: "S6", n: 5000, metric: "idle", ours: oursPlain,
		checks: []check{
			{ns: []int{5000}, metric: "idle", most: true, goal: 500},
			{ns: []int{5000}, metric: "memory", most: true, goal: 8 << 10},
			{ns: []int{1}, metric: "idle", most: true, goal: 2},
			{ns: []int{1}, metric: "memory", most: true, goal: 2560},
		},
	},
	{
		work: "S6, 3,000 of one key, shared, permits, re-entrant", goal: "≤ 2 commands a second",
		scenario: "S6-modes", n: 1, metric: "idle", ours: "holdfast+%-shared",
		clients: []string{impl.Goredis},
		checks: []check{
			{ns: []int{1}, metric: "idle", most: true, goal: 2},
			{ns: []int{1}, ours: "holdfast+%-permit", metric: "idle", most: true, goal: 2},
			{ns: []int{1}, ours: "holdfast+%-reentrant", metric: "idle", most: true, goal: 2},
		},
	},
	{
		work:     "S7 at 1 ms, ten keys at once, and fifty",
		goal:     "≥ 0.91 × redislock's ObtainMulti, at fifty ≥ 0.77",
		scenario: "S7-1ms", n: 1, metric: "rate", ours: oursPlain + impl.Ten,
		checks: []check{
			{ns: []int{1}, metric: "rate", against: "bsm-redislock" + impl.Ten, goal: 0.91},
			{
				scenario: "S7-50-1ms", ns: []int{1}, ours: oursPlain + impl.Fifty, metric: "rate",
				against: "bsm-redislock" + impl.Fifty, goal: 0.77,
			},
		},
	},
	{
		work: "What a one-off key leaves", goal: "≤ 110 B for 15 s",
		scenario: "keys", n: 50_000, metric: "bytes", ours: oursPlain,
		checks: []check{
			{ns: []int{50_000}, metric: "bytes", most: true, goal: 110},
			{ns: []int{50_000}, metric: "seconds", most: true, goal: 15},
		},
	},
	{
		work: "Allocations of a free pair", goal: "≤ 8 beyond floor-fenced",
		scenario: "S1", n: 1, metric: "allocs", ours: oursPlain, floor: fenced,
		checks: []check{{
			ns: []int{1}, metric: "allocs", against: fenced, minus: true, most: true,
			goal: 8,
		}},
	},
	{
		work: "Tracing, every lock sampled: client CPU a pair", goal: "≤ 12 µs more",
		scenario: "S1", n: 1, metric: "client", ours: "holdfast+%-traced", floor: oursPlain,
		clients: []string{impl.Goredis},
		checks: []check{{
			ns: []int{1}, metric: "client", against: oursPlain, minus: true,
			most: true, goal: 12,
		}},
	},
	{
		work:     "A pause of Redis of 100 ms, n = 1000: the longest Lock",
		goal:     "back within 300 ms of it",
		scenario: "S1-pause", n: 1000, metric: "max", ours: oursPlain,
		checks: []check{{ns: []int{1000}, metric: "max", most: true, worst: true, goal: 400_000}},
	},
}

// A Verdict is a goal, and what was measured.
type Verdict struct {
	Line     string       `json:"work"`
	Scenario string       `json:"scenario"`
	N        int          `json:"n"`
	Who      string       `json:"who"`
	Metric   string       `json:"metric"`
	Against  string       `json:"against,omitempty"`
	Measured stats.Spread `json:"measured"`
	AtMost   bool         `json:"at_most"`
	Goal     float64      `json:"goal"`
	Verdict  string       `json:"verdict"`
}

// A book finds results.
type book []*Result

func (b book) find(scenario string, n int) *Result {
	for _, r := range b {
		if r.Scenario == scenario && r.N == n {
			return r
		}
	}
	return nil
}

// judge decides every goal about which something was measured.
func (b book) judge() (all []Verdict) {
	for _, l := range lines {
		for _, c := range l.checks {
			for _, client := range l.each() {
				for _, n := range c.ns {
					if v, ok := b.check(l, c, client, n); ok {
						all = append(all, v)
					}
				}
			}
		}
	}
	return all
}

func (l line) each() []string {
	if l.clients == nil {
		return []string{impl.Goredis, impl.Rueidis}
	}
	return l.clients
}

func with(client, name string) string { return strings.ReplaceAll(name, "%", client) }

func (b book) check(l line, c check, client string, n int) (Verdict, bool) {
	if c.scenario == "" {
		c.scenario = l.scenario
	}
	if c.ours == "" {
		c.ours = l.ours
	}
	r := b.find(c.scenario, n)
	v := Verdict{
		Line: l.work, Scenario: c.scenario, N: n, Who: with(client, c.ours), Metric: c.metric,
		Against: with(client, c.against), AtMost: c.most, Goal: c.goal,
	}
	if r == nil || r.spread(v.Who, c.metric).N == 0 {
		return v, false
	}
	if c.against == best {
		fair, unfair := r.bestPeers(client, c.metric)
		if v.Against = fair; fair == "" {
			if unfair == "" {
				return v, false // no peer was measured
			}
			if v.Against, v.Verdict = "no peer is fair", met; r.valid() < valid {
				v.Verdict = undecided
			}
			return v, true
		}
	}
	values := r.values(func(x Round) (float64, bool) {
		own, ok := x.Cells[v.Who][c.metric]
		if c.against == "" {
			return own, ok
		}
		other, ok2 := x.Cells[v.Against][c.metric]
		if c.minus {
			return own - other, ok && ok2
		}
		// Of nothing at all, as of a peer that hangs.
		return min(own/max(other, 1e-9), 99_999), ok && ok2
	})
	if len(values) == 0 {
		return v, false
	}
	v.Measured = stats.SpreadOf(values)
	v.Verdict = c.decide(v.Measured, values, r)
	return v, true
}

func (c check) decide(s stats.Spread, values []float64, r *Result) string {
	if c.worst { // it happened, or it did not
		for _, x := range values {
			if x > c.goal {
				return notMet
			}
		}
	}
	switch {
	case (r.valid() < valid || len(values) < valid) && !r.Counts:
		return undecided
	case c.worst:
		return met
	case c.most && s.High <= c.goal || !c.most && s.Low >= c.goal:
		return met
	case c.most && s.Low > c.goal || !c.most && s.High < c.goal:
		return notMet
	}
	return undecided
}

// fairness is the least Jain's index of a lock that counts as fair.
const fairness = 0.99

// bestPeers are the best peers with a client library that keep exclusion: of those that are fair,
// which all are where each goroutine has a key of its own, and of the others.
func (r *Result) bestPeers(client, metric string) (fair, unfair string) {
	less := metric != "rate"
	better := func(a, b string) bool {
		return b == "" || (r.spread(a, metric).Median < r.spread(b, metric).Median) == less
	}
	contended := strings.HasPrefix(r.Scenario, "S2") || strings.HasPrefix(r.Scenario, "S3")
	for _, name := range r.names() {
		im, _ := impl.Named(name)
		if im.Role != impl.Peer || client != "" && im.Client != client ||
			r.spread(name, "faults").High > 0 {
			continue
		}
		switch isFair := !contended || r.spread(name, "jain").Median >= fairness; {
		case isFair && better(name, fair):
			fair = name
		case !isFair && better(name, unfair):
			unfair = name
		}
	}
	return fair, unfair
}

// text says what a verdict is about.
func (v Verdict) text() string {
	sign := "≥"
	if v.AtMost {
		sign = "≤"
	}
	against := ""
	if v.Against != "" {
		against = " of " + v.Against
	}
	return fmt.Sprintf("%s n=%d, %s: %s %s%s, goal %s %s", v.Scenario, v.N, v.Who, v.Metric,
		number(v.Measured.Median), against, sign, number(v.Goal))
}
