package etcdbackend

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// release deletes whatever there is of c, in one transaction with a tombstone unless c is settled, and tells from its reply
// whether c held. The key of an entry is made of the claim's own id, so no other claim's is ever deleted (etcd #22082).
//
// Cancel and grant: the line is a function of its entries, so what the deletion lets in holds in the same step.
func (b *Backend) release(ctx context.Context, c backend.Claim) error {
	p := b.scheme.at(c.Key)
	var ops []clientv3.Op
	for _, key := range p.own(c) {
		ops = append(ops, clientv3.OpDelete(key, clientv3.WithPrevKV()))
	}
	deletes := len(ops)
	b.mu.Lock()
	h := b.holds[p.name(c)]
	certain := h != nil && h.granted
	settled := c.Settled && (h == nil || !h.loose) // what we sent twice by ourselves, the caller knows nothing of
	if h != nil {
		h.until, h.loose = time.Now(), true // if this is not answered, whoever comes by removes it
	}
	b.mu.Unlock()
	if !settled {
		on, err := b.leases.burial(ctx, 2*min(max(c.TTL, 0), backend.MaxTTL)+late)
		if err != nil {
			return err
		}
		ops = append(ops, clientv3.OpPut(p.tombstone(c), "", clientv3.WithLease(on.id)))
	}
	if !certain {
		ops = append(ops, p.get())
	}
	reply, loose, err := b.commit(ctx, nil, ops, nil)
	if noLease(err) {
		b.leases.unbury()
	}
	if err != nil {
		return err
	}
	b.mu.Lock()
	if h != nil {
		b.forget(h)
	}
	b.mu.Unlock()
	held := false
	for i := range deletes {
		for _, kv := range reply.Responses[i].GetResponseDeleteRange().PrevKvs {
			kvs := append(reply.Responses[len(ops)-1].GetResponseRange().GetKvs(), kv)
			l, err := p.read(reply.Header.Revision, kvs)
			held = held || certain || err == nil && l.find(string(kv.Key)).granted
		}
	}
	switch {
	case held:
		return nil
	case loose: // the request before may have found it
		return errors.New("etcd: a member did not say whether it released the lock")
	}
	return backend.ErrLost
}
