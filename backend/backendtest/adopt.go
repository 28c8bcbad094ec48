package backendtest

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

var adoptRules = []rule{
	{
		name: "adopt/handed-over", run: adoptHandedOver, needs: reentrant,
		why: "A hold that goes to another process is held all the time: by who has it, and by " +
			"nobody else (redislock#81).",
	},
	{
		name: "adopt/once", run: adoptOnce, needs: reentrant,
		why: "A message that carries a hold may come twice. Two that adopt it would both believe.",
	},
	{
		name: "adopt/too-late", run: adoptTooLate, needs: reentrant,
		why: "A ticket that was long on its way must not take the key from whoever has it by then.",
	},
}

// detach locks key on l for ttl, and detaches the hold.
func (e *env) detach(l *locker.Client[struct{}], key string, ttl time.Duration) locker.Ticket {
	e.Helper()
	g, err := l.Lock(e.ctx, key, locker.TTL(ttl), locker.Reentrant(backend.NewOwner()))
	if err != nil {
		e.Fatalf("Lock = %v", err)
	}
	t, err := g.Detach()
	if err != nil {
		e.Fatalf("Detach = %v", err)
	}
	return t
}

// covers: B4
func adoptHandedOver(e *env) {
	clients := []*locker.Client[struct{}]{
		e.locker(e.open(), locker.Config{}),
		e.locker(e.open(), locker.Config{}),
	}
	key := e.key("k")
	t := e.detach(clients[0], key, e.long)
	for i := range 4 {
		e.taken(clients[0], key)
		g, err := clients[1-i%2].Adopt(e.ctx, t)
		if err != nil {
			e.Fatalf("Adopt = %v", err)
		}
		e.later(func() { _ = g.Unlock() })
		if g.Hold().Token != t.Token || e.caps.Fencing != (t.Token != 0) {
			e.Errorf("adopted with token %d what has token %d", g.Hold().Token, t.Token)
		}
		if err := g.Check(e.ctx); err != nil {
			e.Errorf("Check = %v", err)
		}
		e.taken(clients[0], key)
		_, err = clients[i%2].Adopt(e.ctx, t)
		e.is("Adopt of a ticket that was used", err, locker.ErrLost)
		if i == 3 {
			e.unlock(g)
			break
		}
		if t, err = g.Detach(); err != nil {
			e.Fatalf("Detach = %v", err)
		}
	}
	e.unlock(e.lock(clients[0], key))
	_, err := clients[0].Adopt(e.ctx, t)
	e.is("Adopt after the Unlock", err, locker.ErrLost)
	e.unlock(e.lock(clients[1], key))
}

// covers: B4, W5
func adoptOnce(e *env) {
	clients := make([]*locker.Client[struct{}], 3)
	for i := range clients {
		clients[i] = e.locker(e.open(), locker.Config{})
	}
	for _, key := range []string{e.key("k1"), e.key("k2"), e.key("k3")} {
		t := e.detach(clients[0], key, e.long)
		var adopted atomic.Int64
		var winner atomic.Pointer[locker.Guard[struct{}]]
		parallel(9, func(i int) {
			g, err := clients[i%len(clients)].Adopt(e.ctx, t)
			switch {
			case err == nil:
				adopted.Add(1)
				winner.Store(g)
				e.later(func() { _ = g.Unlock() })
			case !errors.Is(err, locker.ErrLost):
				e.Errorf("Adopt = %v", err)
			}
		})
		if adopted.Load() > 1 {
			e.broken("%d adopted one ticket, want 1", adopted.Load())
			e.FailNow()
		}
		if adopted.Load() != 1 {
			e.Fatalf("%d adopted one ticket, want 1", adopted.Load())
		}
		if err := winner.Load().Check(e.ctx); err != nil {
			e.Errorf("Check of the one who adopted = %v", err)
		}
		e.taken(clients[1], key)
		e.unlock(winner.Load())
		e.unlock(e.lock(clients[2], key))
	}
}

// covers: B4, B11
func adoptTooLate(e *env) {
	a, b := e.locker(e.open(), locker.Config{}), e.locker(e.open(), locker.Config{})
	key := e.key("k")
	t := e.detach(a, key, e.short)
	other := e.lock(b, key) // when the lease has ended
	_, err := a.Adopt(e.ctx, t)
	e.is("Adopt of what another has", err, locker.ErrLost)
	if err := other.Check(e.ctx); err != nil {
		e.Errorf("Check of the other = %v", err)
	}
	e.unlock(other)
	_, err = a.Adopt(e.ctx, t)
	e.is("Adopt of a hold that has ended", err, locker.ErrLost)
	e.unlock(e.lock(b, key))
}
