package backendtest

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

// covers: C10, G1
func lockerClose(e *env) {
	b := e.open()
	l := e.locker(b, locker.Config{})
	key := e.key("k")
	g := e.lock(l, key)
	waited, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := l.Lock(e.ctx, key)
		waited <- err
	}()
	e.pause(5 * time.Millisecond)
	go func() { closed <- l.Shutdown(e.ctx) }()
	e.is("a Lock that waited when the client was closed", <-waited, locker.ErrClosed)
	if _, err := g.Value(); err != nil {
		e.Errorf("Close took a guard's lock: %v", err)
	}
	e.refused(b, e.claim(key))
	e.unlock(g)
	if err := <-closed; err != nil {
		e.Errorf("Close = %v", err)
	}
	_, err := l.Lock(e.ctx, key)
	e.is("Lock after Close", err, locker.ErrClosed)
	e.free(b, key)
}

// cancellationSweep cancels Lock at moments that sweep over the time it takes: before, while and
// after it is granted, on a free key and on one that is released just then.
//
// covers: A5, W7, W8, X11, C5
func cancellationSweep(e *env) {
	direct := e.open()
	a, b := e.locker(e.open(), locker.Config{}), e.locker(e.open(), locker.Config{})
	const points = 50
	for i := range points {
		key := e.key(fmt.Sprint("k", i%2))
		delay := time.Duration(i) * 40 * time.Microsecond
		var g *locker.Guard[struct{}]
		if i%2 == 0 {
			g = e.lock(a, key)
			unlock := time.AfterFunc(points/2*40*time.Microsecond, func() { _ = g.Unlock() })
			e.later(func() { unlock.Stop() })
		}
		ctx, cancel := context.WithCancel(e.ctx)
		stop := time.AfterFunc(delay, cancel)
		next, err := b.Lock(ctx, key)
		if err == nil {
			e.unlock(next)
		} else {
			e.is("a cancelled Lock", err, context.Canceled)
		}
		stop.Stop()
		cancel()
		if g != nil {
			e.unlock(g)
		}
		// A slow store is cleaned up behind.
		e.await("everything to be free after a cancelled Lock", patience, func() bool {
			c := e.claim(key)
			c.NoneInFlight = true
			_, err := direct.TryAcquire(e.ctx, c)
			_, _ = direct.Release(e.ctx, c)
			return err == nil
		})
	}
}

// covers: R22
func lockerNamespaces(e *env) {
	b := e.open()
	pairs := [][2]string{
		{"", "n~k"},
		{"", "n%7Ek"},
		{"n", "k"},
		{"", "k"},
		{"n~", "k"},
		{"n", "~k"},
		{"n%7E", "k"},
		{"N", "k"},
	}
	for _, p := range pairs {
		l := e.locker(b, locker.Config{Namespace: p[0]})
		if p[0] != "" {
			l = e.locker(b, locker.Config{Namespace: e.prefix + p[0]})
			e.unlock(e.lock(l, p[1]))
			e.lock(l, p[1])
			continue
		}
		e.lock(l, e.key(p[1]))
	}
}
