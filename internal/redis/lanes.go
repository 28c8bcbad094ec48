package redis

import (
	"context"
	"sync"
	"time"
)

// maxIdle is how many goroutines wait for the next request instead of ending.
const maxIdle = 64

// Lanes are the goroutines that requests run in when their callers cannot: as many at most as requests should be on the way
// at a time (any number, for a client that is not ours). A request that finds no lane free would have to wait anyway; those
// who wait together go together, in one pipeline, as soon as one is done. Nobody waits so that a pipeline gets longer.
type Lanes struct {
	most    int // 0: any number
	perform func([]*Request)
	gate    *Gate

	mu      sync.Mutex
	closed  bool
	busy    int
	waiting []*Request
	idle    []chan *Request // last in, first out: the rest may sleep for long
	all     sync.WaitGroup
	spare   sync.Pool // of requests that were answered, for their channels and timers, which must not leave a synctest bubble
}

// NewLanes returns at most so many lanes, or any number for 0. What they leave behind is counted in gate. Afterwards perform
// has set Reply or Err of all it was given.
func NewLanes(most int, gate *Gate, perform func([]*Request)) *Lanes {
	return &Lanes{most: most, gate: gate, perform: perform}
}

// New returns a request that is to be asked on these lanes, once.
func (l *Lanes) New() *Request {
	if r, ok := l.spare.Get().(*Request); ok {
		return r
	}
	return &Request{done: make(chan struct{}, 1)}
}

// Ask has r performed in a lane. A caller whose ctx is done leaves it behind, and so does one whose time is over if ours says
// that ctx does not know of it. heeded says that nobody needs to look at that time while r is performed.
func (l *Lanes) Ask(ctx context.Context, r *Request, ours, heeded bool) (any, error) {
	l.gate.Again()
	queued := l.submit(r)
	var late <-chan time.Time
	if ours && (queued || !heeded) {
		if r.timer == nil {
			r.timer = time.NewTimer(time.Until(r.Ctx.Limit))
		} else {
			r.timer.Reset(time.Until(r.Ctx.Limit))
		}
		late = r.timer.C
	}
	select {
	case <-r.done:
		return l.Answer(r)
	case <-ctx.Done():
	case <-late:
	}
	select {
	case <-r.done: // both at once: the answer counts
		return l.Answer(r)
	default:
	}
	if r.timer != nil {
		r.timer.Stop()
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, ErrNoAnswer
}

// Start has r performed in a lane, and then is called there with the answer.
func (l *Lanes) Start(r *Request, then func(reply any, err error)) {
	r.then = then
	l.gate.Again()
	l.submit(r)
}

// Answer returns the answer of r, which is nobody's afterwards.
func (l *Lanes) Answer(r *Request) (reply any, err error) {
	if r.timer != nil {
		r.timer.Stop()
	}
	reply, err = r.Reply, r.Err
	*r = Request{done: r.done, timer: r.timer}
	l.spare.Put(r)
	return reply, err
}

// Enter takes a lane for the caller's own goroutine, if one is free.
func (l *Lanes) Enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full() {
		return false
	}
	l.busy++
	return true
}

func (l *Lanes) full() bool { return l.most > 0 && l.busy >= l.most }

// Leave gives the lane of Enter back, to those who wait for one.
func (l *Lanes) Leave() {
	l.mu.Lock()
	batch := l.take(nil)
	if len(batch) == 0 {
		l.busy--
	}
	l.mu.Unlock()
	if len(batch) > 0 {
		l.all.Go(func() { l.serve(batch) })
	}
}

// submit has r performed, now or, if queued, as soon as a lane is free.
func (l *Lanes) submit(r *Request) (queued bool) {
	l.mu.Lock()
	if l.full() {
		l.waiting = append(l.waiting, r)
		l.mu.Unlock()
		return true
	}
	l.busy++
	if last := len(l.idle) - 1; last >= 0 {
		lane := l.idle[last]
		l.idle = l.idle[:last]
		l.mu.Unlock()
		lane <- r
		return false
	}
	l.mu.Unlock()
	l.all.Go(func() { l.serve([]*Request{r}) })
	return false
}

// serve performs what there is to do, and then waits for more unless many do.
func (l *Lanes) serve(batch []*Request) {
	var lane chan *Request
	for {
		l.perform(batch)
		for _, r := range batch {
			if r.then != nil {
				then := r.then
				then(l.Answer(r))
			} else {
				r.done <- struct{}{} // r is its caller's from here on
			}
			l.gate.Leave()
		}
		l.mu.Lock()
		if batch = l.take(batch[:0]); len(batch) > 0 {
			l.mu.Unlock()
			continue
		}
		l.busy--
		if l.closed || len(l.idle) >= maxIdle {
			l.mu.Unlock()
			return
		}
		if lane == nil {
			lane = make(chan *Request, 1)
		}
		l.idle = append(l.idle, lane)
		l.mu.Unlock()
		r, ok := <-lane
		if !ok {
			return
		}
		batch = append(batch, r)
	}
}

// take moves a share of those who wait to batch: all of them, if each lane takes as much. The caller has the lock.
func (l *Lanes) take(batch []*Request) []*Request {
	n := len(l.waiting)
	if n == 0 {
		return batch
	}
	n = (n + l.most - 1) / l.most
	if l.waiting[0].Other != nil {
		n = 1
	}
	for i, r := range l.waiting[:n] {
		if r.Other != nil && i > 0 { // has no place in a pipeline
			n = i
			break
		}
	}
	batch = append(batch, l.waiting[:n]...)
	rest := copy(l.waiting, l.waiting[n:])
	clear(l.waiting[rest:])
	l.waiting = l.waiting[:rest]
	return batch
}

// Count returns how many lanes perform something, and how many requests wait for one.
func (l *Lanes) Count() (busy, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.busy, len(l.waiting)
}

// Close ends the goroutines and waits for them. Nothing may be submitted any more.
func (l *Lanes) Close() {
	l.mu.Lock()
	l.closed = true
	for _, lane := range l.idle {
		close(lane)
	}
	l.idle = nil
	l.mu.Unlock()
	l.all.Wait()
}
