package backendtest

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var closeRules = []rule{
	{
		name: "close/twice", run: closeTwice,
		why: "Close is deferred here and called there. The second call does nothing " +
			"and returns nil.",
	},
	{
		name: "close/later-calls", run: callsAfterClose,
		why: "After Close every verb fails with ErrClosed, which nobody repeats. A client that " +
			"reconnects by itself is a leak.",
	},
	{
		name: "close/own-only", run: closeOwnOnly,
		why: "Close ends one client. Others of the same store, in the same process too, go on.",
	},
	{
		name: "close/keeps-holds", run: closeKeepsHolds,
		why: "Close does not release: the work under a hold may still be going on. Its " +
			"lease runs out.",
	},
	{
		name: "close/under-load", run: closeUnderLoad,
		why: "Close waits for what is under way and refuses the rest; no call hangs, panics or " +
			"is told a lie.",
	},
	{
		name: "close/with-watchers", run: closeWithWatchers, needs: watch,
		why: "Whoever waits for a signal when its client is closed has a ctx that goes on. It " +
			"must be able to leave, and no" +
			" goroutine may be left.",
	},
	{
		name: "close/unused", run: closeUnused,
		why: "A client that was opened and not used is closed like any other.",
	},
}

// covers: G1
func closeTwice(e *env) {
	a := e.h.Open(e)
	e.cycle(a, e.key("k"))
	for range 3 {
		if err := a.Close(); err != nil {
			e.Errorf("Close = %v", err)
		}
	}
	b := e.h.Open(e)
	parallel(4, func(int) {
		if err := b.Close(); err != nil {
			e.Errorf("concurrent Close = %v", err)
		}
	})
}

func callsAfterClose(e *env) {
	a := e.h.Open(e)
	caps := a.Capabilities()
	if err := a.Close(); err != nil {
		e.Fatalf("Close = %v", err)
	}
	for verb, call := range e.verbs(a, e.claim(e.key("k"))) {
		e.is(verb+" after Close", call(e.ctx), backend.ErrClosed)
	}
	if a.Capabilities() != caps {
		e.Error("Capabilities changed with Close")
	}
}

func closeOwnOnly(e *env) {
	a, b := e.h.Open(e), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(b, c)
	var wake <-chan backend.Wake
	if e.caps.Watch {
		wake, _ = e.watch(b, e.claim(key))
	}
	if err := a.Close(); err != nil {
		e.Fatalf("Close = %v", err)
	}
	e.renewed(b, c)
	e.release(b, c)
	if wake != nil && !e.woken(wake, patience) {
		e.Error("a release after another client's Close did not signal")
	}
	e.free(e.open(), key)
}

// covers: C10
func closeKeepsHolds(e *env) {
	a, b := e.h.Open(e), e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	if err := a.Close(); err != nil {
		e.Fatalf("Close = %v", err)
	}
	e.held(b, e.claim(key))
	e.renewed(b, c)
}

// covers: G1, G5
func closeUnderLoad(e *env) {
	for round := range 5 {
		a := e.h.Open(e)
		key := e.key("k")
		start, started := time.Now(), make(chan struct{}, 8)
		parallel(9, func(i int) {
			if i == 8 {
				for range cap(started) {
					<-started
				}
				e.pause(time.Duration(round) * time.Millisecond)
				if err := a.Close(); err != nil {
					e.Errorf("Close = %v", err)
				}
				return
			}
			for n := 0; ; n++ {
				if n == 1 {
					started <- struct{}{}
				}
				c := e.claim(key)
				_, err := a.TryAcquire(e.ctx, c)
				if err == nil {
					_, err = a.Release(e.ctx, c)
				}
				if errors.Is(err, backend.ErrClosed) {
					e.forget(a, c)
					if n == 0 {
						started <- struct{}{}
					}
					return
				}
				if time.Since(start) > patience {
					e.Errorf("a call after Close = %v, want ErrClosed", err)
					return
				}
				e.pause(50 * time.Microsecond)
			}
		})
	}
}

// covers: G1
func closeWithWatchers(e *env) {
	a := e.h.Open(e)
	ctx, cancel := context.WithCancel(e.ctx)
	defer cancel()
	for range 5 {
		if _, err := a.Watch(ctx, e.claim(e.key("k"))); err != nil {
			e.Fatalf("Watch = %v", err)
		}
	}
	closed := make(chan error, 1)
	go func() { closed <- a.Close() }()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case err := <-closed:
		if err != nil {
			e.Errorf("Close = %v", err)
		}
	case <-timer.C:
		e.Error("Close waits for watches whose ctx goes on")
		cancel()
		if err := <-closed; err != nil {
			e.Errorf("Close = %v", err)
		}
	}
}

func closeUnused(e *env) {
	if err := e.h.Open(e).Close(); err != nil {
		e.Errorf("Close = %v", err)
	}
}
