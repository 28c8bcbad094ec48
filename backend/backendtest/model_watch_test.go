package backendtest

import (
	"context"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

func (m *model) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	w := &modelWatch{claim: c, wake: make(chan backend.Wake, 1)}
	subscribe := func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.is("one watcher at a time") {
			clear(m.watches)
		}
		m.watches[w] = struct{}{}
	}
	switch {
	case m.is("watch is silent"):
	case m.is("watch subscribes after it returned"):
		time.AfterFunc(time.Millisecond, subscribe)
	default:
		subscribe()
	}
	if !m.is("watch goes on after ctx") {
		context.AfterFunc(ctx, func() { m.unwatch(w) })
	}
	return w.wake, nil
}

func (m *model) unwatch(w *modelWatch) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.is("the first to leave ends all watches") {
		clear(m.watches)
	}
	delete(m.watches, w)
}

func (m *model) signal(key string) {
	m.mu.Lock()
	var wakes []chan backend.Wake
	for w := range m.watches {
		if w.claim.Key == key || m.is("signals go to all keys") {
			wakes = append(wakes, w.wake)
		}
	}
	if m.is("a freed permit wakes nobody") && len(m.key(key).holds) > 0 {
		wakes = nil
	}
	m.mu.Unlock()
	for _, wake := range wakes {
		if m.is("signals block the release") {
			select {
			case wake <- backend.Wake{}:
			case <-time.After(time.Minute):
			}
			continue
		}
		select {
		case wake <- backend.Wake{}:
		default:
		}
	}
}

// deliver wakes c with its grant, which takes the place of an older signal.
func (m *model) deliver(c backend.Claim, g backend.Grant) {
	switch {
	case m.is("a wake-up has another token"):
		g.Token += 5
	case m.is("a wake-up has the lease of a TTL"):
		g.TTL = c.TTL
	}
	for w := range m.watches {
		if w.claim.ID() != c.ID() &&
			!(m.is("grants are announced to all") && w.claim.Key == c.Key) {
			continue
		}
		select {
		case <-w.wake:
		default:
		}
		w.wake <- backend.Wake{Granted: true, Grant: g}
	}
}

func (m *model) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := backend.ValidateKey(key); err != nil {
		return backend.State{}, err
	}
	if err := m.enter(ctx); err != nil {
		return backend.State{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	k := m.key(key)
	if !m.is("inspect shows what has run out") {
		m.expire(k)
	}
	state := backend.State{Token: k.token}
	for _, h := range k.holds {
		if m.is("inspect extends") {
			h.expires = m.ending(h.claim.TTL)
		}
		holder := backend.Holder{
			Owner: h.claim.Owner, ID: h.claim.ID(), Mode: h.claim.Mode, Token: h.grant.Token,
			TTL: time.Until(h.expires), Meta: h.claim.Meta,
			Weight: h.claim.Weight,
		}
		switch {
		case m.is("inspect shows no weights"):
			holder.Weight = 0
		case m.is("an owner's name stands for its holds"):
			holder.ID = h.claim.Owner
		case m.is("a hold is known by its token alone"):
			holder.ID = k.holds[len(k.holds)-1].claim.ID()
		case m.is("inspect shows no owner"):
			holder.Owner = ""
		}
		state.Holders = append(state.Holders, holder)
	}
	for _, p := range k.line {
		c := p.claim
		state.Waiters = append(state.Waiters,
			backend.Waiter{Owner: c.Owner, Mode: c.Mode, Meta: c.Meta, Weight: c.Weight})
	}
	return state, nil
}

// Observe looks each millisecond.
func (m *model) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	return func(yield func(backend.State, error) bool) {
		if !m.caps.Observe {
			m.Base.Observe(ctx, key)(yield)
			return
		}
		every, first := time.Millisecond, true
		if m.is("observation looks each minute") {
			every = time.Minute
		}
		if m.is("observation goes on after ctx") && ctx.Err() == nil {
			ctx = context.WithoutCancel(ctx)
		}
		look := func(ctx context.Context) (backend.State, error) {
			state, err := m.Inspect(ctx, key)
			switch {
			case m.is("observation goes on after Close") && m.closed.Load():
				err = nil
			case m.is("one of several is observed"):
				state.Holders = state.Holders[:min(1, len(state.Holders))]
			}
			return state, err
		}
		backend.ObserveBy(ctx, every, (<-chan struct{})(nil), look,
			func(state backend.State, err error) bool {
				if m.is("observation begins with a change") && first && err == nil {
					first = len(state.Holders) == 0
					if first {
						return true
					}
				}
				return yield(state, err)
			})
	}
}
