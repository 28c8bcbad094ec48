package report

import (
	"fmt"
	"io"
	"strings"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/scenario"
)

// A Verdict is a goal and what was measured.
type Verdict struct {
	Scenario string  `json:"scenario"`
	Who      string  `json:"who"`
	What     string  `json:"what"`
	Measured float64 `json:"measured"`
	Goal     float64 `json:"goal"`
	AtMost   bool    `json:"at_most"`
	Met      bool    `json:"met"`
	Against  string  `json:"against,omitempty"`
}

// A book finds rows in results.
type book map[string]*scenario.Result

// Goals compares every implementation of ours with what we want of it.
func Goals(results []*scenario.Result) (all []Verdict) {
	b := book{}
	for _, r := range results {
		b[r.Name] = r
	}
	for _, im := range impl.All() {
		if im.Role != impl.Ours {
			continue
		}
		c := &court{book: b, who: im.Name}
		c.uncontended()
		c.contended()
		c.processes()
		c.handOff()
		c.waiters()
		all = append(all, c.verdicts...)
	}
	for _, im := range impl.Quorums() {
		if im.Role == impl.Ours {
			c := &court{book: b, who: im.Name}
			c.quorum()
			all = append(all, c.verdicts...)
		}
	}
	return all
}

// A court judges one implementation.
type court struct {
	book
	who      string
	verdicts []Verdict
}

// judge adds a verdict, unless nothing was measured.
func (c *court) judge(s, what string, measured float64, ok bool, goal float64, atMost bool, against string) {
	if !ok {
		return
	}
	met := measured >= goal
	if atMost {
		met = measured <= goal
	}
	c.verdicts = append(c.verdicts, Verdict{s, c.who, what, measured, goal, atMost, met, against})
}

func (c *court) atLeast(s, what string, measured float64, ok bool, goal float64, against string) {
	c.judge(s, what, measured, ok, goal, false, against)
}

func (c *court) atMost(s, what string, measured float64, ok bool, goal float64) {
	c.judge(s, what, measured, ok, goal, true, "")
}

// median is a metric of a participant's row.
func (b book) median(s, who string, n int, metric string) (float64, bool) {
	r := b[s]
	if r == nil {
		return 0, false
	}
	row := r.Row(who, n)
	if row == nil || row.Spread(metric).N == 0 {
		return 0, false
	}
	return row.Spread(metric).Median, true
}

// worst is the largest of a metric's rounds, of this court's own: what must not happen may not happen in any.
func (c *court) worst(s string, n int, metric string) (float64, bool) {
	if _, ok := c.median(s, c.who, n, metric); !ok {
		return 0, false
	}
	return c.book[s].Row(c.who, n).Spread(metric).Max, true
}

// over is the quotient of two participants' medians.
func (b book) over(s string, n int, metric, a, other string) (float64, bool) {
	x, ok1 := b.median(s, a, n, metric)
	y, ok2 := b.median(s, other, n, metric)
	return min(x/max(y, 1e-9), 99_999), ok1 && ok2 // of nothing at all, as of a peer that hangs
}

// either is a goal of who lets the store see every acquisition, or of who hands the lease on within a process.
func (c *court) either(strict, cohort float64) float64 {
	if strings.HasSuffix(c.who, impl.Strict) {
		return strict
	}
	return cohort
}

// best is the best peer that keeps exclusion.
func (b book) best(s string, n int, metric string, less bool) string {
	name, value := "", 0.0
	if b[s] == nil {
		return ""
	}
	for _, row := range b[s].Rows {
		if row.Role != impl.Peer || row.Case != n || !row.Keeps() || row.Spread(metric).N == 0 {
			continue
		}
		if m := row.Spread(metric).Median; m > 0 && (name == "" || m > value != less) {
			name, value = row.Participant, m
		}
	}
	return name
}

func (c *court) uncontended() {
	for _, n := range []int{1, 16, 128, 1000} {
		if c.who != "holdfast+goredis" { // another client: rueidis has goals of its own
			limit := map[int]float64{1: 0.97, 16: 0.95, 128: 1.0, 1000: 0.95}[n]
			v, ok := c.over("S1", n, "rate", c.who, "raw-rueidis")
			c.atLeast("S1", fmt.Sprintf("n=%d, × raw-rueidis", n), v, ok, limit, "")
			if peer := c.best("S1", n, "rate", false); peer != "" {
				v, ok := c.over("S1", n, "rate", c.who, peer)
				c.atLeast("S1", fmt.Sprintf("n=%d, × best peer", n), v, ok, map[int]float64{1: 1, 16: 1.15, 128: 1.7, 1000: 1.7}[n], peer)
			}
			continue
		}
		v, ok := c.median("S1", c.who, n, "ratio") // made within each round, so better than a quotient of medians
		c.atLeast("S1", fmt.Sprintf("n=%d, × raw-goredis", n), v, ok, 0.9, "")
		v, ok = c.over("S1", n, "rate", c.who, "bsm-redislock")
		c.atLeast("S1", fmt.Sprintf("n=%d, × bsm", n), v, ok, 1.05, "bsm-redislock")
		if v, ok = c.over("S1", n, "rate", c.who, "redsync+goredis"); n >= 16 {
			c.atLeast("S1", fmt.Sprintf("n=%d, × redsync", n), v, ok, 1.7, "redsync+goredis")
		}
	}
}

func (c *court) contended() {
	for _, n := range []int{8, 64, 512} {
		name := func(what string) string { return fmt.Sprintf("n=%d, %s", n, what) }
		v, ok := c.median("S2", c.who, n, "ratio")
		c.atLeast("S2", name("× PING"), v, ok, c.either(0.8, 25), "")
		v, ok = c.median("S2", c.who, n, "jain")
		c.atLeast("S2", name("Jain"), v, ok, 0.999, "")
		v, ok = c.median("S2", c.who, n, "sent")
		c.atMost("S2", name("commands sent"), v, ok, c.either(1.05, 0.02))
		if strings.HasSuffix(c.who, impl.Strict) { // a cohort's turns are so short that this says nothing but what the scheduler did
			longest, ok1 := c.median("S2", c.who, n, "max")
			rate, ok2 := c.median("S2", c.who, n, "rate")
			c.atMost("S2", name("max wait × rate / n"), longest/1e6*rate/float64(n), ok1 && ok2, 2)
		}
		if peer := c.best("S2", n, "rate", false); peer != "" {
			v, ok = c.over("S2", n, "rate", c.who, peer)
			c.atLeast("S2", name("× best peer"), v, ok, c.either(1.7, 45), peer)
		}
	}
}

func (c *court) processes() {
	v, ok := c.median("S3", c.who, 4, "ratio")
	c.atLeast("S3", "× signal", v, ok, c.either(0.65, 25), "")
	v, ok = c.median("S3", c.who, 4, "pmaxmin")
	c.atMost("S3", "processes max/min", v, ok, 1.05)
	v, ok = c.median("S3", c.who, 4, "sent")
	c.atMost("S3", "commands sent", v, ok, c.either(2.05, 0.1))
	if peer := c.best("S3", 4, "rate", false); peer != "" {
		v, ok = c.over("S3", 4, "rate", c.who, peer)
		c.atLeast("S3", "× best peer", v, ok, c.either(1.4, 45), peer)
	}
}

func (c *court) handOff() {
	v, ok := c.median("S4", c.who, 2, "ratio")
	c.atMost("S4", "× signal", v, ok, 1.1)
	if peer := c.best("S4", 2, "p50", true); peer != "" {
		v, ok = c.over("S4", 2, "p50", peer, c.who)
		c.atLeast("S4", "faster than best peer", v, ok, 1.7, peer)
	}
	v, ok = c.over("S4", 2, "p50", "redsync+goredis", c.who)
	c.atLeast("S4", "faster than redsync", v, ok, 500, "redsync+goredis")
}

func (c *court) quorum() {
	const redsync = "redsync-5+rueidis"
	for _, n := range []int{1, 16} {
		for _, s := range []struct {
			name string
			peer float64
		}{{"S5", 1.4}, {"S5-killed", map[int]float64{1: 1.1, 16: 1.7}[n]}, {"S5-hung", 1000}} {
			v, ok := c.median(s.name, c.who, n, "ratio")
			c.atLeast(s.name, fmt.Sprintf("n=%d, × raw-redlock", n), v, ok, 0.9, "")
			v, ok = c.over(s.name, n, "rate", c.who, redsync)
			c.atLeast(s.name, fmt.Sprintf("n=%d, × redsync", n), v, ok, s.peer, redsync)
		}
		v, ok := c.worst("S5-hung", n, "max")
		c.atMost("S5-hung", fmt.Sprintf("n=%d, Lock max ms", n), v/1e3, ok, 20)
		v, ok = c.worst("S5-hung", n, "left")
		c.atMost("S5-hung", fmt.Sprintf("n=%d, keys left", n), v, ok, 0)
	}
}

func (c *court) waiters() {
	for n, kind := range []string{"a key each", "one key"} {
		for _, goal := range []struct {
			metric, what string
			most         float64
		}{
			{"idle", "waiters' commands/s", 1},
			{"heap", "heap B/waiter", 1200},
			{"goroutines", "goroutines/waiter", 1.01},
			{"server", "Redis B/waiter", 300},
		} {
			v, ok := c.median("S6", c.who, n, goal.metric)
			c.atMost("S6", kind+", "+goal.what, v, ok, goal.most)
		}
	}
}

// Verdicts writes the goals as a table.
func Verdicts(w io.Writer, all []Verdict) {
	fmt.Fprint(w, "\n## Goals\n\n")
	lines := [][]string{{"scenario", "who", "what", "measured", "goal", "met", "against"}}
	met := 0
	for _, v := range all {
		sign, yes := "≥", "no"
		if v.AtMost {
			sign = "≤"
		}
		if v.Met {
			yes = "yes"
			met++
		}
		lines = append(lines, []string{
			v.Scenario, v.Who, v.What, format(v.Measured, scenario.Ratio),
			sign + " " + format(v.Goal, scenario.Ratio), yes, v.Against,
		})
	}
	write(w, lines)
	fmt.Fprintf(w, "\n%d of %d goals met.\n", met, len(all))
}
