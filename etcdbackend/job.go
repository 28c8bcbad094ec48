package etcdbackend

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// A run is the mark that a job's release leaves, see [backend.Claim.NotBefore], with a lease of its
// own: how much of that is over, by the one clock that etcd has, is how long ago the run ended. The
// other mark, which is there for as long as the run's own NotBefore, is for versions before: they
// know no other, and leave it without a value.
type run struct {
	Token uint64 `json:"token"`
	Ran   int64  `json:"ran"` // ms
}

// earlyValue is that of the other mark if we wrote it.
const earlyValue = "2"

// seconds is d in whole seconds, rounded up, as leases have them.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

// marks are the writes of both marks of c, but for the run's token, which the entry has that is
// released.
func (r *release) marks(ctx context.Context, b *Backend) ([]clientv3.Op, error) {
	rest, kept := r.c.NotBefore-r.c.Ran, b.newLease(seconds(backend.MarkLife(r.c.NotBefore)), false)
	early := clientv3.OpDelete(r.paths.early())
	if rest > 0 {
		on := b.newLease(seconds(rest), false)
		if err := on.granted.wait(ctx); err != nil {
			return nil, err
		}
		early = clientv3.OpPut(r.paths.early(), earlyValue, clientv3.WithLease(on.id))
	}
	if err := kept.granted.wait(ctx); err != nil {
		return nil, err
	}
	r.kept = kept.id
	return []clientv3.Op{early}, nil
}

// ran is the write of the run that ends with an entry; none if the claim leaves no mark.
func (r *release) ran(e *entry) []clientv3.Op {
	if r.kept == 0 {
		return nil
	}
	value := fmt.Sprintf(`{"token":%d,"ran":%d}`, e.token(), r.c.Ran.Milliseconds())
	return []clientv3.Op{clientv3.OpPut(r.paths.ran(), value, clientv3.WithLease(r.kept))}
}

// heeds reports whether a write is one that the mark of an earlier run of a job refuses.
func (a *attempt) heeds(w write) bool { return a.c.NotBefore > 0 && w.over == nil }

// asSeen compares that the marks are those that do not refuse the claim; at first, that there are
// none. They are compared in the step that would create its entry.
func (a *attempt) asSeen() []clientv3.Cmp {
	return []clientv3.Cmp{unwritten(a.paths.early(), a.early), unwritten(a.paths.ran(), a.ran)}
}

// tooEarly looks at the marks, which were read when the claim's entry was not created. Unless they
// refuse the claim it remembers them, for the next write.
//
// The tokens of a key rise, and a run's is that of its hold. So if it is not below the one of
// whoever held when the claim was refused first, then that one has run the job, or a later one has.
func (a *attempt) tooEarly(ctx context.Context, early, ran []*mvccpb.KeyValue) error {
	seenEarly, seenRan := modified(early), modified(ran)
	if seenEarly == a.early && seenRan == a.ran {
		return nil // something else is in the way
	}
	if len(early) > 0 && string(early[0].Value) != earlyValue { // safeguard: etcd-own-time
		left, _, err := a.b.remaining(ctx, early[0].Lease)
		if err != nil {
			return err
		}
		return &backend.EarlyError{RetryAfter: max(left, 0) + time.Second}
	}
	if len(ran) > 0 {
		var last run
		if err := json.Unmarshal(ran[0].Value, &last); err != nil || last.Ran < 0 {
			return fmt.Errorf("%w: the mark of a job is %q", backend.ErrForeign, ran[0].Value)
		}
		left, of, err := a.b.remaining(ctx, ran[0].Lease)
		if err != nil {
			return err
		}
		// left has whole seconds, rounded down.
		ago := of - left - time.Second + time.Duration(last.Ran)*time.Millisecond
		rest := max(a.c.NotBefore-max(ago, 0), 0)
		if left < 0 { // the lease is over, and so is the mark
			rest = 0
		}
		if rest > 0 || a.c.Awaited > 0 && last.Token >= a.c.Awaited { // safeguard: etcd-awaited
			return &backend.EarlyError{RetryAfter: rest}
		}
	}
	a.early, a.ran = seenEarly, seenRan
	return nil
}

// modified is the revision of the last write to a key, 0 if there is none.
func modified(kvs []*mvccpb.KeyValue) int64 {
	if len(kvs) == 0 {
		return 0
	}
	return kvs[0].ModRevision
}
