package tracing

import (
	"sync"
	"time"
)

// Most of what a span costs comes when it ends: it is copied, and the goroutine that sends it is woken, by a system call. So an
// operation's end is only noted on the way of the lock, and the SDK is told soon after, of many at a time, with the times that
// were noted.
const (
	putOff = 20 * time.Millisecond // for how long, at most

	mostNotes = 1024 // how many; whoever adds one beyond tells a part of them himself, so that none is lost
	atATime   = 64   // that part
)

// A note is something that the SDK is to be told.
type note interface{ tell() }

// notes are what was noted, in order. There is no goroutine while there is none.
type notes struct {
	mu    sync.Mutex
	noted []note
	added uint64 // how many there ever were
	timer *time.Timer

	telling sync.Mutex // guards what follows
	batch   []note     // was noted; told but for the end
	next    int        // where that begins
	told    uint64
}

// add notes n.
func (ns *notes) add(n note) {
	ns.mu.Lock()
	ns.noted = append(ns.noted, n)
	ns.added++
	full := len(ns.noted) > mostNotes
	if ns.timer == nil {
		ns.timer = time.AfterFunc(putOff, ns.due)
	}
	ns.mu.Unlock()
	if full {
		ns.some()
	}
}

func (ns *notes) due() {
	ns.mu.Lock()
	ns.timer = nil
	ns.mu.Unlock()
	ns.flush()
}

// flush tells all that was noted before.
func (ns *notes) flush() {
	ns.mu.Lock()
	all := ns.added
	ns.mu.Unlock()
	for ns.some() < all {
	}
}

// some tells a few, and returns how many were ever told.
func (ns *notes) some() uint64 {
	ns.telling.Lock()
	defer ns.telling.Unlock()
	if ns.next == len(ns.batch) {
		ns.mu.Lock()
		ns.batch, ns.noted, ns.next = ns.noted, ns.batch[:0], 0
		ns.mu.Unlock()
	}
	for end := min(ns.next+atATime, len(ns.batch)); ns.next < end; {
		n := ns.batch[ns.next]
		ns.batch[ns.next] = nil
		ns.next++
		ns.told++ // before it panics, if it does
		n.tell()
	}
	return ns.told
}
