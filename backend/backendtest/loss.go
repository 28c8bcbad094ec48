package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

var lossRules = []rule{
	{
		name: "loss/signalled", run: lossSignalled, needs: backend.Capabilities{Loss: true},
		hook: hasDrop,
		why: "A backend that claims Loss signals whoever watches a claim that holds when the " +
			"hold is taken away. Without it the" +
			" holder works on until the next renewal, a third of the lease later (Redisson never " +
			"hears of it).",
	},
	{
		name: "loss/before-watch", run: lostBeforeWatch, needs: backend.Capabilities{Loss: true},
		hook: hasDrop,
		why: "A hold that was taken away just before Watch is signalled too: there will be no " +
			"other change to tell of.",
	},
	{
		name: "loss/guard", run: guardHearsLoss, needs: backend.Capabilities{Loss: true},
		hook: hasDrop,
		why:  "A guard ends as soon as its hold is taken away, and not before the store was asked.",
	},
}

// covers: B2
func lossSignalled(e *env) {
	b := e.open()
	c := e.claim(e.key("k"))
	e.acquire(b, c)
	wake, _ := e.watch(b, c)
	for range 3 {
		e.renewed(b, c)
	}
	e.h.Drop(e, c.Key)
	e.await("a signal that is true", patience, func() bool {
		return e.woken(wake, patience) && b.Renew(e.ctx, c) != nil
	})
}

// covers: B2, W1
func lostBeforeWatch(e *env) {
	b := e.open()
	c := e.claim(e.key("k"))
	e.acquire(b, c)
	e.h.Drop(e, c.Key)
	if wake, _ := e.watch(b, c); !e.woken(wake, patience) {
		e.Error("a hold that was dropped before Watch was not signalled")
	}
}

// covers: B2
func guardHearsLoss(e *env) {
	b := e.open()
	l := e.locker(b, locker.Config{TTL: e.long})
	young, taken, old := e.lock(l, e.key("young")), e.lock(l, e.key("taken")),
		e.lock(l, e.key("old"))
	e.h.Drop(e, e.key("young")) // before its lease is watched, which finds it gone,
	e.h.Drop(e, e.key("taken")) // or another's
	e.acquire(b, e.claim(e.key("taken")))
	e.pause(1100 * time.Millisecond)
	select {
	case <-old.Lost():
		e.Fatal("lost before anything happened")
	default:
	}
	e.h.Drop(e, e.key("old"))
	timer := time.NewTimer(patience)
	defer timer.Stop()
	for name, g := range map[string]*locker.Guard[struct{}]{
		"young": young, "taken": taken,
		"old": old,
	} {
		select {
		case <-g.Lost():
		case <-timer.C:
			e.Fatalf("the guard of %s did not hear that its hold was dropped, and its renewals "+
				"are not due yet", name)
		}
		_ = g.Unlock()
	}
}
