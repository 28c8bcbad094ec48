package etcdbackend

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A watcher is this client's one etcd watch of a lock, for all who watch it. It begins at the
// present: a watch from a revision that has passed is served by etcd from a loop that ticks every
// 100 ms. Events may be lost and late (etcd #15271, #20221): they are hints. It is guarded by
// Backend.mu.
type watcher struct {
	paths     paths
	users     int
	stop      context.CancelFunc
	ready     chan struct{} // closed when the server has confirmed the watch
	confirmed bool

	queue *queue // as last read by a claim that waits, less what was deleted since; nil before
	since int64  // the revision of the last event: a queue that was read before lacks it

	past   []backend.Past // the last holds that were seen to end
	turned time.Time      // when the last of them was, or when the queue was first read
}

// Watch signals when an entry of c.Key is deleted, by anybody or by the end of its lease; for a
// claim with Queue, when its turn has come. All watches of a lock share one etcd watch. Watch
// returns when the server has confirmed it, which is bounded by RequestTimeout.
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	p := b.scheme.paths(c.Key)
	topic := p.queue
	if c.Queue {
		topic = p.topic(c.ID())
	}
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	defer b.tasks.Done()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	wake, leave := b.hub.Enter(topic)
	w := b.share(p)
	end := sync.OnceFunc(func() { leave(); b.unshare(w) })
	limit, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	defer cancel()
	select {
	case <-w.ready:
		context.AfterFunc(ctx, end)
		return wake, nil
	case <-b.ctx.Done():
		end()
		return nil, backend.ErrClosed
	case <-limit.Done():
		end()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("etcd: watch was not confirmed within %v", b.cfg.RequestTimeout)
	}
}

// share returns the lock's watcher, with one user more.
func (b *Backend) share(p paths) *watcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.watchers[p.queue]
	if w == nil {
		ctx, stop := context.WithCancel(b.ctx)
		w = &watcher{paths: p, stop: stop, ready: make(chan struct{})}
		b.watchers[p.queue] = w
		b.tasks.Go(func() { b.follow(ctx, w) })
	}
	w.users++
	return w
}

// unshare ends the watch with its last user.
func (b *Backend) unshare(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.users--; w.users == 0 {
		w.stop()
		delete(b.watchers, w.paths.queue)
	}
}

// follow keeps the watch going. One that was ended (by a compaction, or for lack of a leader) is
// made anew.
func (b *Backend) follow(ctx context.Context, w *watcher) {
	pause := waiting.NewBackoff(20*time.Millisecond, time.Second)
	for again := true; again; again = waiting.Pause(ctx, pause.Next()) {
		if b.followOnce(ctx, w) {
			pause.Reset()
		}
	}
}

// watching is the context of a watch. The client makes one stream for all watches whose contexts
// have the same metadata, and its token is the one that it was opened with, for as long as there is
// a watch on it:
// once that token is over no watch on it is confirmed any more. So after a refusal they are on
// another.
func watching(ctx context.Context, stream int64) context.Context {
	if stream > 0 { // safeguard: etcd-stream
		ctx = metadata.AppendToOutgoingContext(ctx, "holdfast-stream",
			strconv.FormatInt(stream, 10))
	}
	return clientv3.WithRequireLeader(ctx)
}

// followOnce makes the etcd watch and reads from it until it ends. It reports whether it was
// confirmed.
func (b *Backend) followOnce(ctx context.Context, w *watcher) (confirmed bool) {
	stream := b.streams.Load()
	ctx, cancel := context.WithCancel(watching(ctx, stream))
	defer cancel()
	p := w.paths
	events := b.client.Watch(ctx, p.queue, clientv3.WithRange(p.end()),
		clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	for reply := range events {
		if reply.Err() != nil {
			if !confirmed {
				b.streams.CompareAndSwap(stream, stream+1)
			}
			return confirmed
		}
		if reply.Created {
			confirmed = true
			b.confirmed(w, reply.Header.Revision)
		}
		b.see(reply.Header)
		for _, e := range reply.Events {
			b.deleted(w, string(e.Kv.Key), e.Kv.ModRevision)
		}
	}
	return confirmed
}

// confirmed lets those return who wait for the watch. If it was made anew it signals everybody, as
// anything may have been missed.
func (b *Backend) confirmed(w *watcher, revision int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.confirmed {
		b.hub.Wake(w.paths.queue, backend.Wake{})
	} else {
		w.confirmed = true
		close(w.ready)
	}
	if w.queue != nil {
		for _, e := range w.queue.entries {
			b.hub.Wake(w.paths.topic(e.id()), backend.Wake{})
		}
	}
	w.queue, w.since = nil, revision
}

// deleted signals that an entry is gone: to those who do not wait in the queue, to its own claim,
// and to those whose turn it may be.
func (b *Backend) deleted(w *watcher, key string, revision int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if strings.HasPrefix(key, w.paths.shadows()) && revision <= w.since &&
		(w.queue == nil || w.queue.at(key) == nil) { // safeguard: etcd-orphans-together
		return // it went with its entry; several orphans may go together
	}
	b.hub.Wake(w.paths.queue, backend.Wake{})
	w.since = max(w.since, revision)
	if w.queue == nil || revision <= w.queue.revision {
		return
	}
	if e := w.queue.at(key); e != nil {
		b.hub.Wake(w.paths.topic(e.id()), backend.Wake{})
		w.ended(e)
		w.queue.entries = slices.DeleteFunc(w.queue.entries, func(o *entry) bool { return o == e })
		w.queue.settle()
		b.proveTurns(w)
	}
}

// ended takes note of a hold that is over, if the entry was one.
func (w *watcher) ended(e *entry) {
	if e.granted {
		now := time.Now()
		w.past = append(w.past, backend.Past{
			Meta: e.Meta, Token: e.token(),
			For: now.Sub(w.turned),
		})
		// Earlier ones are left out, as in grants.
		w.past = slices.Clone(w.past[max(0, len(w.past)-backend.MaxBefore):])
		w.turned = now
	}
}

// observe has the lock's watcher, if there is one, find by q whose turn it is from now on, and
// takes q over. If an entry of q was deleted since, or the watch is younger, the claim of topic is
// woken to read the queue again. The caller has mu.
func (b *Backend) observe(p paths, q *queue, topic string) {
	w := b.watchers[p.queue]
	switch {
	case w == nil, w.queue != nil && q.revision < w.queue.revision:
		return
	case q.revision < w.since:
		b.hub.Wake(topic, backend.Wake{})
		return
	}
	if w.queue == nil {
		w.turned = time.Now()
	} else {
		for _, e := range w.queue.entries {
			if now := q.at(e.key); now == nil || now.created != e.created {
				w.ended(e)
			}
		}
	}
	w.queue = q
	b.proveTurns(w)
}

// proveTurns starts a proof for each claim of ours that waits as far as we know, that is watched,
// and whose entry holds by what the watcher knows. The caller has mu.
func (b *Backend) proveTurns(w *watcher) {
	for _, e := range w.queue.entries {
		if !e.granted {
			continue
		}
		lc := b.claims[w.paths.topic(e.id())]
		waits := lc != nil && lc.entry != nil && !lc.holds() && !lc.ended
		if waits && !lc.proving && b.hub.Watched(lc.topic) {
			lc.proving = true
			b.tasks.Go(func() { b.prove(lc) })
		}
	}
}

// prove writes to the entry of a claim whose turn may have come, and hands the grant to its
// watcher. If that fails, the claim has to ask itself.
//
// Safety: the write is confirm's. The lease that the claim is told of is the shorter of WaiterTTL
// and TTL, and counts from its last answered attempt or heartbeat: one that is answered meanwhile
// makes it ask instead, and one that is answered later does not say that it waits. The token is
// above that of the refusal: the entry was in the queue then, behind all that held.
func (b *Backend) prove(lc *localClaim) {
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.RequestTimeout)
	defer cancel()
	b.mu.Lock()
	a := &attempt{b: b, c: lc.claim, paths: lc.paths, sent: lc.asked, local: lc}
	own := lc.entry
	b.mu.Unlock()
	ttl := min(a.c.WaiterTTL, a.c.TTL)
	w := a.overwrite(own, ttl, false)
	if !a.paths.etcdctl && !own.Held { // else it is to get its token by confirm
		w.guards = append(w.guards, unwritten(a.paths.counter(), 0))
	}
	r, err := a.write(ctx, w)
	// safeguard: etcd-proof-lasts
	proven := err == nil && r.written && b.lasting(ctx, r.lease, a.sent, ttl) == nil
	b.mu.Lock()
	defer b.mu.Unlock()
	lc.proving = false
	switch {
	case b.claims[lc.topic] != lc, lc.holds(): // released meanwhile, or granted to an attempt
	case !proven:
		b.hub.Wake(lc.topic, backend.Wake{})
	default:
		now := *r.queue.at(own.key)
		lc.entry = &now
		switch {
		case !now.granted:
			if r.queue.unsettled() { // whoever held did not release it
				b.hub.Wake(lc.topic, backend.Wake{})
			}
		case !lc.asked.Equal(a.sent): // safeguard: etcd-proof-deadline
			b.hub.Wake(lc.topic, backend.Wake{})
		default:
			grant := backend.Grant{
				Token: now.token(), TTL: ttl, Reserved: max(a.c.Reserve, 1),
				State: r.state,
			}
			if w := b.watchers[lc.paths.queue]; w != nil {
				grant.Before = w.past
			}
			b.hub.Deliver(lc.topic, backend.Wake{Granted: true, Grant: grant})
		}
		topic := lc.topic
		if now.granted {
			topic = "" // it need not read again
		}
		b.observe(a.paths, r.queue, topic)
	}
}
