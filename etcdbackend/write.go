package etcdbackend

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// A write is one transaction of an attempt.
type write struct {
	guards []clientv3.Cmp
	key    string // of the entry
	token  uint64 // if it is not to be the entry's own
	ttl    time.Duration
	least  int64 // the lease is not shorter than so many seconds
	waits  bool  // the entry is for standing in line
	also   []clientv3.Op
	look   bool   // read the line after the write: then it decides, and not that the write was made
	blind  bool   // read nothing if it is not made
	own    *entry // it is there already, and keeps its create revision
	record record
}

// write makes the transaction: the entry, or else a read of the line and of the claim's tombstone. An entry is never created for
// a claim that was released.
func (a *attempt) write(ctx context.Context, w write) (outcome, error) {
	b, p := a.b, a.place
	seconds := max(leaseSeconds(w.ttl), w.least)
	on, err := b.leases.lease(ctx, seconds)
	if err != nil {
		return outcome{}, err
	}
	w.record = record{a.c.Owner, a.c.Hold, a.c.Reentrant, w.token, !w.waits, seconds, a.c.Meta}
	value, err := b.encode(w.record)
	if err != nil {
		return outcome{}, &backend.InvalidError{Field: "meta", Reason: err.Error()}
	}
	b.mu.Lock()
	b.leases.cover(on, a.sent, w.ttl) // sent beside the transaction; whoever needs it waits for it
	b.mu.Unlock()
	if w.own == nil {
		w.guards = append(w.guards, absent(p.tombstone(a.c), ""))
	}
	put := clientv3.OpPut(w.key, "", clientv3.WithLease(on.id))
	put.WithValueBytes(value)
	then := append([]clientv3.Op{put}, w.also...)
	if a.c.Load {
		then = append(then, clientv3.OpGet(p.state()))
	}
	if w.look {
		then = append(then, p.get())
	}
	var otherwise []clientv3.Op
	if !w.blind {
		otherwise = []clientv3.Op{p.get(), clientv3.OpGet(p.tombstone(a.c), clientv3.WithKeysOnly())}
	}
	reply, loose, err := b.commit(ctx, w.guards, then, otherwise)
	b.mu.Lock()
	a.h.wrote(w.key, on, err == nil && reply.Succeeded, loose || err != nil && !noLease(err))
	b.mu.Unlock()
	switch {
	case noLease(err): // nothing was written
		b.leases.lost(on)
		return outcome{line: &line{}}, nil
	case err != nil:
		return outcome{}, err
	}
	return a.read(reply, w, on)
}

// read takes the reply of a write apart.
func (a *attempt) read(reply *clientv3.TxnResponse, w write, on *lease) (outcome, error) {
	revision := reply.Header.Revision
	ranges := reply.Responses
	state := a.state(reply, w)
	if reply.Succeeded && !w.look {
		e := &entry{record: w.record, key: w.key, created: revision, modified: revision, granted: true}
		if w.own != nil {
			e.created = w.own.created
		}
		return outcome{grant: e, lease: on, written: true, state: state}, nil
	}
	if !reply.Succeeded && w.blind {
		return outcome{}, nil
	}
	if !reply.Succeeded && ranges[1].GetResponseRange().Count > 0 {
		return outcome{}, fmt.Errorf("%w: it was released before", backend.ErrLost)
	}
	found := ranges[0]
	if reply.Succeeded {
		found = ranges[len(ranges)-1]
	}
	l, err := a.place.read(revision, found.GetResponseRange().Kvs)
	return outcome{line: l, lease: on, written: reply.Succeeded, revision: revision, state: state}, err
}

// state reads the lock's state in the reply of a write that was made, if the claim asks for it: it is as of the write's own
// revision, at which the claim holds if it does.
func (a *attempt) state(reply *clientv3.TxnResponse, w write) []byte {
	if !a.c.Load || !reply.Succeeded {
		return nil
	}
	kvs := reply.Responses[1+len(w.also)].GetResponseRange().Kvs
	if len(kvs) == 0 {
		return nil
	}
	return append([]byte{}, kvs[0].Value...) // an empty value comes as nil, and is a state
}
