package etcdbackend

import (
	"context"
	"fmt"
	"slices"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// Proof returns the compare that holds as long as the hold of key that has token does, for
// transactions of the program's own on data in the same etcd:
//
//	client.Txn(ctx).If(proof).Then(clientv3.OpPut("stock/sku-1", "41")).Commit()
//
// It reads once, bounded by ctx and RequestTimeout, and is good for the whole hold. The error is
// [backend.ErrLost] if there is no such hold any more. key is as the backend has it, see
// locker.Hold.
//
// Goroutines of one process that hand a lease on have one entry in etcd, with a token each. So that
// a request which one of them sent late does nothing when the next one is at work, compare also
// that the data are as they were read (clientv3.ModRevision).
//
// Safety: the compare is true while the entry exists that was created at the token's revision.
// While it does nobody else is granted the lock, as who holds is a function of the entries. The
// entry ends with the release and with its lease, and no other one ever has its create revision. So
// at the revision at which the transaction writes, its holder is the last one. The read only finds
// the entry's name; one from the past would do no harm.
func (b *Backend) Proof(ctx context.Context, key string,
	token uint64,
) (proof clientv3.Cmp, err error) {
	if err := backend.ValidateKey(key); err != nil {
		return proof, err
	}
	err = b.verb(ctx, key, func(ctx context.Context) error {
		q, err := b.readQueue(ctx, b.scheme.paths(key))
		if err != nil {
			return err
		}
		i := slices.IndexFunc(q.entries, func(e *entry) bool {
			return e.granted && e.shadowed == "" && e.owns(token)
		})
		if i < 0 {
			return fmt.Errorf("%w: no hold has token %d", backend.ErrLost, token)
		}
		proof = same(q.entries[i])
		return nil
	})
	return proof, err
}
