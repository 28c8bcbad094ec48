package backendtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

var faultRules = []rule{
	{
		name: "faults/lost-reply", run: lostReply,
		why: "The store grants, the reply is lost. The lock is the caller's: asking again must " +
			"say so, and giving up must" +
			" leave nothing (redlock-rb#76, go-redis#2985, rueidislock).",
	},
	{
		name: "faults/late-attempt", run: lateAttemptThroughLocker,
		why: "A cancelled Lock has released its claim when its attempt finally arrives. The lock " +
			"must not be taken by it" +
			" (etcd keeps such a key for the session's lifetime).",
	},
	{
		name: "faults/slow-replies", run: slowReplies,
		why: "A store that is slow for a while must not leave a waiter asleep beside a free " +
			"lock for ever" +
			" (rueidislock with NOLOOP does after one slow reply).",
	},
	{
		name: "faults/lost-wake-ups", run: lostWakeUps,
		why: "Wake-ups are hints. When all of them are lost, a released lock is still found " +
			"within the fallback interval.",
	},
	{
		name: "faults/lost-release", run: lostRelease,
		why: "Unlock whose reply is lost asks again, and finds its own work: that is " +
			"not a lost lock.",
	},
}

// covers: A2, A3
func lostReply(e *env) {
	direct := e.open()
	fb := FaultyWith(e.h.Open(e), 1, Faults{LoseReply: 1})
	e.later(func() { _ = fb.Close() })
	l := e.locker(fb, locker.Config{TTL: e.short, StoreTimeout: e.short / 4})
	for name, lock := range map[string]func(string) (*locker.Guard[struct{}], error){
		"Lock": func(key string) (*locker.Guard[struct{}], error) { return l.Lock(e.ctx, key) },
		"TryLock": func(key string) (*locker.Guard[struct{}], error) {
			return l.TryLock(e.ctx, key)
		},
	} {
		key := e.key(name)
		_, err := lock(key)
		e.is(name+", when every reply is lost", err, ErrFault)
		if errors.Is(err, backend.ErrHeld) {
			e.Errorf("%s reported its own lock as taken: %v", name, err)
		}
		e.await("a lock whose reply was lost to be given back", patience, func() bool {
			c := e.claim(key)
			c.NoneInFlight = true
			_, err := direct.TryAcquire(e.ctx, c)
			_, _ = direct.Release(e.ctx, c)
			return err == nil
		})
	}
	fb.EndFaults()
	e.unlock(e.lock(l, e.key("Lock")))
}

// covers: A4, A5, X10
func lateAttemptThroughLocker(e *env) {
	direct := e.open()
	delay := e.short / 4
	fb := FaultyWith(e.h.Open(e), 1, Faults{Slow: 1, Delay: time.Millisecond, Limit: delay})
	l := e.locker(fb, locker.Config{TTL: e.short})
	for i := range 8 {
		key := e.key(fmt.Sprint(i))
		ctx, cancel := context.WithTimeout(e.ctx, time.Duration(i)*delay/8)
		g, err := l.Lock(ctx, key)
		cancel()
		if err == nil {
			e.unlock(g)
		}
	}
	if err := l.Shutdown(e.ctx); err != nil {
		e.Errorf("locker: Close = %v", err)
	}
	if err := fb.Close(); err != nil { // every late attempt has landed
		e.Errorf("Close = %v", err)
	}
	for i := range 8 {
		e.free(direct, e.key(fmt.Sprint(i)))
	}
}

// covers: W1, A11
func slowReplies(e *env) {
	fb := FaultyWith(e.h.Open(e), 1, Faults{Slow: 1, Delay: time.Millisecond, Limit: e.short / 8})
	e.later(func() { _ = fb.Close() })
	direct := e.open()
	l := e.locker(fb, locker.Config{})
	for i := range 4 {
		key := e.key(fmt.Sprint(i))
		c := e.claim(key)
		e.acquire(direct, c)
		granted := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(e.ctx, patience+e.short)
			defer cancel()
			g, err := l.Lock(ctx, key)
			granted <- errors.Join(err, g.Unlock())
		}()
		e.pause(time.Duration(i) * e.short / 16)
		e.release(direct, c)
		if err := <-granted; err != nil {
			e.Errorf("Lock of a free key on a slow store = %v", err)
		}
	}
}

// covers: W2, W3
func lostWakeUps(e *env) {
	fb := FaultyWith(e.h.Open(e), 1, Faults{LoseWake: 1})
	e.later(func() { _ = fb.Close() })
	direct := e.open()
	cfg := locker.Config{}
	cfg.Wait.Fallback = 100 * time.Millisecond
	l := e.locker(fb, cfg)
	key := e.key("k")
	c := e.claim(key)
	e.acquire(direct, c)
	granted := make(chan error, 1)
	go func() {
		g, err := l.Lock(e.ctx, key)
		granted <- errors.Join(err, g.Unlock())
	}()
	e.pause(20 * time.Millisecond)
	e.release(direct, c)
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-granted:
		if err != nil {
			e.Errorf("Lock = %v", err)
		}
	case <-timer.C:
		e.Error("a waiter sleeps beside a free lock")
	}
}

// covers: C4
func lostRelease(e *env) {
	inner := e.h.Open(e)
	first := &loseFirstRelease{Backend: inner}
	e.later(func() { _ = inner.Close() })
	l := e.locker(first, locker.Config{})
	key := e.key("k")
	g := e.lock(l, key)
	if err := g.Unlock(); err != nil {
		e.Errorf("Unlock, whose first reply was lost = %v, want nil: the hold was good", err)
	}
	e.free(e.open(), key)
}
