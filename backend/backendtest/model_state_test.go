package backendtest

import (
	"context"
	"iter"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// loaded is acquire.
func (m *model) loaded(c backend.Claim) (backend.Grant, error) {
	if !m.is("the state is read before the grant") {
		return m.acquire(c)
	}
	m.mu.Lock()
	early := slices.Clone(m.key(c.Key).state)
	m.mu.Unlock()
	time.Sleep(time.Millisecond)
	g, err := m.acquire(c)
	if c.Load && err == nil {
		g.State = early
	}
	return g, err
}

// load adds the key's state to a grant, if c asks for it.
func (m *model) load(k *modelKey, c backend.Claim, g *backend.Grant) {
	if !c.Load || m.is("a re-entry has no state") && c.Reentrant && len(k.holds) > 1 {
		return
	}
	g.State = slices.Clone(k.state)
	switch {
	case m.is("a grant lends its state"):
		g.State = k.state
	case m.is("one state for all keys"):
		g.State = slices.Clone(m.state)
	}
}

// save stores the state of a claim that holds.
func (m *model) save(k *modelKey, c backend.Claim) {
	if c.Save == nil {
		return
	}
	k.state = slices.Clone(c.Save)
	m.state = k.state
	switch {
	case m.is("an empty state is none") && len(c.Save) == 0:
		k.state = nil
	case m.is("a state is the caller's memory"):
		k.state = c.Save
	}
}

// saveLost is a defect: it stores the state of a claim that does not hold.
func (m *model) saveLost(k *modelKey, c backend.Claim) {
	if m.is("anybody may save") || m.is("the last to hold may save") && k.last == c.ID() ||
		m.is("who waits may save") && k.place(c.ID()) >= 0 {
		m.save(k, c)
	}
}

// heard is what a wake-up says of a grant.
func (m *model) heard(g backend.Grant) backend.Grant {
	if m.is("a wake-up has no state") {
		g.State = nil
	}
	return g
}

// Saved returns the state of key.
func (m *model) Saved(ctx context.Context, key string) ([]byte, error) {
	if !m.caps.State {
		return m.Base.Saved(ctx, key)
	}
	if err := backend.ValidateKey(key); err != nil {
		return nil, err
	}
	if err := m.enter(ctx); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.key(key).holds) > 0 && m.is("the state of a held key cannot be seen") {
		return nil, nil
	}
	return slices.Clone(m.key(key).state), nil
}

// List tells of what is held or waited for.
func (m *model) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	if !m.caps.Inspect {
		return m.Base.List(ctx, prefix)
	}
	m.mu.Lock()
	names := slices.Collect(maps.Keys(m.keys))
	m.mu.Unlock()
	return func(yield func(backend.Listed, error) bool) {
		for _, name := range names {
			matches := strings.HasPrefix(name, prefix)
			if m.is("a prefix is a pattern") {
				matches, _ = path.Match(prefix+"*", name)
			}
			state, err := m.Inspect(ctx, name)
			listed := matches && err == nil && len(state.Holders)+len(state.Waiters) > 0
			if (listed || matches && m.is("free locks are listed")) &&
				!yield(backend.Listed{Key: name, State: state}, nil) {
				return
			}
		}
	}
}

// ForceRelease releases the hold that Inspect shows with the token.
func (m *model) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	if !m.caps.Inspect {
		return m.Base.ForceRelease(ctx, key, token)
	}
	if m.is("any hold is released by force") {
		state, _ := m.Inspect(ctx, key)
		for _, h := range state.Holders {
			token = h.Token
		}
	}
	return backend.ForceReleaseBy(ctx, m, key, token)
}
