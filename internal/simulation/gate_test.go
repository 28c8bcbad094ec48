package simulation

import (
	"cmp"
	"slices"
	"sync"
	"time"
)

// A gate lets through one at a time, a nanosecond apart at least: those who come at one moment in
// order of their names, and not in that in which goroutines happened to run.
type gate struct {
	mu     sync.Mutex
	moment *moment   // the latest
	last   time.Time // when the last one is let through
}

// A moment is those who come together.
type moment struct {
	at     time.Time
	names  []name // sorted once all are there
	turns  []time.Time
	passed []bool
}

// A name is of a request: on a client's gate of a node, on a node's of a client. Two of a verb
// about a key on one way differ in n.
type name struct {
	who, n    int
	verb, key string
}

func (a name) compare(b name) int {
	return cmp.Or(cmp.Compare(a.who, b.who), cmp.Compare(a.n, b.n), cmp.Compare(a.verb, b.verb),
		cmp.Compare(a.key, b.key))
}

// pass returns when it is n's turn.
func (g *gate) pass(n name) {
	g.mu.Lock()
	m := g.moment
	if now := time.Now(); m == nil || !m.at.Equal(now) {
		m = &moment{at: now}
		g.moment = m
	}
	m.names = append(m.names, n)
	g.mu.Unlock()
	time.Sleep(time.Nanosecond) // virtual time goes on when everybody has come
	if d := time.Until(g.turn(m, n)); d > 0 {
		time.Sleep(d)
	}
}

func (g *gate) turn(m *moment, n name) time.Time {
	g.mu.Lock()
	defer g.mu.Unlock()
	if m.turns == nil {
		slices.SortFunc(m.names, name.compare)
		m.passed = make([]bool, len(m.names))
		for range m.names {
			if g.last = g.last.Add(1); g.last.Before(m.at.Add(1)) {
				g.last = m.at.Add(1)
			}
			m.turns = append(m.turns, g.last)
		}
	}
	for i := range m.names {
		if m.names[i] == n && !m.passed[i] {
			m.passed[i] = true
			return m.turns[i]
		}
	}
	panic("simulation: who came has no turn")
}
