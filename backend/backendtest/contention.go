package backendtest

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
)

// discard is a log for rules that lose locks on purpose.
var discard = slog.New(slog.DiscardHandler)

var contentionRules = []rule{
	{
		name: "contention/counter", run: contendedCounter, alone: true, slow: true,
		why: "A hundred at once add one to a counter that only the lock guards: reading and " +
			"writing with another in between" +
			" loses an addition.",
	},
	{
		name: "contention/history", run: contendedHistory, alone: true, slow: true,
		why: "Over several clients, keys and hundreds of holds, no two beliefs overlap, tokens " +
			"rise in the order of holds," +
			" and there is an order of all calls that explains them.",
	},
}

// covers: W4, G5
func contendedCounter(e *env) {
	lockers := []*locker.Client[struct{}]{
		e.locker(e.open(), locker.Config{}),
		e.locker(e.open(), locker.Config{}),
	}
	key := e.key("k")
	const workers = 100
	counter := 0
	parallel(workers, func(i int) {
		g, err := lockers[i%2].Lock(e.ctx, key)
		if err != nil {
			e.Errorf("Lock = %v", err)
			return
		}
		seen := counter
		if i%10 == 0 {
			e.pause(100 * time.Microsecond)
		}
		counter = seen + 1
		if err := g.Unlock(); err != nil {
			e.Errorf("Unlock = %v", err)
		}
	})
	if counter != workers && !e.Failed() {
		e.Errorf("the counter is %d after %d additions under the lock", counter, workers)
	}
}

// covers: A1, C1, K1, W1
func contendedHistory(e *env) {
	const clients, workers = 3, 4
	rounds := 20
	if testing.Short() {
		rounds = 5
	}
	keys := []string{e.key("a"), e.key("b")}
	start := time.Now()
	var log history.Log
	var lockers []*locker.Client[struct{}]
	for i := range clients {
		cfg := locker.Config{}
		if i > 0 {
			// The store sees every acquisition; the first client's goroutines hand on among
			// themselves.
			cfg.Wait.Passes = -1
		}
		lockers = append(lockers, e.locker(e.open(), cfg))
	}
	parallel(clients*workers, func(i int) {
		for round := range rounds {
			asked := time.Since(start)
			g, err := lockers[i%clients].Lock(e.ctx, keys[(i+round)%len(keys)])
			if err != nil {
				e.Errorf("Lock = %v", err)
				return
			}
			event := history.Event{
				Worker: fmt.Sprint(i), Key: g.Hold().Key, Token: g.Hold().Token, Asked: asked,
				Start: time.Since(start),
			}
			e.pause(50 * time.Microsecond)
			event.End = min(time.Since(start), g.Until().Sub(start))
			if err := g.Unlock(); err != nil {
				e.Errorf("Unlock = %v", err)
			}
			log.Add(event)
		}
	})
	events := log.Events()
	e.judge(events, 1)
	if len(events) != clients*workers*rounds && !e.Failed() {
		e.Errorf("%d holds were recorded, want %d", len(events), clients*workers*rounds)
	}
}
