package scenario

import (
	"context"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
)

var uncontended = Scenario{
	Name: "S1", Title: "uncontended: n goroutines, a key each, Lock and Unlock",
	Limit: "raw-goredis",
	Note:  "pairs/s; the limit of go-redis is raw-goredis, that of rueidis raw-rueidis",
	Columns: []Column{
		{"rate", "pairs/s", Number},
		{"ratio", "× raw-goredis", Ratio},
		{"pairp50", "pair p50", Micros},
		{"pairp99", "pair p99", Micros},
		{"max", "Lock max", Micros},
		{"sent", "sent/pair", Ratio},
		{"executed", "executed/pair", Ratio},
		{"ccpu", "client CPU/pair", Micros},
		{"scpu", "server CPU/pair", Micros},
		{"errors", "errors", Number},
		{"faults", "faults", Number},
	},
	Cases:  func(bool) []int { return []int{1, 16, 128, 1000} },
	Length: lengths(300*time.Millisecond, 600*time.Millisecond),
	Run: func(ctx context.Context, env *Env, im impl.Impl, n int) (Metrics, error) {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = "bench-" + strconv.Itoa(i)
		}
		return runLoad(ctx, env, im, n, n, func(i int) string { return keys[i] }, func(i int) int { return i })
	},
}

var contended = Scenario{
	Name: "S2", Title: "contended: n goroutines of one process, one key, empty critical section",
	Limit: "PING",
	Note:  "waits are censored at the cell's length: whoever still waits at its end counts with the time so far",
	Columns: []Column{
		{"rate", "acq/s", Number},
		{"ratio", "× PING", Ratio},
		{"p50", "wait p50", Micros},
		{"p99", "wait p99", Micros},
		{"max", "wait max", Micros},
		{"jain", "Jain", Ratio},
		{"maxmin", "goroutines max/min", Ratio},
		{"sent", "sent/acq", Ratio},
		{"executed", "executed/acq", Ratio},
		{"ccpu", "client CPU/acq", Micros},
		{"scpu", "server CPU/acq", Micros},
		{"errors", "errors", Number},
		{"faults", "faults", Number},
	},
	Cases: func(quick bool) []int {
		if quick {
			return []int{8, 64}
		}
		return []int{8, 64, 512}
	},
	Length: lengths(500*time.Millisecond, 1200*time.Millisecond),
	Extras: []Extra{{"PING", "one connection, one after the other; no library", runPing}},
	Run: func(ctx context.Context, env *Env, im impl.Impl, n int) (Metrics, error) {
		return runLoad(ctx, env, im, n, 1, func(int) string { return "bench-one" }, func(int) int { return 0 })
	},
}

// lengths is how long a cell is measured.
func lengths(quick, full time.Duration) func(bool) time.Duration {
	return func(isQuick bool) time.Duration {
		if isQuick {
			return quick
		}
		return full
	}
}

// runLoad is a cell of a load in this process.
func runLoad(ctx context.Context, env *Env, im impl.Impl, n, keys int, key func(int) string, judgeOf func(int) int) (Metrics, error) {
	client, err := open(ctx, im, env.Server.Addr)
	if err != nil {
		return nil, err
	}
	defer closing(im, client)
	all, unmap, err := judges("", keys)
	if err != nil {
		return nil, err
	}
	defer unmap()
	l := startLoad(ctx, client, n, key, func(i int) *judge { return &all[judgeOf(i)] })
	time.Sleep(env.warm())
	before, err := env.Server.Counters()
	if err != nil {
		return nil, err
	}
	l.begin()
	time.Sleep(env.Length)
	used := l.usedSoFar()
	after, err := env.Server.Counters()
	r := l.end()
	if err != nil {
		return nil, err
	}
	m, ops := metrics(r)
	m.perOp(im, after.Since(before), used, ops)
	violations, disorder := faults(all)
	m["faults"] = violations + disorder
	return m, nil
}
