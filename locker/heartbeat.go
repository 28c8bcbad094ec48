package locker

import (
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// unasked is how long a waiter whose heartbeats are shared sleeps without a word: it is told when
// its place is gone, or when the store does not answer.
const unasked = time.Hour

// Many waiters of one key send their heartbeats less often, so that a client sends no more than two
// requests per interval and key: perInterval of them each fallback interval, up to longestInterval
// intervals apart. Their places last as much longer; if the process dies, so much later they lapse.
const (
	perInterval     = 2 * backend.MaxHeartbeat
	longestInterval = 20
)

// heartbeats keep the places that claims of this process have in the store's queues, where many
// wait for one key with a claim each (shared, counted and re-entrant ones): one request per key and
// interval instead of one per waiter. A goroutine per key is there while somebody waits for it.
type heartbeats struct {
	core *core
	none atomic.Bool // the backend cannot

	mu   sync.Mutex
	keys map[string]map[string]*place // by key and claim ID
}

// A place is one claim's in the queue of its key.
type place struct {
	claim *backend.Claim
	due   time.Time     // when its next heartbeat is
	lasts time.Time     // until when the place lasts at least
	gone  chan struct{} // one slot: says that the claim is to ask, as it may not be in the queue any more
}

// shareHeartbeat reports whether the heartbeats of the claim's place are shared with others of this
// process, and has them be so if they can be. A cohort has one claim per key, which repeats its
// attempt.
func (w *wait) shareHeartbeat() bool {
	b := &w.core.beats
	if w.cohort != nil || !w.claim.Queue || b.none.Load() {
		return false
	}
	if w.beat == nil {
		w.beat = b.enter(&w.claim)
	}
	return true
}

// enter has the place of c kept until leave.
func (b *heartbeats) enter(c *backend.Claim) <-chan struct{} {
	now := time.Now()
	p := &place{
		claim: c, gone: make(chan struct{}, 1),
		due: now.Add(waiting.Jitter(b.core.cfg.Wait.Fallback)), lasts: now.Add(c.WaiterTTL),
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	all := b.keys[c.Key]
	if all == nil {
		all = map[string]*place{}
		if b.keys == nil {
			b.keys = map[string]map[string]*place{}
		}
		b.keys[c.Key] = all
		b.core.add()
		go b.keep(c.Key)
	}
	all[c.ID()] = p
	return p.gone
}

func (b *heartbeats) leave(c *backend.Claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.keys[c.Key], c.ID())
}

// keep sends the heartbeats of a key. One that is not answered is repeated after an interval, and
// so are those behind it: a store that is busy gets no more to do. When there was no answer for
// StoreTimeout, everybody asks, and finds out.
func (b *heartbeats) keep(key string) {
	c := b.core
	defer c.done()
	var silentSince time.Time
	for {
		waiting.Pause(c.closing, waiting.Jitter(c.cfg.Wait.Fallback))
		now := time.Now()
		all, due := b.places(key, now)
		if all == nil {
			return
		}
		interval := c.cfg.Wait.Fallback * time.Duration(min((len(all)+perInterval-1)/perInterval, longestInterval))
		err := error(nil)
		for requests := 0; len(due) > 0 && err == nil; requests++ {
			if requests >= perInterval/backend.MaxHeartbeat && due[0].lasts.Sub(now) > 2*c.cfg.Wait.Fallback {
				break // the rest has time
			}
			n := min(len(due), backend.MaxHeartbeat)
			err = b.send(due[:n], interval)
			due = due[n:]
		}
		switch {
		case err == nil:
			silentSince = time.Time{}
		case silentSince.IsZero():
			silentSince = now
		case now.Sub(silentSince) >= c.storeTimeout(all[0].claim.TTL):
			silentSince = time.Time{}
			tell(all)
		}
	}
}

// places returns those of a key, and which of them are due, the most urgent first. With the last of
// them the key is forgotten.
func (b *heartbeats) places(key string, now time.Time) (all, due []*place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.keys[key] {
		all = append(all, p)
		if !now.Before(p.due) {
			due = append(due, p)
		}
	}
	slices.SortFunc(due, func(p, q *place) int { return p.lasts.Compare(q.lasts) })
	if b.core.closing.Err() != nil {
		all = nil
	}
	if all == nil {
		delete(b.keys, key)
	}
	return all, due
}

// send makes one request, after which the places last for three intervals, and tells those whose
// place is gone.
func (b *heartbeats) send(places []*place, interval time.Duration) error {
	sent := time.Now()
	claims := make([]backend.Claim, len(places))
	for i, p := range places {
		claims[i] = *p.claim
		claims[i].WaiterTTL = min(max(3*interval, p.claim.WaiterTTL), backend.MaxTTL)
	}
	still, err := b.core.b.Heartbeat(b.core.closing, claims) // which the backend bounds
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		b.none.Store(true)
		tell(places)
		return nil
	case err != nil:
		return err
	}
	b.core.heard()
	for i, p := range places {
		p.due, p.lasts = sent.Add(waiting.Jitter(interval)), sent.Add(3*interval)
		if !still[i] {
			tell(places[i : i+1])
		}
	}
	return nil
}

// tell has waiters ask.
func tell(places []*place) {
	for _, p := range places {
		select {
		case p.gone <- struct{}{}:
		default:
		}
	}
}
