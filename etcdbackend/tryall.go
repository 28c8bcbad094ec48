package etcdbackend

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// maxTogether is how many claims go in one transaction, of each of which it compares the queue and
// the tombstone, and writes two keys; a server takes 128 operations of each sort.
func (s scheme) maxTogether() int { return 100 / (len(s.paths("any").unchanged(0)) + 1) }

// errHalfAnswered is a request for several claims that was made again, as a member did not answer,
// and then was not made: the one before may have been, or may be yet.
var errHalfAnswered = errors.New("a member did not say whether it executed the request")

// TryAcquireAll takes claims whose locks are free in one Raft write for fifty of them, as
// [backend.Backend] says. If some are not free, another write takes those before the first of
// these. Tokens of one write are the same.
func (b *Backend) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) (grants []backend.Grant, err error) {
	if err := backend.ValidateTryAcquireAll(claims, b.Capabilities()); err != nil {
		return nil, err
	}
	if err := b.scheme.checkAll(claims); err != nil {
		return nil, err
	}
	for some := range slices.Chunk(claims, b.scheme.maxTogether()) {
		var got []backend.Grant
		err := b.verb(ctx, some[0].Key, func(ctx context.Context) (err error) {
			got, err = b.takeAll(ctx, some)
			return err
		})
		if stops(len(grants), err) {
			return nil, err
		}
		if grants = append(grants, got...); len(got) < len(some) { // safeguard: etcd-many-in-a-row
			break
		}
	}
	return grants, nil
}

// stops reports whether an error is that of the whole call, of which so many claims are done. A no
// says nothing of those, and is told to whoever asks for the others.
func stops(done int, err error) bool {
	// safeguard: etcd-later-of-many
	return err != nil && (done == 0 || backend.AnswerOf(err) == backend.Unknown)
}

// checkAll is check for the keys of claims.
func (s scheme) checkAll(claims []backend.Claim) error {
	for i := range claims {
		if err := s.check(claims[i].Key); err != nil {
			return err
		}
	}
	return nil
}

// takeAll grants the first of claims, up to one whose lock is not free.
//
// Safety: each entry is created as by takeFree: at the write's revision nobody holds the lock,
// nobody waits and the claim was not released. All entries of a write are created, or none. The
// compares of all come before the first of them is, so no lock may be taken by two claims.
func (b *Backend) takeAll(ctx context.Context, claims []backend.Claim) ([]backend.Grant, error) {
	sent := time.Now()
	claims = claims[:b.unknown(claims)]
	attempts, writes := make([]*attempt, len(claims)), make([]write, len(claims))
	for i, c := range claims {
		attempts[i] = b.attempt(c, sent, c.TTL)
	}
	written := 0
	defer func() {
		for i, a := range attempts {
			if i >= written {
				a.dropped()
			}
			b.done(a.local)
		}
	}()
	for i, a := range attempts {
		writes[i] = a.ifFree()
		if err := a.ready(ctx, &writes[i]); err != nil {
			return nil, err
		}
	}
	for n := len(claims); n > 0; {
		reply, err := b.writeAll(ctx, attempts[:n], writes[:n])
		switch {
		case isNoLease(err): // nothing was written
			return nil, nil
		case err != nil:
			return nil, err
		case reply.Succeeded:
			written = n
			return b.grantedAll(ctx, attempts[:n], writes[:n], reply.Header.Revision)
		}
		n = slices.IndexFunc(reply.Responses, func(r *etcdserverpb.ResponseOp) bool {
			return !r.GetResponseTxn().GetSucceeded()
		})
	}
	return nil, nil
}

// unknown is how many of claims come before the first of which this client knows something, which
// TryAcquire is to repeat, or whose key one of them has.
func (b *Backend) unknown(claims []backend.Claim) int {
	keys := make(map[string]bool, len(claims))
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := range claims {
		c := &claims[i]
		// safeguard: etcd-key-twice
		if keys[c.Key] || b.claims[b.scheme.paths(c.Key).topic(c.ID())] != nil {
			return i
		}
		keys[c.Key] = true
	}
	return len(claims)
}

// writeAll makes one transaction of writes. If one of them cannot be made, none is, and the reply
// says of each whether it could have been.
func (b *Backend) writeAll(ctx context.Context, attempts []*attempt,
	writes []write,
) (*clientv3.TxnResponse, error) {
	var guards []clientv3.Cmp
	var then, otherwise []clientv3.Op
	for i := range writes {
		w := &writes[i]
		guards, then = append(guards, w.guards...), append(then, w.then...)
		otherwise = append(otherwise, clientv3.OpTxn(w.guards, nil, nil))
	}
	reply, resent, err := b.commit(ctx, guards, then, otherwise)
	for i, a := range attempts {
		a.settled(&writes[i], reply, resent, err)
	}
	if resent && (isNoLease(err) || err == nil && !reply.Succeeded) { // safeguard: etcd-all-resent
		return nil, errHalfAnswered
	}
	return reply, err
}

// grantedAll returns the grants of attempts whose writes were made at a revision.
func (b *Backend) grantedAll(
	ctx context.Context, attempts []*attempt, writes []write, revision int64,
) (grants []backend.Grant, err error) {
	for i, a := range attempts {
		g, err := a.granted(ctx,
			result{granted: a.entered(&writes[i], revision), lease: writes[i].on})
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// TryReleaseAll ends claims in one Raft write for fifty of them, as [backend.Backend] says: those
// of which this client knows that they hold.
func (b *Backend) TryReleaseAll(ctx context.Context,
	claims []backend.Claim,
) (released []bool, err error) {
	if err := backend.ValidateTryReleaseAll(claims, b.Capabilities()); err != nil {
		return nil, err
	}
	if err := b.scheme.checkAll(claims); err != nil {
		return nil, err
	}
	released = make([]bool, 0, len(claims))
	for some := range slices.Chunk(claims, b.scheme.maxTogether()) {
		var got []bool
		err := b.verb(ctx, some[0].Key, func(ctx context.Context) (err error) {
			got, err = b.endAll(ctx, some)
			return err
		})
		if stops(len(released), err) {
			return nil, err
		}
		released = append(released, append(got, make([]bool, len(some)-len(got))...)...)
	}
	return released, nil
}

// endAll is TryReleaseAll of a few claims.
//
// Safety: as in release, an entry is deleted by its create revision. In the same step nothing was
// created in its queue since: so nobody waits, and nobody has taken over what an unanswered Put of
// the claim may have left.
func (b *Backend) endAll(ctx context.Context, claims []backend.Claim) ([]bool, error) {
	released, each := make([]bool, len(claims)), []clientv3.Op(nil)
	var known []*localClaim
	var at []int // in claims
	b.mu.Lock()
	for i, c := range claims {
		lc := b.claims[b.scheme.paths(c.Key).topic(c.ID())]
		// safeguard: etcd-all-pending
		if lc == nil || c.Mode != backend.Exclusive || !lc.holds() || lc.putPending ||
			slices.Contains(known, lc) {
			continue
		}
		alone := lc.paths.unchanged(lc.entry.created) // safeguard: etcd-alone
		each = append(each, clientv3.OpTxn(append(alone, same(lc.entry)),
			lc.paths.deletes(lc.entry), nil))
		known, at = append(known, lc), append(at, i)
	}
	b.mu.Unlock()
	if each == nil {
		return released, nil
	}
	reply, resent, err := b.commit(ctx, nil, each, nil)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, lc := range known {
		switch {
		case reply.Responses[n].GetResponseTxn().GetSucceeded():
			released[at[n]], lc.until = true, time.Now()
			b.forget(lc)
		case resent: // safeguard: etcd-all-resent-release
			err = errHalfAnswered
		}
	}
	if err != nil {
		return nil, err
	}
	return released, nil
}
