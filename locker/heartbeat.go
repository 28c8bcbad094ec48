package locker

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A client that waits for much sends its heartbeats less often: the places of one key that are more
// than perKey, and all places that are more than perClient, up to longestInterval fallback
// intervals apart. So ten thousand waiters of a key cost two requests a second, and all that a
// client waits for at most a tenth of a Redis server's time. The places last as much longer; if the
// process dies, so much later they lapse.
const (
	perKey          = backend.MaxHeartbeat
	perClient       = 40 * backend.MaxHeartbeat
	longestInterval = 30
)

// heartbeats keep the places that claims of this client have in the store's queues: of all keys and
// modes together, in requests of up to [backend.MaxHeartbeat] places. It is a heap and a timer.
//
// No place waits for another's request: each request is sent when its first place is due, and takes
// along those that are due soon, the most urgent first. A place is in one request at most, so a
// store that is busy gets no more to do.
type heartbeats struct {
	core *core
	none atomic.Bool // the backend cannot

	mu    sync.Mutex
	due   minHeap[*place] // the places that are in no request
	keys  map[string]int  // how many places there are of each key
	count int             // and of all
	timer *time.Timer     // for the first that is due; nil before the first
	at    time.Time       // when it fires; zero: it does not
}

// A place is where a claim waits in the queue of its key, while its wait sleeps. heartbeats.mu
// guards it until it is removed.
type place struct {
	wait     *wait
	at       time.Time     // when its next heartbeat is
	interval time.Duration // between heartbeats
	index    int           // in due; notDue
	removed  bool

	sent instant            // before the last attempt or heartbeat that was answered
	held *backend.HeldError // that answer
	// when the first heartbeat was sent of those in a row that are not; zero: it was
	asked time.Time

	ask chan struct{} // one slot: tells the wait to ask, as it may not be in the queue any more
}

const notDue = removedFromHeap // it is in a request, was told to ask, or is removed

// add has the place of w kept until remove: from the time of the answer that told of the place on,
// as it lasts from then.
func (b *heartbeats) add(w *wait, held *backend.HeldError) *place {
	p := &place{wait: w, ask: make(chan struct{}, 1), sent: w.queued, held: held}
	p.at = b.next(p.sent, waiting.Jitter(b.core.cfg.Wait.Fallback), held)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.keys == nil {
		b.keys = map[string]int{}
	}
	b.keys[w.claim.Key]++
	b.count++
	heap.Push(&b.due, p)
	b.set()
	return p
}

// next is when a place is kept next: after the interval, or when the lease ends that blocks, as
// then the heartbeat lets in whoever is next.
func (b *heartbeats) next(sent instant, interval time.Duration, held *backend.HeldError) time.Time {
	if held.RetryAfter > 0 {
		interval = min(interval, held.RetryAfter+waiting.Jitter(2*time.Millisecond))
	}
	return b.core.toTime(sent + instant(interval))
}

// remove ends what add began. What a request under way brings is nobody's.
func (b *heartbeats) remove(p *place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p.removed = true
	if p.index != notDue {
		heap.Remove(&b.due, p.index)
	}
	b.count-- // safeguard: gone-is-uncounted
	key := p.wait.claim.Key
	if b.keys[key]--; b.keys[key] == 0 {
		delete(b.keys, key)
	}
}

// interval is how often a place of key is kept: the more there are, the less often each, so that
// the store has the same to do. The caller has mu.
func (b *heartbeats) interval(key string) time.Duration {
	stretch := max((b.keys[key]+perKey-1)/perKey, (b.count+perClient-1)/perClient)
	return b.core.cfg.Wait.Fallback * time.Duration(min(stretch, longestInterval))
}

// set has the timer fire when the first place is due. The caller has mu.
func (b *heartbeats) set() {
	// safeguard: nearer-heartbeat
	if len(b.due) == 0 || !b.at.IsZero() && !b.due[0].at.Before(b.at) {
		return
	}
	b.at = b.due[0].at
	if in := max(time.Until(b.at), 0); b.timer == nil {
		b.timer = time.AfterFunc(in, b.tick)
	} else {
		b.timer.Reset(in)
	}
}

// tick sends the requests that are due. A request takes along what is due within half an interval,
// so that places which came one by one are kept together after a while.
func (b *heartbeats) tick() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.at = time.Time{}
	if b.core.closing.Err() != nil {
		return
	}
	now := time.Now()
	soon := now.Add(b.core.cfg.Wait.Fallback / 2)
	for len(b.due) > 0 && !b.due[0].at.After(now) {
		var places []*place
		for len(b.due) > 0 && len(places) < backend.MaxHeartbeat && !b.due[0].at.After(soon) {
			p := b.due.pop()
			p.interval = b.interval(p.wait.claim.Key)
			places = append(places, p)
		}
		b.core.add()
		go b.send(places)
	}
	b.set() // safeguard: tick-sets
}

// send makes one request. One that takes longer than two intervals is left to itself, as there is
// time for another within the third. It is cancelled, and has no deadline of its own: a client
// library closes the connection at the deadline of a slow request, under all others.
//
// Safety: what is written is how long the places of these claims last, which the store refuses for
// a claim that is not in the queue: so a heartbeat puts nobody into it. If the lease that blocks
// has ended, the first of the queue is let in by it, as by an attempt, and told by a wake-up. The
// answer is taken for the claim as if it had asked: with the time before the request, read once for
// all, and the key's last token then, which is what a hand-over is judged by. The claims are copied
// before the request, and a place that is removed meanwhile takes no answer
// (TestHandOverAfterAHeartbeat, TestHeartbeatWithoutAnAnswer, TestHeartbeatOfAWaitThatEnds).
func (b *heartbeats) send(places []*place) {
	c := b.core
	defer c.done()
	claims, limit := make([]backend.Claim, len(places)), places[0].interval
	for i, p := range places {
		claims[i] = p.wait.claim
		claims[i].WaiterTTL = min(max(3*p.interval, claims[i].WaiterTTL), backend.MaxTTL)
		limit = min(limit, p.interval)
	}
	sent := c.now() // safeguard: heartbeat-deadline
	b.noteSent(places)
	ctx, cancel := context.WithCancel(c.closing)
	slow := time.AfterFunc(2*limit, cancel)
	answers, err := c.b.Heartbeat(ctx, claims)
	slow.Stop()
	cancel()
	if err == nil && len(answers) != len(places) { // safeguard: heartbeat-answers
		err = fmt.Errorf("%d answers to a heartbeat of %d claims", len(answers), len(places))
	}
	if errors.Is(err, errors.ErrUnsupported) {
		b.none.Store(true)
	}

	jitter := waiting.Jitter(time.Second) // one for all, so that they stay together
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, p := range places {
		answer := err
		if err == nil {
			answer = answers[i]
		}
		if !p.removed {
			b.answer(p, sent, answer, time.Duration(p.interval.Seconds()*float64(jitter)))
		}
	}
	b.set()
}

// noteSent takes note that the store owes an answer to the cohorts that wait in places. As
// answer does, it takes the mutex of a cohort beside heartbeats.mu; see the order in lease.go.
func (b *heartbeats) noteSent(places []*place) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range places {
		if p.wait.cohort != nil && !p.removed {
			p.wait.cohort.noteAttempt()
		}
	}
}

// answer deals with the answer to a heartbeat of p. A place that is gone, and a refusal, are for
// the wait to see: it asks. Without an answer the heartbeat is repeated, until StoreTimeout: then
// the wait asks, and finds out. (Those who wait in a cohort have a timeout each, see
// failUnanswered.) The caller has mu.
func (b *heartbeats) answer(p *place, sent instant, err error, interval time.Duration) {
	c, w := b.core, p.wait
	var held *backend.HeldError
	switch {
	case errors.As(err, &held) && held.Position > 0:
		c.noteReply()
		if held.Holder == (backend.Meta{}) {
			held.Holder = p.held.Holder
		}
		// Together: the token is of what was sent then. safeguard: unanswered-heartbeat
		p.sent, p.held, p.asked = sent, held, time.Time{}
		p.at = b.next(sent, interval, held)
		if w.cohort != nil {
			w.cohort.noteRefusal(c.estimate(&w.claim, held))
		}
	case backend.AnswerOf(err) == backend.Unknown, errors.Is(err, backend.ErrUnavailable):
		if p.asked.IsZero() {
			p.asked = c.toTime(sent)
		}
		if w.cohort != nil {
			w.cohort.noteTrouble(err)
		} else if c.timedOut(p.asked, timeout(c.cfg.StoreTimeout, w.claim.TTL)) {
			p.ask <- struct{}{}
			return
		}
		if p.at = c.toTime(sent + instant(interval)); p.at.Before(time.Now()) {
			p.at = time.Now()
		}
	default:
		// never blocks: it is sent once, and the place is in no list from then on
		p.ask <- struct{}{}
		return
	}
	heap.Push(&b.due, p)
}

func (p *place) before(other *place) bool { return p.at.Before(other.at) }
func (p *place) moved(to int)             { p.index = to }
