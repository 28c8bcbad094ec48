package waiting

import (
	"context"
	"sync"
)

// A Line lets the goroutines of one process that want the same thing stand in a line of their own, first come first served,
// so that one of them at most asks the store, and so that one can hand on to the next what it has without asking anybody.
// K names the thing, B (the baton) is what is handed on. It knows nothing of what either means.
//
// Who comes to a K where nobody is asks for itself and tells the Line how that went (Took, GaveUp). Who comes later takes a
// Place; the first of them sends an agent, a goroutine that asks for whoever is in front when the answer comes (Grant, Fail,
// GaveUp). Who has the baton hands it on (Pass) or drops it (Left).
//
// The zero Line is ready for use. All methods may be called concurrently; none blocks.
type Line[K comparable, B any] struct {
	mu     sync.Mutex
	crews  map[K]*crew[B]
	free   *crew[B] // one that nobody needs any more
	closed bool
	last   B // what everybody gets from then on
}

// crew is those of this process who are concerned with one K. It is there while asking, held > 0 or somebody waits.
type crew[B any] struct {
	first, last *Place[B]
	asking      bool               // somebody asks the store: one at a time
	stop        context.CancelFunc // ends the agent that asks; nil if it is no agent
	gone        <-chan struct{}    // closed when it has ended
	self        bool               // who asks does so for itself, and has no place
	held        int                // batons out
	waits       int                // places taken
	joined      int                // places ever taken
	spare       *Place[B]          // one that nobody needs any more
	note        any
}

// A Place is one waiter's. It is given one baton at most, on Ready.
type Place[B any] struct {
	ready      chan B // one slot, so giving never blocks
	prev, next *Place[B]
	number     int
	waits      bool
}

// Ready delivers the one thing that the place is given.
func (p *Place[B]) Ready() <-chan B { return p.ready }

// A Role is what [Line.Join]'s caller is to do.
type Role int

// The roles.
const (
	Ask  Role = iota // ask the store, then call Took or GaveUp; there is no Place
	Wait             // wait for Place.Ready, or Leave
	Send             // the same, but first start an agent, which calls Sent
)

// Join takes the last place of k's line, if anybody is there.
func (l *Line[K, B]) Join(k K) (*Place[B], Role) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.crews[k]
	if c == nil {
		if l.crews == nil {
			l.crews = map[K]*crew[B]{}
		}
		if c = l.free; c == nil {
			c = new(crew[B])
		}
		l.free = nil
		c.asking, c.self = true, true
		l.crews[k] = c
		return nil, Ask
	}
	p := c.spare
	if c.spare = nil; p == nil {
		p = &Place[B]{ready: make(chan B, 1)}
	}
	if l.closed {
		p.ready <- l.last
		return p, Wait
	}
	c.waits++
	c.joined++
	p.prev, p.number, p.waits = c.last, c.joined, true
	if c.last == nil {
		c.first = p
	} else {
		c.last.next = p
	}
	c.last = p
	if c.asking {
		return p, Wait
	}
	c.asking = true
	return p, Send
}

// Sent tells how to stop the agent of k, which happens when nobody waits any more. gone is closed when it has stopped.
func (l *Line[K, B]) Sent(k K, stop context.CancelFunc, gone <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.crews[k]
	c.stop, c.gone = stop, gone
	if c.first == nil {
		stop()
	}
}

// Took says that the one who was to Ask has the baton. It reports whether an agent is to be sent, since others wait.
func (l *Line[K, B]) Took(k K) (send bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.crews[k]
	c.held++
	return l.settle(k, c)
}

// GaveUp says that whoever asked does so no more, and got nothing. It reports whether an agent is to be sent (or, to an
// agent, whether to ask again), since others wait.
func (l *Line[K, B]) GaveUp(k K) (send bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.settle(k, l.crews[k])
}

// Grant gives the baton that an agent got to the first in line. If nobody is left it is not given, and the agent gives it
// back to the store. again tells the agent to ask once more, since others wait.
func (l *Line[K, B]) Grant(k K, b B) (given, again bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.crews[k]
	if given = c.give(b); given {
		c.held++
	}
	return given, l.settle(k, c)
}

// Fail gives b, which is no baton but says why there is none, to all who wait, and ends the agent's task.
func (l *Line[K, B]) Fail(k K, b B) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.crews[k]
	for c.give(b) {
	}
	l.settle(k, c)
}

// Pass hands the baton on to the first in line and reports whether there is one. used is the place on which the caller got
// it, and which is somebody else's from then on; nil for none.
func (l *Line[K, B]) Pass(k K, b B, used *Place[B]) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.crews[k]
	if !c.give(b) {
		return false
	}
	c.spare = used
	return true
}

// Close gives b, which is no baton, to all who wait, and at once to whoever comes later. It stops all agents.
func (l *Line[K, B]) Close(b B) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed, l.last = true, b
	for k, c := range l.crews {
		note := c.note
		for c.give(b) {
		}
		c.note = note
		if c.stop != nil {
			c.stop()
		}
		l.tidy(k, c)
	}
}

// Agent returns what is closed when the agent of k has stopped; nil if there is none.
func (l *Line[K, B]) Agent(k K) (gone <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.crews[k]; c != nil {
		return c.gone
	}
	return nil
}

// Left says that a baton is gone.
func (l *Line[K, B]) Left(k K) {
	l.mu.Lock()
	defer l.mu.Unlock()
	c := l.crews[k]
	c.held--
	l.tidy(k, c)
}

// Leave gives up a place. If p was given something at the same moment, that is returned, and the caller has to deal with it:
// one of the two happens, never both. The last to leave stops the agent; gone then tells when it has, and is nil otherwise.
func (l *Line[K, B]) Leave(k K, p *Place[B]) (b B, given bool, gone <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !p.waits {
		return <-p.ready, true, nil
	}
	c := l.crews[k]
	c.unlink(p)
	if c.first == nil && c.stop != nil {
		c.stop()
		gone = c.gone
	}
	return b, false, gone
}

// Waiting returns how many of k's line wait, whoever asks for itself included. near says that who comes now is not to Ask.
func (l *Line[K, B]) Waiting(k K) (n int, near bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.crews[k]; c != nil {
		return c.waits + c.asker(), true
	}
	return 0, false
}

// Ahead returns how many wait before p, whoever asks for itself included. Places that were given up are counted until the line has moved past them.
func (l *Line[K, B]) Ahead(k K, p *Place[B]) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.crews[k]; p.waits {
		return min(p.number-c.first.number, c.waits-1) + c.asker()
	}
	return 0
}

func (c *crew[B]) asker() int {
	if c.self {
		return 1
	}
	return 0
}

// Note leaves word for those who wait for k, and Noted reads it. It is forgotten when a baton is given.
func (l *Line[K, B]) Note(k K, note any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.crews[k]; c != nil {
		c.note = note
	}
}

// Noted returns the last Note, or nil.
func (l *Line[K, B]) Noted(k K) any {
	l.mu.Lock()
	defer l.mu.Unlock()
	if c := l.crews[k]; c != nil {
		return c.note
	}
	return nil
}

// settle ends the present asking, and begins the next if somebody waits.
func (l *Line[K, B]) settle(k K, c *crew[B]) (send bool) {
	c.stop, c.gone, c.asking, c.self = nil, nil, c.first != nil, false
	l.tidy(k, c)
	return c.asking
}

func (l *Line[K, B]) tidy(k K, c *crew[B]) {
	if !c.asking && c.held == 0 && c.first == nil {
		delete(l.crews, k)
		*c = crew[B]{}
		l.free = c
	}
}

// give hands b to the first in line.
func (c *crew[B]) give(b B) bool {
	p := c.first
	if p == nil {
		return false
	}
	c.unlink(p)
	c.note = nil
	p.ready <- b
	return true
}

func (c *crew[B]) unlink(p *Place[B]) {
	if p.prev == nil {
		c.first = p.next
	} else {
		p.prev.next = p.next
	}
	if p.next == nil {
		c.last = p.prev
	} else {
		p.next.prev = p.prev
	}
	p.prev, p.next, p.waits = nil, nil, false
	c.waits--
}
