package etcdbackend

import (
	"context"
	"iter"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// Observe tells who holds key, as [backend.Backend] says: at every revision of the lock, however
// short a hold is, as the lock's etcd watch begins where the first read ended and leaves out
// nothing. Holder.TTL is in the first state what remains of the lease, and in later ones the length
// of it.
func (b *Backend) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	return func(yield func(backend.State, error) bool) {
		if err := backend.ValidateKey(key); err != nil {
			yield(backend.State{}, err)
			return
		}
		caller := ctx
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.ctx, cancel)()
		pause := waiting.NewBackoff(20*time.Millisecond, time.Second)
		for {
			told, on, err := b.observeOnce(ctx, key, yield)
			switch {
			case !on:
				return
			case caller.Err() != nil:
				err = caller.Err()
			case b.ctx.Err() != nil:
				err = backend.ErrClosed
			}
			over := caller.Err() != nil || backend.Refused(err)
			if err != nil && !yield(backend.State{}, err) || over {
				return
			}
			if told {
				pause.Reset()
			}
			waiting.Pause(ctx, pause.Next())
		}
	}
}

// observeOnce reads the lock and follows it until the watch ends, as by a compaction, or for lack
// of a leader: then it is to be read anew. told says that it was read. With on false the caller's
// loop was left. The error is that of the read.
func (b *Backend) observeOnce(
	ctx context.Context, key string, yield func(backend.State, error) bool,
) (told, on bool, err error) {
	p := b.scheme.paths(key)
	var q *queue
	var state backend.State
	if err := b.verb(ctx, key, func(ctx context.Context) (err error) {
		if q, err = b.readQueue(ctx, p); err == nil {
			state, err = b.state(ctx, q, map[int64]time.Duration{})
		}
		return err
	}); err != nil {
		return false, true, err
	}
	if !yield(state, nil) {
		return true, false, nil
	}
	stream := b.streams.Load()
	ctx, cancel := context.WithCancel(watching(ctx, stream))
	defer cancel()
	events := b.client.Watch(ctx, p.queue, clientv3.WithRange(p.end()),
		clientv3.WithRev(q.revision+1))
	tick := time.NewTicker(backend.SlowLook)
	defer tick.Stop()
	suspect, suspects := int64(0), []backend.Holder(nil)
	for {
		select {
		case reply, open := <-events:
			if !open || reply.Err() != nil {
				b.streams.CompareAndSwap(stream, stream+1)
				return true, true, nil
			}
			q.term = b.see(reply.Header)
			if on, err := q.follow(p, reply.Events, &state, yield); !on || err != nil {
				return true, on, err
			}
		case <-tick.C: // events may be lost, and a connection may break without a word
			var now *queue
			if err := b.verb(ctx, key, func(ctx context.Context) (err error) {
				now, err = b.readQueue(ctx, p)
				return err
			}); err != nil {
				return true, true, err
			}
			// Else the watch is just a moment behind, as it often is where holds are short.
			differ := differing(now.observed(), state)
			// safeguard: etcd-lost-events
			if len(differ) > 0 && (suspect == q.revision || anySame(differ, suspects)) {
				return true, true, nil
			}
			if suspects, suspect = differ, 0; len(differ) > 0 {
				suspect = q.revision
			}
		}
	}
}

// differing are the holds that only one of two states has.
func differing(a, b backend.State) []backend.Holder {
	in := func(s backend.State) func(backend.Holder) bool {
		return func(h backend.Holder) bool { return slices.ContainsFunc(s.Holders, h.Same) }
	}
	return append(slices.DeleteFunc(slices.Clone(a.Holders), in(b)),
		slices.DeleteFunc(slices.Clone(b.Holders), in(a))...)
}

// anySame reports whether a hold is among both.
func anySame(a, b []backend.Holder) bool {
	return slices.ContainsFunc(a, func(h backend.Holder) bool {
		return slices.ContainsFunc(b, h.Same)
	})
}

// follow makes the queue that of the last of some events, and yields each state on the way in which
// others hold than in the one before.
func (q *queue) follow(
	p paths, events []*clientv3.Event, state *backend.State, yield func(backend.State, error) bool,
) (on bool, err error) {
	for i, e := range events {
		if err := q.apply(p, e); err != nil {
			return true, err
		}
		if i+1 < len(events) && events[i+1].Kv.ModRevision == q.revision {
			continue // one transaction is one step
		}
		q.takeOrphans()
		q.settle()
		if now := q.observed(); !now.SameHolders(*state) {
			if *state = now; !yield(now, nil) {
				return false, nil
			}
		}
	}
	return true, nil
}

// apply makes the queue that of an event's revision, but for who holds, which settle finds.
func (q *queue) apply(p paths, e *clientv3.Event) error {
	key := string(e.Kv.Key)
	q.revision = e.Kv.ModRevision
	if e.Type == clientv3.EventTypeDelete {
		if !p.etcdctl && key == p.counter() {
			q.counter = counter{}
		}
		// In Etcdctl shadows are not watched: one goes with its entry, or the next look finds it.
		gone := func(o *entry) bool {
			return o.key == key || p.etcdctl && o.shadowed == key // safeguard: etcd-ghost
		}
		q.entries = slices.DeleteFunc(q.entries, gone)
		q.shadows = slices.DeleteFunc(q.shadows, gone)
		return nil
	}
	one, err := p.read(q.revision, q.term, []*mvccpb.KeyValue{e.Kv})
	if err != nil {
		return err
	}
	if len(one.shadows) > 0 {
		q.shadows = slices.DeleteFunc(q.shadows, func(o *entry) bool { return o.key == key })
		q.shadows = append(q.shadows, one.shadows...)
		return nil
	}
	if len(one.entries) == 0 {
		q.counter = one.counter
		return nil
	}
	if old := q.at(key); old != nil {
		*old = *one.entries[0]
	} else {
		q.entries = append(q.entries, one.entries[0])
	}
	return nil
}
