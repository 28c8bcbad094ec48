package etcdbackend

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Every revision is told of: holds that follow one another without a pause are all seen, in order,
// also by a caller that is slow.
func TestObserveEveryRevision(t *testing.T) {
	m := testserver.Etcd(t)
	b := on(t, client(t, m.Addr()), Config{})
	name := key(t)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var held, seen []string
	done := make(chan struct{})
	for state, err := range b.Observe(ctx, name) {
		if err != nil {
			t.Fatalf("%v after %d of %d holds", err, len(seen), len(held))
		}
		if held == nil { // the first state
			held = make([]string, 50)
			go func() {
				defer close(done)
				for i := range held {
					c := backend.Claim{Key: name, Owner: backend.NewOwner(), TTL: time.Minute}
					held[i] = c.Owner
					if _, err := b.TryAcquire(t.Context(), c); err != nil {
						t.Errorf("TryAcquire = %v", err)
					}
					if _, err := b.Release(t.Context(), c); err != nil {
						t.Errorf("Release = %v", err)
					}
				}
			}()
			<-done // the caller is slow
		}
		for _, h := range state.Holders {
			seen = append(seen, h.Owner)
		}
		if len(seen) == len(held) && len(state.Holders) == 0 {
			break
		}
	}
	if !slices.Equal(seen, held) {
		t.Errorf("seen %q, held by %q", seen, held)
	}
}

// deafWatcher's first watch tells nothing.
type deafWatcher struct {
	clientv3.Watcher
	watches atomic.Int64
}

func (w *deafWatcher) Watch(ctx context.Context, key string,
	opts ...clientv3.OpOption,
) clientv3.WatchChan {
	if w.watches.Add(1) == 1 {
		return make(clientv3.WatchChan)
	}
	return w.Watcher.Watch(ctx, key, opts...)
}

// A watch that tells nothing, as one whose events are lost, is found out and made anew.
func TestObserveFindsADeafWatch(t *testing.T) {
	t.Parallel()
	c := client(t, testserver.Etcd(t).Addr())
	deaf := &deafWatcher{Watcher: c.Watcher}
	c.Watcher = deaf
	b := on(t, c, Config{})
	cl := claim(key(t))
	ctx, cancel := context.WithTimeout(t.Context(), 3*patience)
	defer cancel()
	first := true
	for state, err := range b.Observe(ctx, cl.Key) {
		switch {
		case err != nil:
			t.Fatalf("%v after %d watches", err, deaf.watches.Load())
		case first:
			first = false
			acquired(t, b, cl)
		case len(state.Holders) == 1:
			want(t, "release", storetest.Release(t.Context(), b, cl), nil)
		default:
			return // also the end was seen
		}
	}
}

// forgetfulWatcher's first watch leaves out the first deletion.
type forgetfulWatcher struct {
	clientv3.Watcher
	forgot atomic.Bool
}

func (w *forgetfulWatcher) Watch(ctx context.Context, key string,
	opts ...clientv3.OpOption,
) clientv3.WatchChan {
	told, from := make(chan clientv3.WatchResponse), w.Watcher.Watch(ctx, key, opts...)
	go func() {
		defer close(told)
		for reply := range from {
			reply.Events = slices.DeleteFunc(slices.Clone(reply.Events),
				func(e *clientv3.Event) bool {
					return e.Type == clientv3.EventTypeDelete &&
						w.forgot.CompareAndSwap(false, true)
				})
			select {
			case told <- reply:
			case <-ctx.Done():
			}
		}
	}()
	return told
}

// An event that is lost is found out, also where others follow all the time.
func TestObserveFindsALostEventOfABusyKey(t *testing.T) {
	inPair(t, []Layout{Etcdctl}, func(t *testing.T, p pair) { // without shadows in the watch
		forgetful := &forgetfulWatcher{Watcher: p.b.client.Watcher}
		p.b.client.Watcher = forgetful
		ctx, cancel := context.WithTimeout(t.Context(), 10*backend.SlowLook)
		defer cancel()
		first := claim("k")
		acquired(t, p.other, first)
		var busy sync.WaitGroup
		defer busy.Wait()
		defer cancel()
		told := 0
		for state, err := range p.b.Observe(ctx, "k") {
			if told++; told == 1 {
				busy.Go(func() {
					want(t, "Release", storetest.Release(t.Context(), p.other, first), nil)
					for ctx.Err() == nil { // under another key of etcd
						next := claim("k")
						acquired(t, p.b, next)
						time.Sleep(time.Second)
						want(t, "Release", storetest.Release(t.Context(), p.b, next), nil)
					}
				})
				continue
			}
			if err != nil {
				t.Fatalf("%v: the hold whose end was left out is held for ever", err)
			}
			if len(state.Holders) == 0 || state.Holders[0].Owner != first.Owner {
				return
			}
		}
	})
}

// In the layout etcdctl a hold that was released is over at once for who observes, also after a
// change of leader.
//
// covers: X20
func TestObserveSeesNoGhost(t *testing.T) {
	inPair(t, []Layout{Native, Etcdctl}, func(t *testing.T, p pair) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		hold := claim("k")
		acquired(t, p.b, hold)
		var since time.Time
		for state, err := range p.other.Observe(ctx, "k") {
			switch {
			case err != nil:
				t.Fatal(err)
			case since.IsZero():
				p.etcd.elect(p.etcd.dice("election"))
				since = time.Now()
				want(t, "Release", storetest.Release(t.Context(), p.b, hold), nil)
			case len(state.Holders) == 0:
				if took := time.Since(since); took >= backend.SlowLook {
					t.Errorf("a hold that was released was seen for %v", took)
				}
				return
			}
		}
	})
}
