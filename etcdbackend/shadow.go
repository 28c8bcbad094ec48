package etcdbackend

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// The shadow of an entry is a second key with the same value, written by each write after which its
// claim may believe that it holds, and deleted in each transaction that deletes the entry. It is on
// a lease that is never kept alive. So a hold that was released leaves nothing, and one that ended
// in another way leaves its shadow, which is an orphan then. An orphan keeps the entry's place in
// the queue, and holds like it, until somebody shows that nobody believes in the hold any more.
//
// That is not sure, as etcd may end a lease early (#15247): a leader that is paused for longer than
// the lease lasts, and goes on, takes it for ended, as the keepalives since went to its successor,
// and revokes it before it hears of the successor. The holder hears of that at its next renewal.
//
// Safety: an orphan is removed in one of three ways.
//   - By the release of its claim, which believes in nothing any more.
//   - At once, if no leader was replaced: the raft term in which the lease was made is the present
//     one (queue.over). Leaders of earlier terms knew of no such lease while they led, and the
//     leader of this term has all keepalives in its books, so the lease had really ended. Term, in
//     the record, is the last one that the client had heard of before it asked for the lease, so
//     the lease was made in that term or later. The present one is from a reply that shows the
//     orphan, so it is that of the entry's end or later: a member tells the term of the last change
//     it has made. (After it was sent a snapshot it tells that of the change before, until it has
//     made one more.)
//   - Otherwise it is buried: put on a new lease, as long as the entry's, a little longer for
//     clocks, and left to end. The holder's last renewal was sent before the orphan was seen, and
//     what it believes ends within the length of the entry's lease after that.
//
// A lease that is never kept alive has no early end: in no leader's books is it shorter than from
// its making on. So neither shadows nor burials need another defence.
//
// What it takes: no request, but two operations more in those of a pair; a crash costs whoever
// comes next one write. Only a hold whose lease is of an earlier term, because it ended before its
// next renewal, blocks others for the length of its lease once more: a renewal puts a hold on a
// lease of the present term, see Backend.renew, and so out of an earlier leader's reach.

// shadowTime is for how long the shadow of a crashed hold is kept at least. Each client has one
// lease for its shadows, and a hold gets another when its shadow's has come to its end.
const shadowTime = 10 * time.Minute

// see takes the term that a reply tells of, and returns the last one told of.
func (b *Backend) see(header *etcdserverpb.ResponseHeader) uint64 {
	told := header.GetRaftTerm()
	for {
		last := b.term.Load()
		if told <= last || b.term.CompareAndSwap(last, told) {
			return max(told, last)
		}
	}
}

// read makes a queue of what a reply has of it. Its term is 0 if a later one is known of.
func (b *Backend) read(
	p paths, header *etcdserverpb.ResponseHeader, kvs []*mvccpb.KeyValue,
) (*queue, error) {
	term := header.GetRaftTerm()
	if b.see(header) != term {
		term = 0
	}
	return p.read(header.GetRevision(), term, kvs)
}

// shadows is the prefix of all shadows. In [Native] they are among the entries, so that they are
// read and compared with them. In [Etcdctl] peers would wait for them, and they are beside.
func (p paths) shadows() string {
	if p.etcdctl {
		return p.side + "g/"
	}
	return p.queue + "g/"
}

// shadow is the key of an entry's shadow.
func (p paths) shadow(entry string) string {
	return p.shadows() + strings.TrimPrefix(entry, p.queue)
}

// deletes deletes an entry, with its shadow. It stands behind a compare that the entry is there,
// and then the shadow is its own.
func (p paths) deletes(e *entry) []clientv3.Op {
	if e.shadowed != "" {
		return []clientv3.Op{clientv3.OpDelete(e.key)}
	}
	return []clientv3.Op{clientv3.OpDelete(e.key), clientv3.OpDelete(p.shadow(e.key))}
}

// takeOrphans has the shadows whose entries are gone take their places. They count as created with
// them.
func (q *queue) takeOrphans() {
	q.entries = slices.DeleteFunc(q.entries, func(e *entry) bool { return e.shadowed != "" })
	if len(q.shadows) == 0 {
		return
	}
	alone := make(map[string]bool, len(q.shadows))
	for _, s := range q.shadows {
		alone[s.shadowed] = true
	}
	for _, e := range q.entries {
		delete(alone, e.key)
	}
	for _, s := range q.shadows {
		if alone[s.shadowed] {
			q.entries = append(q.entries, s)
		}
	}
}

// over reports whether an entry is an orphan whose lease had really ended.
func (q *queue) over(e *entry) bool {
	return e.shadowed != "" && e.Term != 0 && e.Term == q.term // safeguard: etcd-early-end
}

// unsettled reports whether there is an orphan with which an attempt has something to do.
func (q *queue) unsettled() bool {
	return slices.ContainsFunc(q.entries, func(e *entry) bool {
		return e.shadowed != "" && (q.over(e) || !e.Buried)
	})
}

// firstAlive reports whether nobody waits before an entry, orphans apart: a hold may be proven to
// one who waits, and then that leaves an orphan, too, which waits for what went with it.
func (q *queue) firstAlive(own *entry) bool {
	return !slices.ContainsFunc(q.entries, func(e *entry) bool {
		return e.shadowed == "" && !e.granted && e.created < own.created
	})
}

// maxOrphans is how many orphans one transaction settles; a server takes 128 operations.
const maxOrphans = 50

// clear takes the step that orphans leave to an attempt before any other: those that are over are
// deleted, and the rest buried. It reports false if there is nothing to do. Also those of the claim
// itself are left: what one request finds gone, another may have just been granted.
func (a *attempt) clear(ctx context.Context, q *queue) (r result, done bool, err error) {
	b, p := a.b, a.paths
	var guards []clientv3.Cmp
	var then []clientv3.Op
	var rest []*entry
	for _, e := range q.entries {
		// This one is not to be hidden by an entry of that name.
		if strings.HasSuffix(e.shadowed, a.local.slot) {
			b.mu.Lock()
			a.local.slot = b.takeSlot()
			b.mu.Unlock()
		}
		switch {
		case e.shadowed == "" || len(then) == maxOrphans:
		case q.over(e):
			guards = append(guards, unwritten(e.key, e.modified))
			then = append(then, clientv3.OpDelete(e.key))
		case !e.Buried:
			rest = append(rest, e)
		}
	}
	if then == nil && rest != nil {
		rest = rest[:min(len(rest), maxOrphans)]
		// safeguard: etcd-longest-orphan
		longest := slices.MaxFunc(rest, func(x, y *entry) int {
			return cmp.Compare(x.Lease, y.Lease)
		}).Lease
		on := b.newLease(longest+longest/(maxDrift/2)+1, false) // safeguard: etcd-burial
		if err := on.granted.wait(ctx); err != nil {
			return r, true, err
		}
		for _, e := range rest {
			buried := e.record
			buried.Created, buried.Buried = e.created, true
			value, err := json.Marshal(buried)
			if err != nil {
				return r, true, err
			}
			guards = append(guards, unwritten(e.key, e.modified)) // safeguard: etcd-buried-as-read
			then = append(then, clientv3.OpPut(e.key, string(value), clientv3.WithLease(on.id)))
		}
	}
	if then == nil {
		return r, false, nil
	}
	reply, _, err := b.commit(ctx, guards, append(then, p.reads()...), p.reads())
	if err != nil {
		return r, true, err
	}
	r.queue, err = b.read(p, reply.Header, p.lastRead(reply))
	return r, true, err
}
