package etcdbackend

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// A watcher is this client's one etcd watch of a lock, for all who watch it. It begins at the present: a watch from a revision
// that has passed is served by etcd from a loop that ticks every 100 ms. Events may be lost and late (etcd #15271, #20221):
// they are hints.
type watcher struct {
	place place
	users int
	stop  context.CancelFunc
	ready chan struct{} // closed when the server has confirmed the watch
	sure  bool          // it is
	seen  int64         // the last revision that an event was of
}

// watch has topic signalled until ctx ends, and returns when the server has confirmed that it watches the lock.
func (b *Backend) watch(ctx context.Context, p place, topic string) (<-chan backend.Wake, error) {
	watching, leave := context.WithCancel(ctx)
	wake := b.hub.Watch(watching, topic)
	w := b.share(p)
	context.AfterFunc(watching, func() { b.unshare(w) })
	limit, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	defer cancel()
	select {
	case <-w.ready:
		context.AfterFunc(ctx, leave)
		return wake, nil
	case <-b.ctx.Done():
		leave()
		return nil, backend.ErrClosed
	case <-limit.Done():
		leave()
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return nil, fmt.Errorf("etcd: watch was not confirmed within %v", b.cfg.RequestTimeout)
	}
}

// share returns the lock's watcher, with one user more.
func (b *Backend) share(p place) *watcher {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.watchers[p.line]
	if w == nil {
		ctx, stop := context.WithCancel(b.ctx)
		w = &watcher{place: p, stop: stop, ready: make(chan struct{})}
		b.watchers[p.line] = w
		b.spawn(func() { b.follow(ctx, w) })
	}
	w.users++
	return w
}

// unshare ends the watch with its last user.
func (b *Backend) unshare(w *watcher) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w.users--; w.users > 0 {
		return
	}
	w.stop()
	if b.watchers[w.place.line] == w {
		delete(b.watchers, w.place.line)
	}
}

// follow keeps the watch going. One that was ended (by a compaction, or for lack of a leader) is made anew, and then
// everybody is signalled, as anything may have been missed.
func (b *Backend) follow(ctx context.Context, w *watcher) {
	const least, most = 20 * time.Millisecond, time.Second
	pause := least
	for {
		if b.followOnce(ctx, w) {
			pause = least
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = min(2*pause, most)
	}
}

// followOnce makes the etcd watch and reads from it until it ends. It reports whether it was confirmed.
func (b *Backend) followOnce(ctx context.Context, w *watcher) (confirmed bool) {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	events := b.client.Watch(ctx, w.place.line, clientv3.WithRange(w.place.end()), clientv3.WithFilterPut(), clientv3.WithCreatedNotify())
	for reply := range events {
		if reply.Err() != nil {
			return confirmed
		}
		if reply.Created {
			confirmed = true
			b.confirm(w)
		}
		for _, e := range reply.Events {
			b.deleted(w, string(e.Kv.Key), e.Kv.ModRevision)
		}
	}
	return confirmed
}

// confirm lets those return who wait for the watch, and signals those who watched before.
func (b *Backend) confirm(w *watcher) {
	b.mu.Lock()
	again := w.sure
	if !again {
		w.sure = true
		close(w.ready)
	}
	waiting := b.waiting[w.place.line]
	if again {
		for h := range waiting {
			b.look(h)
		}
	}
	b.mu.Unlock()
	if again {
		b.hub.Wake(w.place.line, backend.Wake{})
	}
}

// deleted signals that an entry is gone: to those who do not stand in line, and to those in line whose turn it may be.
func (b *Backend) deleted(w *watcher, key string, revision int64) {
	b.mu.Lock()
	w.seen = max(w.seen, revision)
	for h := range b.waiting[w.place.line] {
		if h.key == key || h.without(key) {
			b.look(h)
		}
	}
	b.mu.Unlock()
	b.hub.Wake(w.place.line, backend.Wake{})
}

// without takes an entry from those that keep h waiting, and reports whether it holds now by what is known.
func (h *hold) without(key string) bool {
	l := &line{entries: []*entry{}}
	for _, e := range h.ahead {
		if e.key != key {
			l.entries = append(l.entries, e)
		}
	}
	if len(l.entries) == len(h.ahead) {
		return false
	}
	h.ahead = l.entries
	own := *h.own
	l.entries = append(l.entries[:len(l.entries):len(l.entries)], &own)
	l.settle()
	return own.granted
}

// stands notes that h waits, as of line l. If something was deleted since, it looks again: the event may have been handled
// before h was noted.
func (b *Backend) stands(h *hold, l *line, own *entry, asked time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.holds[h.name] != h {
		return // released meanwhile
	}
	if h.granted && h.created == own.created {
		return // its turn came meanwhile, and that cannot be undone
	}
	h.granted, h.asked, h.until = false, asked, asked.Add(h.claim.WaiterTTL) // an entry that held is another one
	h.key, h.created, h.own, h.ahead = own.key, own.created, own, l.before(own)
	waiting := b.waiting[h.place.line]
	if waiting == nil {
		waiting = map[*hold]struct{}{}
		b.waiting[h.place.line] = waiting
	}
	waiting[h] = struct{}{}
	if w := b.watchers[h.place.line]; w != nil && w.seen > l.revision {
		b.look(h)
	}
}

// leaveLine forgets that h waits. The caller has mu.
func (b *Backend) leaveLine(h *hold) {
	waiting := b.waiting[h.place.line]
	delete(waiting, h)
	if len(waiting) == 0 {
		delete(b.waiting, h.place.line)
	}
	h.own, h.ahead = nil, nil
}

// look starts a look at whether it is h's turn, if anybody listens. The caller has mu.
func (b *Backend) look(h *hold) {
	topic := h.name
	if !b.hub.Watched(topic) {
		return
	}
	if h.again = h.checking; h.checking {
		return
	}
	h.checking = true
	b.spawn(func() { b.turn(h, topic) })
}

// turn proves h's turn by a write, and hands the grant to whoever watches. Otherwise it notes what keeps h waiting now. If that
// cannot be found out, the claim is to ask itself.
func (b *Backend) turn(h *hold, topic string) {
	for again := true; again; {
		b.mu.Lock()
		h.again = false
		own := h.own
		a := &attempt{b: b, c: h.claim, place: h.place, sent: h.asked, h: h}
		b.mu.Unlock()
		if own != nil {
			if wake := b.prove(a, own); wake != nil {
				b.hub.Deliver(topic, *wake)
			}
		}
		b.mu.Lock()
		again = h.again && h.own != nil
		h.checking = again
		b.mu.Unlock()
	}
}

// prove returns what the claim's watcher is to hear, or nil. The lease that it is told of is the shorter of WaiterTTL and TTL,
// and counts from its last answered attempt. The token is above that of the refusal: the entry was in line then, behind all
// that held.
func (b *Backend) prove(a *attempt, own *entry) *backend.Wake {
	ctx, cancel := context.WithTimeout(b.ctx, b.cfg.RequestTimeout)
	defer cancel()
	lease := min(a.c.WaiterTTL, a.c.TTL)
	w := a.over(own, true)
	w.ttl = lease
	o, err := a.write(ctx, w)
	if err != nil || !o.written {
		return &backend.Wake{}
	}
	b.mu.Lock()
	k := b.leases.cover(o.lease, a.sent, lease)
	b.mu.Unlock()
	if b.join(ctx, k) != nil {
		return &backend.Wake{}
	}
	now := o.line.at(own.key)
	h := a.h
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case h.own == nil: // answered by an attempt, or released
		return nil
	case !now.granted:
		h.own, h.ahead = now, o.line.before(now)
		if w := b.watchers[h.place.line]; w != nil && w.seen > o.line.revision {
			h.again = true
		}
		return nil
	}
	h.granted, h.written, h.record = true, now.modified, now.record
	b.leaveLine(h)
	return &backend.Wake{Granted: true, Grant: backend.Grant{
		Token: now.token(), TTL: lease, Reserved: max(a.c.Reserve, 1), State: o.state,
	}}
}
