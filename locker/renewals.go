package locker

import (
	"container/heap"
	"sync"
)

// maxRenewals is how many renewals of one client are in flight at once. More would only wait inside
// the client library or the server, in the order in which they came.
const maxRenewals = 256

// renewals has the leases of a client renewed in the order of their deadlines when more are due
// than may be in flight: if the store cannot keep up with all of them, it is used for those that it
// can save, and no request is spent on a lease that is over.
type renewals struct {
	mu       sync.Mutex
	inFlight int
	due      byDeadline
}

// run renews l in the caller's goroutine, and then others that have become due meanwhile. If enough
// are in flight it leaves l to those who renew.
func (r *renewals) run(l *lease) {
	r.mu.Lock()
	if r.inFlight >= maxRenewals {
		heap.Push(&r.due, dueLease{l, l.deadline()})
		r.mu.Unlock()
		return
	}
	r.inFlight++
	r.mu.Unlock()
	for l != nil {
		l.renewDue()
		r.mu.Lock()
		if len(r.due) == 0 {
			r.inFlight--
			l = nil
		} else {
			l = heap.Pop(&r.due).(dueLease).lease //nolint:errcheck,forcetypeassert // nothing else is pushed
		}
		r.mu.Unlock()
	}
}

// A dueLease is a lease that is to be renewed, and until when.
type dueLease struct {
	lease *lease
	until instant
}

// byDeadline is a heap.
type byDeadline []dueLease

func (b byDeadline) Len() int           { return len(b) }
func (b byDeadline) Less(i, j int) bool { return b[i].until < b[j].until }
func (b byDeadline) Swap(i, j int)      { b[i], b[j] = b[j], b[i] }

// Push implements [heap.Interface].
func (b *byDeadline) Push(x any) { *b = append(*b, x.(dueLease)) } //nolint:errcheck,forcetypeassert // see run

// Pop implements [heap.Interface].
func (b *byDeadline) Pop() any {
	old := *b
	last := old[len(old)-1]
	old[len(old)-1] = dueLease{}
	*b = old[:len(old)-1]
	return last
}
