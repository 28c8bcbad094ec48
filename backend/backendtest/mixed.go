package backendtest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
)

var mixedRules = []rule{
	{
		name: "mixed/history", run: mixedHistory, slow: true,
		needs: backend.Capabilities{Queue: true, Shared: true, Permit: true, Fencing: true},
		why: "Readers, writers and permits in one line, over a bad network, with some that give " +
			"up or die: what is believed" +
			" never exceeds what may be held together, and everybody who stays is served.",
	},
}

// most is how many readers may hold together in the eyes of the history: a writer weighs as much as
// all of them.
const most = 64

// covers: W6, W7, W14, W15, K6, B15
func mixedHistory(e *env) {
	fb := FaultyWith(e.h.Open(e), 7,
		Faults{Delay: time.Millisecond, LoseReply: 0.1, Vanish: 0.1, Twice: 0.2, LoseWake: 0.3})
	e.later(func() { _ = fb.Close() })
	direct := e.open()
	start := time.Now()
	readers, permits := e.key("readers"), e.key("permits")
	var log history.Log
	parallel(12, func(worker int) {
		r := rand.New(rand.NewPCG(7, uint64(worker)))
		for range 8 {
			c, weight, asked := e.inLine(readers), 1, time.Since(start)
			switch r.IntN(4) {
			case 0:
				weight = most
			case 1, 2:
				c.Mode = backend.Shared
			case 3:
				c = e.inLine(permits)
				c.Mode, c.Limit = backend.Permit, 3
				if e.caps.Weight {
					c.Weight = 1 + worker%3
					weight = c.Weight
				}
			}
			if r.IntN(5) == 0 { // gives up at once
				_, _ = fb.TryAcquire(e.ctx, c)
			} else if token := e.persist(fb, c); token != 0 {
				if c.Mode != backend.Exclusive {
					token = 0 // who holds together may hear of it in another order
				}
				event := history.Event{
					Worker: fmt.Sprint(worker), Key: c.Key, Token: token,
					Weight: weight, Asked: asked, Start: time.Since(start),
				}
				e.pause(fraction(r, 2*time.Millisecond))
				event.End = time.Since(start)
				log.Add(event)
			}
			if _, err := direct.Release(e.ctx, c); err != nil && !errors.Is(err, backend.ErrLost) {
				e.Errorf("Release by a client without faults = %v", err)
			}
		}
	})
	var all, few []history.Event
	for _, event := range log.Events() {
		if event.Key == permits {
			few = append(few, event)
		} else {
			all = append(all, event)
		}
	}
	e.judge(all, most)
	e.judge(few, 3)
}
