package backendtest

import (
	"slices"
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
