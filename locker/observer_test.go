package locker_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

type record struct {
	mu   sync.Mutex
	seen []string
}

func (r *record) Begin(ctx context.Context, op string, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	if op == locker.OpWait {
		ctx = locker.WithTraceparent(ctx, "00-trace-span-01")
	}
	return ctx, func(end locker.Hold, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, fmt.Sprintf("%s %s token:%v err:%v", op, end.Key, end.Token != 0, err != nil))
	}
}

func TestObserverSeesEveryOperationOnce(t *testing.T) {
	b := hook()
	r := &record{}
	bubble(t, b, locker.Config{TTL: 3 * time.Second, Observer: r, Namespace: "ns"}, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		_, err := l.TryLock(t.Context(), "k")
		wantErr(t, err, backend.ErrHeld)
		state, err := b.Inspect(t.Context(), backend.Namespaced("ns", "k"))
		if err != nil || state.Holders[0].Meta.Traceparent != "00-trace-span-01" || state.Holders[0].Meta.Since.IsZero() {
			t.Errorf("the holder's trace is not in the store: %+v, %v", state, err)
		}
		time.Sleep(1500 * time.Millisecond)
		_ = g.Unlock()
		want := []string{
			"attempt k token:true err:false", "wait k token:true err:false",
			"attempt k token:false err:true", "wait k token:false err:true",
			"renew k token:true err:false", "release k token:true err:false", "hold k token:true err:false",
		}
		if !slices.Equal(r.seen, want) {
			t.Errorf("observed\n%q\nwant\n%q", r.seen, want)
		}
	})
}
