package locker_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
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

// events writes down what happens inside of operations, and which traceparent it is about.
type events struct {
	record
	waits int
}

func (r *events) Begin(ctx context.Context, op string, h locker.Hold) (context.Context, func(locker.Hold, error)) {
	if op == locker.OpWait || op == locker.OpErrand {
		r.mu.Lock()
		r.waits++
		ctx = locker.WithTraceparent(ctx, fmt.Sprint(op, r.waits))
		r.mu.Unlock()
	}
	return ctx, func(locker.Hold, error) {}
}

func (r *events) Event(_ context.Context, e locker.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %d", e.Kind, e.Reason, e.Lease.Traceparent, e.Lease.Passes)))
	if e.Kind == locker.EventGrant && !e.Lease.Until.After(time.Now()) {
		r.seen = append(r.seen, "over since "+e.Lease.Until.String())
	}
}

// The first asks for itself; the lease is passed on once, and the third gets another.
func TestObserverHearsEvents(t *testing.T) {
	r := &events{}
	cfg := locker.Config{Observer: locker.Observers(nil, &record{}, r), Wait: waiting.Config{Passes: 1, PassTime: time.Minute}}
	bubble(t, hook(), cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() {
				g := mustLock(t, l, "k")
				time.Sleep(100 * time.Millisecond)
				_ = g.Unlock()
			})
			synctest.Wait()
		}
		wg.Wait()
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		want := []string{
			"grant  wait1 0", "wake pass  0", "grant  wait1 1", "pass  wait1 0", "wake line  0", "grant  errand4 0",
		}
		got := slices.Clone(r.seen)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("heard\n%q\nwant\n%q", r.seen, want)
		}
	})
}

// Close tells the observer when everything else was told.
func TestObserverHearsClose(t *testing.T) {
	r := &events{}
	c, err := locker.New(hook(), locker.Bare, locker.Config{Observer: r})
	if err != nil {
		t.Fatal(err)
	}
	_ = mustLock(t, c, "k").Unlock()
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if want := []string{"grant  wait1 0", "close   0"}; !slices.Equal(r.seen, want) {
		t.Errorf("heard %q, want %q", r.seen, want)
	}
}

// A nested lock of a client without an observer does not speak in the name of the outer one.
func TestTraceparentIsTheClientsOwn(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{Observer: &record{}}, func(t *testing.T, l *locker.Client[struct{}]) {
		other, err := locker.New(b, locker.Bare, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		g := mustLock(t, l, "k")
		inner, err := other.Lock(g.Context(), "inner")
		if err != nil {
			t.Fatal(err)
		}
		if state, err := b.Inspect(t.Context(), "inner"); err != nil || state.Holders[0].Meta.Traceparent != "" {
			t.Errorf("%+v, %v", state, err)
		}
		_, _ = inner.Unlock(), g.Unlock()
		if err := other.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
