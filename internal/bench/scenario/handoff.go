package scenario

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// heldFor is how long S4 holds the lock while the other one waits, so that everything has fallen asleep.
const heldFor = 20 * time.Millisecond

var handOff = Scenario{
	Name: "S4", Title: "hand-off: from the call of Unlock to the return of another client's Lock, held 20 ms",
	Limit: "PUBLISH after 20ms", Inverse: true,
	Note: "two clients in turn, each waits for the other; the limit is one signal through the server after 20 ms of silence",
	Columns: []Column{
		{"p50", "hand-off p50", Micros},
		{"ratio", "× signal", Ratio},
		{"p99", "p99", Micros},
		{"max", "max", Micros},
		{"unlock", "Unlock p50", Micros},
		{"sent", "sent/acq", Ratio},
		{"samples", "samples", Number},
		{"errors", "errors", Number},
		{"faults", "faults", Number},
	},
	Cases:  func(bool) []int { return []int{2} },
	Length: lengths(600*time.Millisecond, 1500*time.Millisecond),
	Extras: []Extra{{"PUBLISH after 20ms", "two connections, no library", runSignal(heldFor)}},
	Run:    runHandOff,
}

// A relay is two clients that hand one lock to each other.
type relay struct {
	clients      [2]impl.Client
	judge        judge
	wait, unlock stats.Hist
	errors       float64
	turn         int // who holds
	held         impl.Held
}

type taken struct {
	held impl.Held
	at   time.Time
	err  error
}

func runHandOff(ctx context.Context, env *Env, im impl.Impl, _ int) (Metrics, error) {
	r := &relay{}
	for i := range r.clients {
		c, err := open(ctx, im, env.Server.Addr)
		if err != nil {
			return nil, err
		}
		defer closing(im, c)
		r.clients[i] = c
	}
	ctx, cancel := context.WithTimeout(ctx, env.Length+2*time.Second)
	defer cancel()
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	before, err := env.Server.Counters()
	if err != nil {
		return nil, err
	}
	used, n := pin.Used(), 0
	for end := time.Now().Add(env.Length); time.Now().Before(end) && err == nil; n++ {
		err = r.pass(ctx, true)
	}
	m := Metrics{"errors": r.errors, "samples": float64(n)}
	if err != nil { // a waiter that never returned: the samples so far stand
		m["errors"]++
	} else {
		_ = r.held.Unlock()
	}
	after, err := env.Server.Counters()
	if err != nil {
		return nil, err
	}
	m.perOp(im, after.Since(before), pin.Used()-used, float64(n))
	m["p50"], m["p99"], m["max"] = micros(r.wait.Quantile(0.5)), micros(r.wait.Quantile(0.99)), micros(r.wait.Max())
	m["unlock"] = micros(r.unlock.Quantile(0.5))
	m["faults"] = float64(r.judge.violations.Load() + r.judge.disorder.Load())
	return m, nil
}

// start takes the lock and passes it twice, so that both clients have their connections and scripts.
func (r *relay) start(ctx context.Context) (err error) {
	if r.held, err = r.clients[0].Lock(ctx, "bench-relay"); err != nil {
		return err
	}
	r.judge.enter(1, r.held.Token())
	for range 2 {
		if err = r.pass(ctx, false); err != nil {
			return err
		}
	}
	return nil
}

// pass hands the lock to the other client.
func (r *relay) pass(ctx context.Context, counts bool) error {
	next := 1 - r.turn
	got := make(chan taken, 1)
	go func() {
		for {
			h, err := r.clients[next].Lock(ctx, "bench-relay")
			at := time.Now()
			if err == nil || ctx.Err() != nil {
				got <- taken{h, at, err}
				return
			}
			r.errors++ // the library gave up; only this goroutine writes until got
		}
	}()
	time.Sleep(heldFor)
	r.judge.leave(int64(r.turn) + 1)
	began := time.Now()
	err := r.held.Unlock()
	unlocked := time.Since(began)
	if err != nil {
		return err
	}
	select {
	case t := <-got:
		if t.err != nil {
			return t.err
		}
		r.turn, r.held = next, t.held
		r.judge.enter(int64(next)+1, t.held.Token())
		if counts {
			r.wait.Add(t.at.Sub(began))
			r.unlock.Add(unlocked)
		}
		return nil
	case <-time.After(2*time.Second + drain):
		return errors.New("a waiter did not return")
	}
}
