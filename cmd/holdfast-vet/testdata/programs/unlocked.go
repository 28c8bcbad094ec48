// Package programs has what is to be found, and what is not.
package programs

import (
	"context"
	"errors"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

type account struct{ balance int }

var (
	ctx = context.Background()
	l   locker.Locker[*account]
)

func work(*account) error { return nil }
func done() bool          { return true }

func never() error {
	g, err := l.Lock(ctx, "k") // want `g is never unlocked`
	if err != nil {
		return err
	}
	v, err := g.Value()
	if err != nil {
		return err
	}
	return work(v)
}

func discarded() {
	l.Lock(ctx, "k")           // want `the guard is discarded`
	_, err := l.Lock(ctx, "k") // want `the guard is discarded`
	_ = err
}

func onOneWay() error {
	g, err := l.Lock(ctx, "k") // want `g is not unlocked on the way that returns in line 47`
	if err != nil {
		return err
	}
	v, err := g.Value()
	if err != nil {
		return err
	}
	if err := work(v); err != nil {
		return errors.Join(err, g.Unlock())
	}
	return g.Unlock()
}

func inALoop() {
	for !done() {
		g, err := l.TryLock(ctx, "k") // want `g is not unlocked on the way that returns in line 69`
		if errors.Is(err, backend.ErrHeld) {
			continue
		}
		if err != nil {
			return
		}
		if g.Check(ctx) != nil {
			break
		}
		_ = g.Unlock()
	}
}

func atTheEnd() {
	var g, err = l.Lock(ctx, "k") // want `g is not unlocked on the way that returns in line 79`
	if err != nil {
		return
	}
	if g.Check(ctx) == nil {
		_ = g.Unlock()
	}
}

func several() error {
	gs, err := locker.All(ctx, l, []string{"a", "b"}) // want `gs is never unlocked`
	if err != nil {
		return err
	}
	return gs.Context().Err()
}

// What follows is right, or what is done with the guard cannot be seen.

func deferred() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	v, err := g.Value()
	if err != nil {
		return err
	}
	return work(v)
}

func deferredInAFunction() (err error) {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Unlock()) }()
	return g.Check(ctx)
}

func onlyIfGranted() error {
	g, err := l.TryLock(ctx, "k")
	if err == nil {
		defer g.Unlock()
	}
	return err
}

func onlyIfThere() {
	g, _ := l.TryLock(ctx, "k")
	if g == nil {
		return
	}
	_ = g.Forgo()
}

func again() (err error) {
	var g *locker.Guard[*account]
	for range 3 {
		if g, err = l.Lock(ctx, "k"); err == nil {
			break
		}
	}
	if err != nil {
		return err
	}
	return g.Unlock()
}

func bySwitch() error {
	g, err := l.TryLock(ctx, "k")
	switch {
	case errors.Is(err, backend.ErrHeld):
		return nil
	case err != nil:
		return err
	}
	return g.Unlock()
}

func givenToTheCaller() (*locker.Guard[*account], error) {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return nil, err
	}
	return g, nil
}

func givenToAnother(take func(*locker.Guard[*account])) {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return
	}
	take(g)
}

func detached() (locker.Ticket, error) {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return locker.Ticket{}, err
	}
	return g.Detach()
}

func orEnds() {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return
	}
	if g.Check(ctx) != nil {
		panic("lost")
	}
	_ = g.Unlock()
}
