package programs

import (
	"context"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

func polls() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	for !done() { // want `the loop looks neither at a context nor at the guard`
		time.Sleep(time.Second)
	}
	return nil
}

func ticks(t *time.Ticker, stop chan bool) error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	for range t.C { // want `the loop looks neither at a context nor at the guard`
		if done() {
			break
		}
	}
	for { // want `the loop looks neither at a context nor at the guard`
		select {
		case <-t.C:
		case <-stop:
			return nil
		}
	}
}

func leads() error {
	return locker.Lead(ctx, l, "leader", func(_ context.Context, v *account) error {
		for { // want `the loop looks neither at a context nor at the guard`
			time.Sleep(time.Second)
			if err := work(v); err != nil {
				return err
			}
		}
	})
}

// What follows is right, or is no loop under a lock.

func looks(t *time.Ticker) error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	for {
		select {
		case <-t.C:
		case <-g.Lost():
			return locker.ErrLost
		}
	}
}

func asksForTheValue() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	for {
		v, err := g.Value()
		if err != nil {
			return err
		}
		_ = work(v)
		time.Sleep(time.Second)
	}
}

func hasTheContext() error {
	return locker.Do(ctx, l, "k", func(ctx context.Context, v *account) error {
		for ctx.Err() == nil {
			time.Sleep(time.Second)
		}
		return context.Cause(ctx)
	})
}

func isShort() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	for i := 0; i < 3; i++ {
		time.Sleep(time.Millisecond)
	}
	return nil
}

func afterwards() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	if err := g.Unlock(); err != nil {
		return err
	}
	for !done() {
		time.Sleep(time.Second)
	}
	return nil
}
