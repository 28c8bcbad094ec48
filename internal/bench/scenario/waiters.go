package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/redisd"
)

// S6's waiters, and how long they are given until all of them wait.
const (
	nWaiters    = 5000
	settling    = 2 * time.Second
	allKeysCase = 0 // the case in which each waiter has a key of its own
)

var waiters = Scenario{
	Name: "S6", Title: "waiters: what 5,000 waiters cost while nothing happens (case 1: one key; case 0: a key each)",
	Note: "holder and waiters are a process each; the holder's commands are measured before the waiters come, and taken off theirs",
	Columns: []Column{
		{"heap", "heap/waiter", Bytes},
		{"stack", "stack/waiter", Bytes},
		{"goroutines", "goroutines/waiter", Ratio},
		{"idle", "waiters' sent/s", Number},
		{"idleexec", "waiters' executed/s", Number},
		{"holder", "holder's sent/s", Number},
		{"conns", "connections", Number},
		{"server", "server memory/waiter", Bytes},
		{"scpupct", "server CPU %", Ratio},
		{"waiting", "waiting", Number},
	},
	Cases: func(quick bool) []int {
		if quick {
			return []int{1}
		}
		return []int{1, allKeysCase}
	},
	Length: lengths(1500*time.Millisecond, 4*time.Second),
	Rounds: 1,
	Run:    runWaiters,
}

func runWaiters(_ context.Context, env *Env, im impl.Impl, n int) (Metrics, error) {
	keys, total, settle := n, nWaiters, settling
	if n == allKeysCase {
		keys = nWaiters
	}
	if env.Length < time.Second { // the smoke test
		total, keys, settle = 20, min(keys, 20), env.Length
	}
	holder, err := crew(env, order{Mode: "hold", Impl: im.Name, Addr: env.Server.Addr, N: keys})
	defer holder.stop()
	if err != nil {
		return nil, err
	}
	alone, before, err := watch(env)
	if err != nil {
		return nil, err
	}
	crowd, err := crew(env, order{Mode: "wait", Impl: im.Name, Addr: env.Server.Addr, N: total, Keys: keys})
	defer crowd.stop()
	if err != nil {
		return nil, err
	}
	time.Sleep(settle)
	busy, after, err := watch(env)
	if err != nil {
		return nil, err
	}
	var u usage
	if err := errors.Join(crowd.next(), crowd.answer(&u)); err != nil {
		return nil, err
	}
	per := env.Length.Seconds()
	own := alone.Total(im.Sent...).Calls
	return Metrics{
		"heap": u.Heap, "stack": u.Stack, "goroutines": u.Goroutines, "waiting": float64(u.Waiting),
		"holder": own / per, "idle": max(busy.Total(im.Sent...).Calls-own, 0) / per,
		"idleexec": max(busy.Total().Calls-alone.Total().Calls, 0) / per,
		"conns":    float64(after.Clients - before.Clients),
		"server":   max(after.Memory-before.Memory, 0) / float64(total), "scpupct": 100 * busy.CPU.Seconds() / per,
	}, nil
}

// crew starts a worker and waits until it is ready. The worker is to be stopped also if that fails.
func crew(env *Env, o order) (*worker, error) {
	w, err := startWorker(env, o)
	if err == nil {
		err = w.ready(20 * time.Second)
	}
	return w, err
}

// watch counts for the length of a cell, and returns what was counted and the counters at its end.
func watch(env *Env) (counted, end redisd.Counters, err error) {
	before, err := env.Server.Counters()
	if err != nil {
		return counted, end, err
	}
	time.Sleep(env.Length)
	end, err = env.Server.Counters()
	return end.Since(before), end, err
}
