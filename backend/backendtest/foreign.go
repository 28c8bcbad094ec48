package backendtest

import (
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var foreignRules = []rule{
	{
		name: "foreign/refused", run: foreignRefused, hook: hasForeign,
		why: "A key that holds another program's data is ErrForeign, at once and for good. " +
			"\"Held\" would make callers wait for" +
			" ever for a release that never comes (redsync#124, node-redlock#38), and the data " +
			"is not ours to change.",
	},
	{
		name: "dropped/noticed", run: dropNoticed, hook: hasDrop,
		why: "A hold whose state was deleted (FLUSHALL, DEL, eviction) is lost: Renew says so, " +
			"and does not create it again" +
			" (etcd's Session.Done never notices).",
	},
	{
		name: "dropped/taken", run: dropTaken, hook: hasDrop,
		why: "After its state was deleted, another claim may hold the key. The first must " +
			"neither renew nor release it.",
	},
	{
		name: "dropped/usable", run: dropUsable, hook: hasDrop,
		why: "A key whose state was deleted is a free key. Scripts and caches that the deletion " +
			"took away are made anew.",
	},
	{
		name: "restart/usable", run: restartUsable, hook: hasRestart, alone: true,
		why: "A restart breaks every connection. Clients recover by themselves: verbs answer, " +
			"tokens rise, and watchers are" +
			" signalled, since they may have missed anything (redis#2672, Redisson#3712: renewal " +
			"never started again).",
	},
}

// covers: R24
func foreignRefused(e *env) {
	a, b := e.open(), e.open()
	key := e.prefix + "foreign" // not looked at for what is left
	intact := e.h.PutForeign(e, key)
	c := e.claim(key)
	for _, client := range []backend.Backend{a, b} {
		_, err := client.TryAcquire(e.ctx, c)
		e.is("TryAcquire of a key with foreign data", err, backend.ErrForeign)
		if errors.Is(err, backend.ErrHeld) {
			e.Error("foreign data was called a held lock")
		}
	}
	for verb, err := range map[string]error{
		"Renew":   a.Renew(e.ctx, c),
		"Release": release(e.ctx, a, c),
	} {
		if err == nil || backend.AnswerOf(err) != backend.No {
			e.Errorf("%s of a key with foreign data = %v, want ErrForeign or ErrLost", verb, err)
		}
	}
	if !intact() {
		e.Error("foreign data was changed")
	}
}

// covers: R8, R5
func dropNoticed(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	e.h.Drop(e, key)
	e.lost("Renew of a hold that was deleted", a.Renew(e.ctx, c))
	e.lost("Release of a hold that was deleted", release(e.ctx, a, c))
	e.free(b, key)
}

// covers: R8, C1
func dropTaken(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	e.h.Drop(e, key)
	next := e.claim(key)
	e.acquire(b, next)
	e.lost("Renew of a hold that was deleted and taken", a.Renew(e.ctx, c))
	e.lost("Release of a hold that was deleted and taken", release(e.ctx, a, c))
	e.renewed(b, next)
	e.held(a, e.claim(key))
}

// covers: R8
func dropUsable(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	for range 3 {
		e.cycle(a, key)
		c := e.claim(key)
		e.lost("Release", release(e.ctx, a, c))
		e.h.Drop(e, key)
		e.free(b, key)
		e.h.Drop(e, key)
	}
}

// covers: R3, R9, W2, B2
func restartUsable(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.brief(key)
	before := e.acquire(a, c)
	var wake <-chan backend.Wake
	if e.caps.Watch {
		wake, _ = e.watch(b, e.claim(key))
	}
	e.h.Restart(e)
	next := e.claim(key)
	e.forget(b, next)
	var after backend.Grant
	e.await("a client to recover from a restart", 4*e.short+3*patience, func() (ok bool) {
		var err error
		after, err = b.TryAcquire(e.ctx, next)
		return err == nil
	})
	if e.caps.Fencing {
		e.above(before.Token, after)
	}
	if wake == nil {
		return
	}
	// Signalled by the reconnection; if not yet, then by a release after it.
	e.await("a watcher to be signalled after a restart", 3*patience, func() bool {
		if _, err := b.Release(e.ctx, next); err != nil && !errors.Is(err, backend.ErrLost) {
			return false
		}
		next = e.claim(key)
		e.forget(b, next)
		_, err := b.TryAcquire(e.ctx, next)
		return err == nil && e.woken(wake, 100*time.Millisecond)
	})
}
