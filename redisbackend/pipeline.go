package redisbackend

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	store "github.com/holdfast-go/holdfast/internal/redis"
)

// A pipeline sends requests through a go-redis client. Requests that come while others are
// in flight are sent together, which costs client and server less than half of what they cost one
// by one (docs/adr/redis.md has the numbers).
//
// go-redis gives a read the deadline of its context, but does not notice when the context is
// cancelled. So a sender, in a goroutine of its own, waits for the replies, and a caller whose
// context is done leaves: what was not sent yet never is, and what was sent ends at its deadline.
// There are at most as many senders as the client has connections (of a cluster,
// store.ClusterInFlight), so a server that does not answer leaves that many goroutines behind,
// however many callers come and go.
type pipeline struct {
	client  redis.UniversalClient
	timeout time.Duration // of a request, from the call
	most    int           // senders
	// requests are never sent together: in a cluster, one node would hold up those to the others
	alone bool
	// the client bounds a request: a lone one that nobody cancels may be sent without more ado
	inline bool
	silent func() // called while a request has no answer, each third of timeout, if it is not nil

	mu      sync.Mutex
	queue   []*request
	sent    int  // requests that senders wait for
	busy    int  // senders at work
	called  bool // one of them has yet to look at the queue
	senders sync.WaitGroup
}

// A request is one command, or something that needs a connection for itself.
type request struct {
	ctx  context.Context
	cmd  attempt
	own  func(context.Context) // instead of cmd
	done chan struct{}         // closed by the sender
}

// do sends a command and returns when it has been answered, with its result in cmd, or when ctx is
// done or the request timeout has passed. The error is nil, or says why there is no answer.
//
// A release has no cancellation, and an acquire may have none: alone in flight, as most are, it is
// sent in its caller's goroutine, and go-redis' own timeouts bound it.
func (p *pipeline) do(ctx context.Context, what request) error {
	if p.inline && what.own == nil && ctx.Done() == nil && p.enter() {
		_ = p.client.Process(ctx, what.cmd)
		p.leave()
		return nil
	}
	if deadline, ok := ctx.Deadline(); !ok || time.Until(deadline) > p.timeout {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, p.timeout)
		defer cancel()
	}
	r := &request{ctx: ctx, cmd: what.cmd, own: what.own, done: make(chan struct{})}
	p.submit(r)
	if p.awaits(r) {
		return nil
	}
	if p.withdraw(r) {
		return &store.ConnectError{Err: errNotSent}
	}
	select {
	case <-r.done: // both at once: the answer counts
		return nil
	default:
		return ctx.Err()
	}
}

// awaits returns true when r is done, or false when its context is.
func (p *pipeline) awaits(r *request) bool {
	var again <-chan time.Time
	if p.silent != nil { // safeguard: silent-primary
		t := time.NewTicker(max(p.timeout/3, 1))
		defer t.Stop()
		again = t.C
	}
	for {
		select {
		case <-r.done:
			return true
		case <-r.ctx.Done():
			return false
		case <-again:
			p.silent()
		}
	}
}

var errNotSent = errors.New("all connections were occupied")

// enter makes the caller's goroutine a sender, if no other request waits or is sent.
func (p *pipeline) enter() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.sent > 0 || len(p.queue) > 0 || p.busy == p.most {
		return false
	}
	p.sent++
	p.busy++
	return true
}

// leave ends what enter began.
func (p *pipeline) leave() {
	p.mu.Lock()
	p.sent--
	p.busy--
	p.callLocked() // safeguard: lone-request-calls
	p.mu.Unlock()
}

// submit queues a request.
func (p *pipeline) submit(r *request) {
	p.mu.Lock()
	p.queue = append(p.queue, r)
	p.callLocked()
	p.mu.Unlock()
}

// callLocked starts a sender, if there is something to send, and another one may be at work.
func (p *pipeline) callLocked() {
	if len(p.queue) > 0 && !p.called && p.busy < p.most {
		p.busy++
		p.called = true
		p.senders.Go(p.serve)
	}
}

// withdraw takes a request out of the queue, and reports whether it was there.
func (p *pipeline) withdraw(r *request) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.queue, r)
	if i < 0 {
		return false
	}
	p.queue = slices.Delete(p.queue, i, i+1)
	return true
}

// serve sends what is queued until there is nothing.
func (p *pipeline) serve() {
	for {
		runtime.Gosched() // goroutines that are ready to send do so first, and are in this batch
		p.mu.Lock()
		p.called = false
		batch := p.takeLocked()
		if len(batch) == 0 {
			p.busy--
			p.mu.Unlock()
			return
		}
		p.callLocked()
		p.mu.Unlock()

		p.send(batch)
		p.mu.Lock()
		p.sent -= len(batch)
		p.called = true
		p.mu.Unlock()
		for _, r := range batch {
			close(r.done)
		}
	}
}

// minBatch: up to 8 queued requests are always sent as one batch. So a release, and the acquire for
// the next waiter of the same process, are executed one after the other.
const minBatch = 8

// maxBatch bounds a batch. It is answered as a whole, and until then nobody hears of the server: of
// thousands that give up at once, those in flight are cut off when it has been silent for a moment;
// and a store bars only 32 of those from the key (tombstones.lua), so that a place which is written
// after its release stays.
const maxBatch = 128

// takeLocked takes what can be sent together, in order, up to maxBatch. Where another sender can
// take the rest, it takes at most half of all that wait or are sent, or minBatch if that is more:
// so the server has one half to execute while the callers of the other run. (All at once, 128
// goroutines had 0.7 of the rate: they took turns with the server.)
func (p *pipeline) takeLocked() []*request {
	n, most := 0, min(len(p.queue), maxBatch) // safeguard: batch-bound
	if p.most > 1 {
		most = min(most, max((len(p.queue)+p.sent+1)/2, minBatch))
	}
	for n < most && (n == 0 || !p.alone && p.queue[n].own == nil && p.queue[0].own == nil) {
		n++
	}
	batch := p.queue[:n:n]
	if p.queue = p.queue[n:]; len(p.queue) == 0 {
		p.queue = nil
	}
	p.sent += n
	return batch
}

// send waits for the replies, or for the last deadline. What went wrong is in the commands.
func (p *pipeline) send(batch []*request) {
	first := batch[0]
	switch {
	case first.own != nil:
		first.own(first.ctx)
		return
	case len(batch) == 1:
		_ = p.client.Process(first.ctx, first.cmd)
		return
	}
	var latest time.Time
	together := p.client.Pipeline()
	for _, r := range batch {
		if deadline, _ := r.ctx.Deadline(); deadline.After(latest) { // safeguard: last-deadline
			latest = deadline
		}
		_ = together.Process(r.ctx, r.cmd) // sends nothing yet
	}
	// Not for one of the callers to cancel.
	ctx, cancel := context.WithDeadline(context.Background(), latest)
	defer cancel()
	_, _ = together.Exec(ctx)
}

// close waits for what was sent. Nothing may be sent any more.
func (p *pipeline) close() { p.senders.Wait() }

// An attempt is a command that go-redis must not send again by itself, whoever made the client: a
// release that is repeated after a lost reply would report our own hold as lost, and one error
// must be about one attempt to say what it did. (It still follows MOVED and ASK, which say that
// nothing was executed.)
type attempt struct{ *redis.Cmd }

// NoRetry is asked by go-redis before it retries.
func (attempt) NoRetry() bool { return true } // safeguard: sent-once
