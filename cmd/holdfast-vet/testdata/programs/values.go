package programs

import (
	"context"
	"sync"

	"github.com/holdfast-go/holdfast/locker"
)

var kept *account

type server struct {
	current *account
	guard   *locker.Guard[*account]
	all     map[string]*account
}

func usedLater() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	v, err := g.Value()
	_ = g.Unlock()
	if err != nil {
		return err
	}
	v.balance++ // want `v is used after g was unlocked`
	return nil
}

func returned() (*account, error) {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return nil, err
	}
	defer g.Unlock()
	v, err := g.Value()
	if err != nil {
		return nil, err
	}
	return v, nil // want `v is returned, and g unlocked before the caller has it`
}

func returnedWith() (*account, error) {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return nil, err
	}
	v, _ := g.Value()
	return v, g.Unlock() // want `v is returned, and g unlocked before the caller has it`
}

func (s *server) keeps() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	v, err := g.Value()
	if err != nil {
		return err
	}
	kept = v                   // want `v is kept beyond the Unlock of g`
	s.current = v              // want `v is kept beyond the Unlock of g`
	s.all["k"] = v             // want `v is kept beyond the Unlock of g`
	s.current, err = g.Value() // want `the value of g is kept beyond its Unlock`
	return err
}

func goesOn() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	v, err := g.Value()
	if err != nil {
		return err
	}
	go work(v)                  // want `v is given to a goroutine that may outlive the Unlock of g`
	go func() { v.balance-- }() // want `v is given to a goroutine that may outlive the Unlock of g`
	return nil
}

func beyondDo() error {
	var late *account
	err := locker.Do(ctx, l, "k", func(ctx context.Context, v *account) error {
		late = v   // want `v is kept beyond the function that Do calls`
		go work(v) // want `v is given to a goroutine that may outlive the function that Do calls`
		return work(v)
	})
	_ = late
	return err
}

// What follows is right, or what is done with the guard cannot be seen.

func inEachRound() error {
	for range 3 {
		g, err := l.Lock(ctx, "k")
		if err != nil {
			return err
		}
		v, err := g.Value()
		if err == nil {
			v.balance++
		}
		if err := g.Unlock(); err != nil {
			return err
		}
	}
	return nil
}

func copied(numbers locker.Locker[int]) (int, error) {
	g, err := numbers.Lock(ctx, "k")
	if err != nil {
		return 0, err
	}
	defer g.Unlock()
	n, err := g.Value()
	return n, err
}

func waitedFor() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	defer g.Unlock()
	v, err := g.Value()
	if err != nil {
		return err
	}
	var all sync.WaitGroup
	all.Add(1)
	go func() {
		defer all.Done()
		v.balance--
	}()
	all.Wait()
	return nil
}

func (s *server) keepsBoth() error {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return err
	}
	s.guard = g
	s.current, err = g.Value()
	return err
}

func inAVariable() (int, error) {
	g, err := l.Lock(ctx, "k")
	if err != nil {
		return 0, err
	}
	defer g.Unlock()
	var s server
	if s.current, err = g.Value(); err != nil {
		return 0, err
	}
	return s.current.balance, nil
}

func aResult() (balance int, err error) {
	err = locker.Do(ctx, l, "k", func(_ context.Context, v *account) error {
		balance = v.balance
		return nil
	})
	return balance, err
}
