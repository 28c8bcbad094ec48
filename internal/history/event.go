package history

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// An Event is one belief: that Worker held Key from Start to End. Times are of one clock for all
// events that are checked together: [Now] between processes, any monotonic clock within one.
type Event struct {
	Process string        // whose recorder wrote it
	Worker  string        // within the process
	Key     string        // the lock
	Token   uint64        // fencing token; 0 if the lock has none
	Weight  int           // share of the capacity; 0 is 1
	Asked   time.Duration // when the worker began to wait, for [Inversions]; 0 unknown
	Start   time.Duration // inclusive
	End     time.Duration // exclusive; not after Start if the belief was over before it began
}

// String describes the event on one line.
func (e Event) String() string {
	s := fmt.Sprintf("%s/%s held %q from %v to %v with token %d", e.Process, e.Worker, e.Key,
		e.Start, e.End, e.Token)
	if e.Weight > 1 {
		s += fmt.Sprintf(" and weight %d", e.Weight)
	}
	return s
}

func (e Event) weight() int { return max(e.Weight, 1) }

// believed reports whether there was a moment of belief. A worker that was paused between the
// store's yes and its first look at the clock may begin after its own deadline.
func (e Event) believed() bool { return e.End > e.Start }

// At converts a time of this process, such as a guard's deadline, to the clock of [Now]. If the
// goroutine is paused between its two looks at the clock the result is early, so a belief is never
// taken for longer than it was.
func At(t time.Time) time.Duration {
	now := Now()
	return now + time.Until(t)
}

// A Log collects the events of one process in memory. The zero Log is empty and ready. It is safe
// for concurrent use.
type Log struct {
	mu     sync.Mutex
	events []Event
}

// Add appends an event that is over.
func (l *Log) Add(e Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

// Events returns a copy of what was added.
func (l *Log) Events() []Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}
