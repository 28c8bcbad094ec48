package locker

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// heartbeatBackstop is after how many fallback intervals a waiter whose heartbeats are shared asks
// by itself all the same.
const heartbeatBackstop = 30

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
	gone  chan struct{} // one slot: says that the claim is not in the queue any more, so that it is to ask
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
	p := &place{c, make(chan struct{}, 1)}
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

// keep sends the heartbeats of a key. What is not answered is not repeated before its time: a store
// that is busy gets no more to do.
func (b *heartbeats) keep(key string) {
	c := b.core
	defer c.done()
	for {
		waiting.Pause(c.closing, waiting.Jitter(c.cfg.Wait.Fallback))
		b.mu.Lock()
		all := make([]*place, 0, len(b.keys[key]))
		for _, p := range b.keys[key] {
			all = append(all, p)
		}
		if len(all) == 0 || c.closing.Err() != nil {
			delete(b.keys, key)
			b.mu.Unlock()
			return
		}
		b.mu.Unlock()
		for len(all) > 0 {
			n := min(len(all), backend.MaxHeartbeat)
			b.send(all[:n])
			all = all[n:]
		}
	}
}

// send makes one request, and tells those whose place is gone.
func (b *heartbeats) send(places []*place) {
	claims := make([]backend.Claim, len(places))
	for i, p := range places {
		claims[i] = *p.claim
	}
	ctx, cancel := context.WithTimeout(b.core.closing, b.core.releaseTimeout(claims[0].TTL))
	defer cancel()
	still, err := b.core.b.Heartbeat(ctx, claims)
	if errors.Is(err, errors.ErrUnsupported) {
		b.none.Store(true)
	}
	if err == nil {
		b.core.heard()
	} else if !b.none.Load() {
		return // the places last for three intervals
	}
	for i, p := range places {
		if err != nil || !still[i] {
			select {
			case p.gone <- struct{}{}:
			default:
			}
		}
	}
}
