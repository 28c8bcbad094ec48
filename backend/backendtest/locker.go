package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

var lockerRules = []rule{
	{
		name: "locker/basic", run: lockerBasic,
		why: "What applications do: lock, find it taken, unlock, lock again; from one client " +
			"and from two.",
	},
	{
		name: "locker/unlock-twice", run: unlockTwice,
		why: "Unlock is deferred here and called there. Its second call says what the first did, " +
			"and never frees the next holder.",
	},
	{
		name: "locker/wait-ends", run: waitEnds,
		why: "A wait ends with its ctx and says so together with who holds: ctx.Err, its cause, " +
			"and ErrHeld are all visible" +
			" (redsync#98 and redsync#164 hide them).",
	},
	{
		name: "locker/woken", run: lockerWoken, needs: watch,
		why: "A waiter gets the lock when it is released, not at the end of some poll interval.",
	},
	{
		name: "locker/dead-holder", run: deadHolder,
		why: "A holder that dies while holding blocks its waiters for the rest of its lease, and " +
			"nobody has to help.",
	},
	{
		name: "locker/renews", run: lockerRenews,
		why: "Work may take longer than the TTL: the hold is renewed for as long as its " +
			"holder lives.",
	},
	{
		name: "locker/foreign", run: lockerForeign, hook: hasForeign,
		why: "Data of another program under the lock's key is an error at once, not a " +
			"wait for ever.",
	},
	{
		name: "locker/do", run: lockerDo,
		why: "Do unlocks however its function ends. A panic that leaks a lock blocks the next " +
			"process, which panics again.",
	},
	{
		name: "locker/close", run: lockerClose,
		why: "Close refuses what is new, ends waits, and waits for guards, so that a program " +
			"that ends leaves no lock behind.",
	},
	{
		name: "locker/sweep", run: cancellationSweep, slow: true,
		why: "A Lock that is cancelled, at whatever moment, leaves nothing held and nobody in " +
			"the queue (cats-effect#3554," +
			" etcd 3.4#10153, CURATOR-462).",
	},
	{
		name: "locker/deadlock", run: lockerDeadlock, needs: backend.Capabilities{
			Queue:   true,
			Inspect: true, Fencing: true,
		}, slow: true,
		why: "Processes that lock two keys in different orders wait for each other for ever. Who " +
			"waits for what is in the store, so" +
			" that they find out, and one of them gives up (redisson#4460).",
	},
	{
		name: "locker/namespaces", run: lockerNamespaces,
		why: "Services that share a store do not share locks by accident, however " +
			"their names look.",
	},
}

// locker returns a client on b, which is closed at the end.
func (e *env) locker(b backend.Backend, cfg locker.Config) *locker.Client[struct{}] {
	e.Helper()
	if cfg.TTL == 0 {
		cfg.TTL = e.long
	}
	if cfg.StoreTimeout == 0 { // a busy machine may answer late for a while
		cfg.StoreTimeout = patience
	}
	if cfg.Logger == nil {
		cfg.Logger = discard
	}
	l, err := locker.New(b, locker.Bare, cfg)
	if err != nil {
		e.Fatalf("locker.New = %v", err)
	}
	e.later(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(e.ctx), 2*cfg.TTL+patience)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil {
			e.Errorf("locker: Close = %v", err)
		}
	})
	return l
}

// lock must get key, and unlocks it at the end.
func (e *env) lock(l locker.Locker[struct{}], key string) *locker.Guard[struct{}] {
	e.Helper()
	g, err := l.Lock(e.ctx, key)
	if err != nil {
		e.Fatalf("Lock(%s) = %v", short(key), err)
	}
	e.later(func() { _ = g.Unlock() })
	return g
}

// unlock must succeed.
func (e *env) unlock(g *locker.Guard[struct{}]) {
	e.Helper()
	if err := g.Unlock(); err != nil {
		e.Errorf("Unlock = %v", err)
	}
}

// taken must find key locked.
func (e *env) taken(l locker.Locker[struct{}], key string) {
	e.Helper()
	g, err := l.TryLock(e.ctx, key)
	if err == nil {
		e.later(func() { _ = g.Unlock() })
		e.Fatalf("TryLock(%s) succeeded while another guard holds", short(key))
	}
	e.is("TryLock", err, locker.ErrNotAcquired)
	e.is("TryLock", err, backend.ErrHeld)
}

// covers: G3
func lockerBasic(e *env) {
	a, b := e.locker(e.open(), locker.Config{}), e.locker(e.open(), locker.Config{})
	key := e.key("k")
	for _, l := range []*locker.Client[struct{}]{a, b, a} {
		g := e.lock(l, key)
		e.taken(a, key) // not re-entrant
		e.taken(b, key)
		if _, err := g.Value(); err != nil {
			e.Errorf("Value = %v", err)
		}
		if err := g.Check(e.ctx); err != nil {
			e.Errorf("Check = %v", err)
		}
		e.unlock(g)
	}
}

// covers: G9
func lockerDeadlock(e *env) {
	keys := []string{e.key("one"), e.key("two")}
	errs := make(chan error, len(keys))
	var held []*locker.Guard[struct{}]
	var of []*locker.Client[struct{}]
	for _, key := range keys {
		of = append(of, e.locker(e.open(), locker.Config{BreakDeadlocks: true}))
		held = append(held, e.lock(of[len(of)-1], key))
	}
	for i := range keys {
		go func() {
			// some ten requests and three pauses.
			g, err := of[i].Lock(held[i].Context(), keys[1-i], locker.WaitLimit(6*patience))
			if err == nil {
				err = g.Unlock()
			}
			errs <- errors.Join(err, held[i].Unlock())
		}()
	}
	broken := 0
	for range keys {
		var deadlock *locker.DeadlockError
		switch err := <-errs; {
		case errors.As(err, &deadlock) && len(deadlock.Cycle) == len(keys):
			broken++
		case err != nil:
			e.Errorf("one who waited: %v", err)
		}
	}
	if broken != 1 {
		e.Errorf("%d of two gave up, want one", broken)
	}
	for _, key := range keys {
		e.free(e.open(), key)
	}
}

// covers: C7
func unlockTwice(e *env) {
	a, b := e.locker(e.open(), locker.Config{}), e.locker(e.open(), locker.Config{})
	key := e.key("k")
	g := e.lock(a, key)
	e.unlock(g)
	next := e.lock(b, key)
	if err := g.Unlock(); err != nil {
		e.Errorf("second Unlock = %v, want what the first returned", err)
	}
	e.taken(a, key)
	e.unlock(next)
}

// covers: W7, C5, I11
func waitEnds(e *env) {
	a, b := e.locker(e.open(), locker.Config{}), e.locker(e.open(), locker.Config{})
	key := e.key("k")
	defer e.unlock(e.lock(a, key))

	// ended wants all of the targets of each error, and ErrHeld as soon as the store had the time
	// to answer.
	ended := func(what string, lock func(wait time.Duration) error, targets ...error) {
		e.Helper()
		for wait := e.short; ; wait *= 2 {
			err := lock(wait)
			for _, target := range append(targets, locker.ErrNotAcquired) {
				e.is(what, err, target)
			}
			if errors.Is(err, backend.ErrHeld) {
				return
			}
			if wait > patience {
				e.Fatalf("%s does not say after %v who holds: %v", what, wait, err)
			}
		}
	}
	ended("Lock with a WaitLimit", func(wait time.Duration) error {
		_, err := b.Lock(e.ctx, key, locker.WaitLimit(wait))
		return err
	}, context.DeadlineExceeded)
	ended("Lock that is cancelled while it waits", func(wait time.Duration) error {
		ctx, cancel := context.WithCancelCause(e.ctx)
		defer time.AfterFunc(wait, func() { cancel(errWhy) }).Stop()
		_, err := b.Lock(ctx, key)
		return err
	}, context.Canceled, errWhy)

	ctx, cancel := context.WithCancelCause(e.ctx)
	cancel(errWhy)
	_, err := b.Lock(ctx, e.key("free"))
	for _, target := range []error{locker.ErrNotAcquired, context.Canceled, errWhy} {
		e.is("Lock under a ctx that was cancelled before", err, target)
	}
	e.unlock(e.lock(b, e.key("free")))
}

// covers: W1
func lockerWoken(e *env) {
	cfg := locker.Config{}
	cfg.Wait.Fallback = time.Hour // nothing but a signal can wake
	a, b := e.locker(e.open(), cfg), e.locker(e.open(), cfg)
	key := e.key("k")
	for range 10 {
		g := e.lock(a, key)
		granted := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(e.ctx, patience)
			defer cancel()
			next, err := b.Lock(ctx, key)
			granted <- errors.Join(err, next.Unlock())
		}()
		e.pause(5 * time.Millisecond)
		e.unlock(g)
		if err := <-granted; err != nil {
			e.Fatalf("Lock by a waiter, when the lock was released = %v", err)
		}
	}
}

// covers: G6, R18
func deadHolder(e *env) {
	a, l := e.open(), e.locker(e.open(), locker.Config{})
	key := e.key("k")
	g := e.acquire(a, e.brief(key)) // and never renewed
	start := time.Now()
	e.unlock(e.lock(l, key))
	if took := time.Since(start); took > g.TTL+patience/2 {
		e.Errorf("waited %v for a dead holder's lease of %v", took, g.TTL)
	}
}

// covers: B2, B7
func lockerRenews(e *env) {
	cfg := locker.Config{TTL: 2 * e.short} // a busy machine may stand still for a while
	a, b := e.locker(e.open(), cfg), e.locker(e.open(), cfg)
	key := e.key("k")
	g := e.lock(a, key)
	for start := time.Now(); time.Since(start) < 5*e.short; e.pause(e.short / 4) {
		e.taken(b, key)
		if _, err := g.Value(); err != nil {
			e.Fatalf("Value = %v, %v after the grant, with a TTL of %v", err, time.Since(start),
				cfg.TTL)
		}
	}
	e.unlock(g)
}

// covers: R24
func lockerForeign(e *env) {
	l := e.locker(e.open(), locker.Config{})
	key := e.prefix + "foreign"
	intact := e.h.PutForeign(e, key)
	_, err := l.Lock(e.ctx, key)
	e.is("Lock of a key with foreign data", err, backend.ErrForeign)
	e.is("Lock of a key with foreign data", err, locker.ErrNotAcquired)
	if !intact() {
		e.Error("foreign data was changed")
	}
}

// covers: C6
func lockerDo(e *env) {
	l := e.locker(e.open(), locker.Config{})
	key := e.key("k")
	func() {
		defer func() {
			if recover() == nil {
				e.Error("Do swallowed the panic")
			}
		}()
		_ = locker.Do(e.ctx, l, key, func(context.Context, struct{}) error {
			panic("in the critical section")
		})
	}()
	err := locker.Do(e.ctx, l, key, func(ctx context.Context, _ struct{}) error {
		e.taken(l, key)
		return errors.Join(ctx.Err(), errWhy)
	})
	e.is("Do", err, errWhy)
	e.unlock(e.lock(l, key))
}
