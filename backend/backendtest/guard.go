package backendtest

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

var guardRules = []rule{
	{
		name: "guard/lost-when-dropped", run: lostWhenDropped, hook: hasDrop,
		why: "A holder whose lock was deleted is told, by the next renewal at the latest: Lost " +
			"and the context say why." +
			" (etcd's Session.Done stays open while another session acquires.)",
	},
	{
		name: "guard/check-notices", run: checkNotices, hook: hasDrop,
		why: "Check asks the store now: before an irreversible step nobody wants to wait for the " +
			"next renewal.",
	},
	{
		name: "guard/unlock-is-no-loss", run: unlockIsNoLoss,
		why: "Lost is for what happened to the holder, not for what it did: it does not " +
			"fire on Unlock.",
	},
	{
		name: "guard/unlock-while-renewing", run: unlockWhileRenewing, slow: true,
		why: "Unlock meets a renewal in flight all the time. It must neither wait for long, nor " +
			"be undone by it.",
	},
	{
		name: "guard/abandoned", run: abandonedGuard,
		why: "A guard that was dropped without Unlock is not renewed for ever (Redisson 3.16: " +
			"interrupted tryLock kept" +
			" renewing): it is logged, and its lease runs out.",
	},
	{
		name: "guard/deadline-first", run: deadlineFirst,
		why: "Belief ends before the store's lease: a guard is over, by its own clock, before " +
			"another claim can be granted.",
	},
}

// covers: R8, B1
func lostWhenDropped(e *env) {
	l := e.locker(e.open(), locker.Config{TTL: e.short})
	key, late := e.key("k"), e.key("late")
	g, unseen := e.lock(l, key), e.lock(l, late)
	lost := g.Lost()
	e.h.Drop(e, key)
	e.h.Drop(e, late)
	timer := time.NewTimer(e.short + patience)
	defer timer.Stop()
	for what, ended := range map[string]<-chan struct{}{
		"Lost":    lost,
		"Context": g.Context().Done(),
	} {
		select {
		case <-ended:
		case <-timer.C:
			e.Fatalf("%s is still open, long after the lock was deleted", what)
		}
	}
	e.is("Cause of the guard's context", context.Cause(g.Context()), locker.ErrLost)
	e.is("Unlock of a lost guard", g.Unlock(), locker.ErrLost)
	_, err := g.Value()
	e.is("Value of a lost guard", err, locker.ErrLost)
	e.await("a guard to be lost", e.short+patience, func() bool {
		return unseen.Context().Err() != nil
	})
	select {
	case <-unseen.Lost(): // first looked at after the loss
	default:
		e.Error("Lost is open when it is first looked at after the loss")
	}
}

// covers: R8, B11
func checkNotices(e *env) {
	b := e.open()
	l := e.locker(e.open(), locker.Config{})
	key := e.key("k")
	g := e.lock(l, key)
	if err := g.Check(e.ctx); err != nil {
		e.Errorf("Check = %v", err)
	}
	e.h.Drop(e, key)
	e.is("Check after the lock was deleted", g.Check(e.ctx), locker.ErrLost)
	e.free(b, key)
}

func unlockIsNoLoss(e *env) {
	l := e.locker(e.open(), locker.Config{})
	g := e.lock(l, e.key("k"))
	lost := g.Lost()
	e.unlock(g)
	e.is("Cause after Unlock", context.Cause(g.Context()), locker.ErrUnlocked)
	e.pause(5 * time.Millisecond)
	for _, ch := range []<-chan struct{}{lost, g.Lost()} {
		select {
		case <-ch:
			e.Error("Lost fired on Unlock")
		default:
		}
	}
}

// covers: B5, G5, C11
func unlockWhileRenewing(e *env) {
	b := e.open()
	l := e.locker(e.open(), locker.Config{TTL: e.long})
	key := e.key("k")
	for range 30 {
		g := e.lock(l, key)
		var wg sync.WaitGroup
		wg.Go(func() { _ = g.Check(e.ctx) }) // a renewal, at a moment of our choice
		e.unlock(g)
		wg.Wait()
		e.free(b, key)
	}
}

// covers: B3, G2
func abandonedGuard(e *env) {
	for ttl := e.short; ; ttl *= 2 {
		log := e.abandoned(ttl)
		if strings.Contains(log, "without Unlock") {
			return
		}
		// A busy machine was late.
		if !strings.Contains(log, "ran out without a confirmed renewal") || ttl > e.long {
			e.Fatalf("nothing was logged about the guard that was dropped, only %q", log)
		}
	}
}

// abandoned drops a guard, waits until the key is free, and returns what was logged.
func (e *env) abandoned(ttl time.Duration) string {
	var log safeBuffer
	l := e.locker(e.open(), locker.Config{
		TTL:    ttl,
		Logger: slog.New(slog.NewTextHandler(&log, nil)),
	})
	b := e.open()
	key := e.key(fmt.Sprint("k", ttl))
	abandon(e, l, key)
	next := e.claim(key)
	e.forget(b, next)
	e.await("an abandoned guard's lease to run out", 3*ttl+3*patience, func() bool {
		runtime.GC()
		_, err := b.TryAcquire(e.ctx, next)
		return err == nil
	})
	return log.String()
}

// abandon is a function of its own, so that nothing of the guard stays on the caller's stack.
//
//go:noinline
func abandon(e *env, l *locker.Client[struct{}], key string) {
	if _, err := l.Lock(e.ctx, key); err != nil {
		e.Fatalf("Lock = %v", err)
	}
}

// covers: B1, A6
func deadlineFirst(e *env) {
	deaf := &deaf{Backend: e.open()}
	l := e.locker(deaf, locker.Config{TTL: e.short})
	b := e.open()
	for range 3 {
		key := e.key("k")
		g := e.lock(l, key)
		deaf.stop.Store(true) // from now on the store does not answer the holder
		next := e.claim(key)
		e.takeOver(b, next)
		if _, err := g.Value(); err == nil {
			e.broken("the guard is good until %v from now, and another claim was granted",
				time.Until(g.Until()))
		}
		deaf.stop.Store(false)
		e.is("Unlock", g.Unlock(), locker.ErrLost)
		e.await("the holder's late release to be done", patience, func() bool {
			return b.Renew(e.ctx, next) == nil
		})
		e.release(b, next)
	}
}
