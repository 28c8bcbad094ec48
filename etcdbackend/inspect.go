package etcdbackend

import (
	"context"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// Inspect reads who holds key and who waits, and for how long the leases run. A hold that ends between the two reads is left
// out.
func (b *Backend) Inspect(ctx context.Context, key string) (state backend.State, err error) {
	if err := backend.ValidateKey(key); err != nil {
		return state, err
	}
	err = b.call(ctx, key, func(ctx context.Context) error {
		state, err = b.inspect(ctx, b.scheme.at(key))
		return err
	})
	return state, err
}

func (b *Backend) inspect(ctx context.Context, p place) (backend.State, error) {
	l, err := b.readLine(ctx, p)
	if err != nil {
		return backend.State{}, err
	}
	state := backend.State{Token: l.token()}
	remaining := map[int64]int64{} // by lease, as holds share them
	for _, e := range l.entries {
		if !e.granted {
			state.Waiters = append(state.Waiters, backend.Waiter{Owner: e.Owner, Mode: e.mode(), Meta: e.Meta})
			continue
		}
		seconds, known := remaining[e.attached]
		if !known {
			left, _, err := patiently(ctx, b.limits, b.soon(), func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
				return b.client.TimeToLive(ctx, clientv3.LeaseID(e.attached))
			})
			if err != nil {
				return backend.State{}, err
			}
			seconds = left.TTL // whole seconds, rounded down; negative if it has ended
			remaining[e.attached] = seconds
		}
		if seconds < 0 {
			continue
		}
		state.Holders = append(state.Holders, backend.Holder{
			Owner: e.Owner, Mode: e.mode(), Token: e.token(), TTL: max(time.Duration(seconds)*time.Second, time.Millisecond), Meta: e.Meta,
		})
	}
	return state, nil
}
