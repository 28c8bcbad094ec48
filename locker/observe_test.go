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

func (r *record) Begin(ctx context.Context, op string,
	h locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	if op == locker.OpLock {
		ctx = locker.WithTraceparent(ctx, "00-trace-span-01")
	}
	return ctx, func(end locker.Hold, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, fmt.Sprintf("%s %s token:%v err:%v", op, end.Key, end.Token != 0,
			err != nil))
	}
}

// calls is an observer that calls, by operation, what is to happen when one begins (it has been
// counted by then, and has asked nobody yet) and when one has ended.
type calls struct {
	begin map[string]func()
	end   map[string]func(error)
}

func (c calls) Begin(
	ctx context.Context, op string, _ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	if f := c.begin[op]; f != nil {
		f()
	}
	return ctx, func(_ locker.Hold, err error) {
		if f := c.end[op]; f != nil {
			f(err)
		}
	}
}

func TestObserverSeesEveryOperationOnce(t *testing.T) {
	b := hook()
	r := &record{}
	bubble(t, b, locker.Config{TTL: 3 * time.Second, Observer: r, Namespace: "ns"},
		func(t *testing.T, l *locker.Client[struct{}]) {
			g := mustLock(t, l, "k")
			_, err := l.TryLock(t.Context(), "k")
			wantErr(t, err, backend.ErrHeld)
			state, err := b.Inspect(t.Context(), backend.Namespaced("ns", "k"))
			if err != nil || state.Holders[0].Meta.Traceparent != "00-trace-span-01" ||
				state.Holders[0].Meta.Since.IsZero() {
				t.Errorf("the holder's trace is not in the store: %+v, %v", state, err)
			}
			time.Sleep(1500 * time.Millisecond)
			_ = g.Unlock()
			want := []string{
				"attempt k token:true err:false",
				"attempt k token:false err:true", "lock k token:false err:true",
				"renew k token:true err:false", "release k token:true err:false",
				"lock k token:true err:false",
			}
			if !slices.Equal(r.seen, want) {
				t.Errorf("observed\n%q\nwant\n%q", r.seen, want)
			}
		})
}

// events writes down what happens inside of operations, and which traceparent it is about.
type events struct {
	record
	claims int
}

func (r *events) Begin(ctx context.Context, op string,
	h locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch op {
	case locker.OpLock, locker.OpLease:
		r.claims++
		ctx = locker.WithTraceparent(ctx, fmt.Sprint(op, r.claims))
	case locker.OpWait:
		r.seen = append(r.seen, "waits "+traceparent(ctx))
	default:
		return ctx, func(locker.Hold, error) {}
	}
	return ctx, func(_ locker.Hold, err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.seen = append(r.seen, fmt.Sprintf("end of %s of %s err:%v", op, traceparent(ctx),
			err != nil))
	}
}

// traceparent is the one of the operation that ctx belongs to.
func traceparent(ctx context.Context) string {
	return locker.TraceparentOf(ctx)
}

func (r *events) Event(_ context.Context, e locker.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, strings.TrimSpace(fmt.Sprintf("%s %s %s %d", e.Kind, e.Reason,
		e.Lease.Claim.Traceparent, e.Lease.Passes)))
	if e.Kind == locker.EventGrant && !e.Lease.Until.After(time.Now()) {
		r.seen = append(r.seen, "over since "+e.Lease.Until.String())
	}
}

// The first finds the key free; its lease is passed on once, and for the third the cohort gets
// another.
func TestObserverHearsEvents(t *testing.T) {
	r := &events{}
	cfg := locker.Config{
		Observer: locker.Observers(nil, &record{}, r),
		Wait:     waiting.Config{Passes: 1, PassTime: time.Minute},
	}
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
			"grant  lock1 0",
			"waits lock2", "waits lock3",
			"pass  lock1 0", "wake pass  0", "end of wait of lock2 err:false", "grant  lock1 1",
			"grant  lease4 0", "wake cohort  0", "end of wait of lock3 err:false",
			"grant  lease4 0",
			"end of lock of lock1 err:false", "end of lock of lock2 err:false",
			"end of lease of lease4 err:false", "end of lock of lock3 err:false",
		}
		got := slices.DeleteFunc(slices.Clone(r.seen), func(e string) bool {
			// Of the lease, if its first attempt came before the release.
			return e == "wake grant  0"
		})
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("heard\n%q\nwant\n%q", r.seen, want)
		}
	})
}

// An OpWait is there only while somebody waits, with a claim of his own or in a cohort, and it
// belongs to his OpLock; an OpLease belongs to the first who waits, and ends when nobody does. A
// lease that is lost says so.
func TestObserverSeesWaits(t *testing.T) {
	r := &events{}
	b := hook()
	bubble(t, b, locker.Config{Observer: r, TTL: 3 * time.Second},
		func(t *testing.T, l *locker.Client[struct{}]) {
			other, err := locker.New(b, locker.Bare, locker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			g := mustLock(t, other, "k")
			expect := func(what string, want ...string) {
				t.Helper()
				synctest.Wait()
				r.mu.Lock()
				defer r.mu.Unlock()
				if !slices.Equal(r.seen, want) {
					t.Errorf("%s: heard\n%q\nwant\n%q", what, r.seen, want)
				}
				r.seen = nil
			}
			_, err = l.TryLock(t.Context(), "k")
			wantErr(t, err, backend.ErrHeld)
			expect("TryLock", "end of lock of lock1 err:true")

			_, err = l.Lock(t.Context(), "k", locker.Shared(), locker.WaitLimit(time.Millisecond))
			wantErr(t, err, context.DeadlineExceeded)
			expect("claim of its own", "waits lock2", "end of wait of lock2 err:true",
				"end of lock of lock2 err:true")

			_, err = l.Lock(t.Context(), "k", locker.WaitLimit(time.Millisecond))
			wantErr(t, err, context.DeadlineExceeded)
			expect("cohort", "waits lock3", "end of lease of lease4 err:true",
				"end of wait of lock3 err:true", "end of lock of lock3 err:true")

			got := make(chan *locker.Guard[struct{}])
			go func() { got <- mustLock(t, l, "k") }()
			synctest.Wait()
			_ = g.Unlock()
			g = <-got
			r.mu.Lock()
			r.seen = nil
			r.mu.Unlock()
			b.renew = func(context.Context, backend.Claim) error { return backend.ErrLost }
			<-g.Lost()
			expect("loss", "end of lock of lock5 err:true", "end of lease of lease6 err:true")
			wantErr(t, g.Unlock(), locker.ErrLost)
			expect("Unlock")
			b.renew = nil
			if err := other.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
}

// A nested lock of a client without an observer does not speak in the name of the outer one.
func TestTraceparentIsTheClientsOwn(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{Observer: &record{}},
		func(t *testing.T, l *locker.Client[struct{}]) {
			other, err := locker.New(b, locker.Bare, locker.Config{})
			if err != nil {
				t.Fatal(err)
			}
			g := mustLock(t, l, "k")
			inner, err := other.Lock(g.Context(), "inner")
			if err != nil {
				t.Fatal(err)
			}
			if state, err := b.Inspect(t.Context(), "inner"); err != nil ||
				state.Holders[0].Meta.Traceparent != "" {
				t.Errorf("%+v, %v", state, err)
			}
			_, _ = inner.Unlock(), g.Unlock()
			if err := other.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		})
}
