package etcdbackend

import (
	"context"
	"errors"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// call runs a verb, bounded by ctx, by RequestTimeout and by Close. The client heeds contexts in all it does, so there is no
// need for a goroutine.
func (b *Backend) call(ctx context.Context, key string, verb func(context.Context) error) error {
	if err := b.scheme.check(key); err != nil {
		return err
	}
	if !b.begin() {
		return backend.ErrClosed
	}
	defer b.tasks.Done()
	if err := ctx.Err(); err != nil {
		return err
	}
	bounded := &span{Context: ctx, closing: b.ctx, until: time.Now().Add(b.cfg.RequestTimeout)}
	defer bounded.end()
	err := verb(bounded)
	if backend.AnswerOf(err) != backend.Unknown {
		return err
	}
	return b.failure(ctx, err)
}

// patiently makes a request, and makes it again if a member does not answer soon: the client takes them in turn, and notices
// one that hangs only after 13 seconds. It reports whether a request was left without an answer; it may still be executed.
func patiently[T any](
	ctx context.Context, limits *limiter, soon time.Duration, request func(context.Context) (T, error),
) (reply T, loose bool, err error) {
	parent, until := ctx, time.Time{}
	if s, ok := ctx.(*span); ok {
		parent, until = s.Context, s.until
	}
	for {
		at := time.Now().Add(soon)
		if !until.IsZero() && until.Before(at) {
			at = until
		}
		once := limits.begin(parent, at)
		reply, err = request(once)
		late := once.Err() != nil
		limits.end(once)
		if err == nil || !late || ctx.Err() != nil {
			return reply, loose, err
		}
		loose = true
	}
}

// soon is when an answer is late.
func (b *Backend) soon() time.Duration { return b.cfg.RequestTimeout / 4 }

// commit makes a transaction, patiently.
func (b *Backend) commit(
	ctx context.Context, guards []clientv3.Cmp, then, otherwise []clientv3.Op,
) (reply *clientv3.TxnResponse, loose bool, err error) {
	return patiently(ctx, b.limits, b.soon(), func(ctx context.Context) (*clientv3.TxnResponse, error) {
		return b.client.Txn(ctx).If(guards...).Then(then...).Else(otherwise...).Commit()
	})
}

// readLine reads the line.
func (b *Backend) readLine(ctx context.Context, p place) (*line, error) {
	reply, _, err := patiently(ctx, b.limits, b.soon(), func(ctx context.Context) (clientv3.OpResponse, error) {
		return b.client.Do(ctx, p.get())
	})
	if err != nil {
		return nil, err
	}
	return p.read(reply.Get().Header.Revision, reply.Get().Kvs)
}

// begin counts a verb in, unless the backend is closed.
func (b *Backend) begin() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	b.tasks.Add(1)
	return true
}

// spawn starts a goroutine that Close waits for, and that ends with b.ctx. It is called while a verb or another such
// goroutine is counted.
func (b *Backend) spawn(f func()) { b.tasks.Go(f) }

// span is for how long after an attempt its claim may be believed in, whatever the answer.
func (a *attempt) span() (d time.Duration) {
	if d = a.c.TTL; a.c.Queue {
		d = max(d, a.c.WaiterTTL)
	}
	return d
}

// refused notes an attempt that was not granted. What is not in the store is forgotten, and what may be is kept, to be removed
// when nobody believes in it any more.
func (b *Backend) refused(h *hold, err error) {
	var held *backend.HeldError
	switch {
	case backend.AnswerOf(err) == backend.Unknown:
	case errors.As(err, &held) && held.Position > 0:
	default:
		b.drop(h)
	}
}
