package redis

import "sync"

// A Gate counts the requests under way, also those whose caller has left, so that closing can wait for them.
type Gate struct {
	mu     sync.RWMutex // guards closed, and calls.Add from zero against calls.Wait
	closed bool
	calls  sync.WaitGroup
}

// Enter counts a request in, unless the gate is shut.
func (g *Gate) Enter() bool {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return false
	}
	g.calls.Add(1)
	return true
}

// Again counts in what a request that is counted leaves behind.
func (g *Gate) Again() { g.calls.Add(1) }

// Leave counts a request out.
func (g *Gate) Leave() { g.calls.Done() }

// Shut lets nobody in any more. It reports whether the gate was open.
func (g *Gate) Shut() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	open := !g.closed
	g.closed = true
	return open
}

// Wait returns when all have left.
func (g *Gate) Wait() { g.calls.Wait() }
