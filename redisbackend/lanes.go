package redisbackend

import "sync"

// maxIdle is how many goroutines wait for the next request instead of ending.
const maxIdle = 64

// lanes are the goroutines that requests run in. There are as many at most as the client has connections (any number, for
// a client that is not ours), so each finds its connection free. A request that finds no lane free would have to wait for a
// connection anyway; those who wait together go together, in one pipeline, as soon as one is done. Nobody waits so that a
// pipeline gets longer.
type lanes struct {
	perform func([]*request)
	most    int // 0: any number

	mu      sync.Mutex
	closed  bool
	busy    int
	waiting []*request
	idle    []chan *request // last in, first out: the rest may sleep for long
	all     sync.WaitGroup
}

func newLanes(perform func([]*request)) *lanes { return &lanes{perform: perform} }

// enter takes a lane for the caller's own goroutine, if one is free.
func (l *lanes) enter() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.full() {
		return false
	}
	l.busy++
	return true
}

func (l *lanes) full() bool { return l.most > 0 && l.busy >= l.most }

// leave gives the lane of enter back, to those who wait for one.
func (l *lanes) leave() {
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
func (l *lanes) submit(r *request) (queued bool) {
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
	l.all.Go(func() { l.serve([]*request{r}) })
	return false
}

// serve performs what there is to do, and then waits for more unless many do.
func (l *lanes) serve(batch []*request) {
	var lane chan *request
	for {
		l.perform(batch)
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
			lane = make(chan *request, 1)
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
func (l *lanes) take(batch []*request) []*request {
	n := len(l.waiting)
	if n == 0 {
		return batch
	}
	n = (n + l.most - 1) / l.most
	if l.waiting[0].other != nil {
		n = 1
	}
	for i, r := range l.waiting[:n] {
		if r.other != nil && i > 0 { // has no place in a pipeline
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

// close ends the goroutines and waits for them. Nothing may be submitted any more.
func (l *lanes) close() {
	l.mu.Lock()
	l.closed = true
	for _, lane := range l.idle {
		close(lane)
	}
	l.idle = nil
	l.mu.Unlock()
	l.all.Wait()
}
