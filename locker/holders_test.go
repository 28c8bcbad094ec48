package locker_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// following is a loop over Holders.
type following struct {
	mu     sync.Mutex
	tokens []uint64 // of the first holder, 0 for a free key
	errs   []error
	ended  chan struct{}
}

func follow(ctx context.Context, l *locker.Client[struct{}], key string) *following {
	f := &following{ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		for s, err := range l.Holders(ctx, key) {
			f.mu.Lock()
			token := uint64(0)
			if len(s.Holders) > 0 {
				token = s.Holders[0].Token
			}
			if err != nil {
				f.errs = append(f.errs, err)
			} else {
				f.tokens = append(f.tokens, token)
			}
			f.mu.Unlock()
		}
	}()
	synctest.Wait()
	return f
}

func (f *following) seen() []uint64 {
	synctest.Wait()
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.tokens)
}

func (f *following) failures() []error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.errs)
}

// undeclared tells of no changes, as a store behind an old proxy.
type undeclared struct{ *hooked }

func (undeclared) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	return backend.Base{}.Observe(ctx, key)
}

func TestHolders(t *testing.T) {
	b := hook()
	bubble(t, b, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, stop := context.WithCancelCause(t.Context())
		f := follow(ctx, l, "k")
		want := []uint64{0}
		for range 10 {
			g := mustLock(t, l, "k")
			want = append(want, g.Hold().Token, 0)
			time.Sleep(300 * time.Millisecond)
			wantErr(t, g.Unlock(), nil)
			synctest.Wait()
		}
		if got := f.seen(); !slices.Equal(got, want) {
			t.Errorf("Holders told %d, want %d", got, want)
		}
		why := errors.New("enough")
		stop(why)
		<-f.ended
		errs := f.failures()
		if len(errs) != 1 {
			t.Fatalf("errors %v, want the end of ctx", errs)
		}
		wantErr(t, errs[0], context.Canceled, why)
		var e *locker.Error
		if !errors.As(errs[0], &e) || e.Op != "holders" || e.Key != "k" {
			t.Errorf("error %#v", errs[0])
		}
	})
}

// A lease that goroutines of one process hand on is one hold, with its first token.
func TestHoldersOfOneLease(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f := follow(ctx, l, "k")
		first := mustLock(t, l, "k")
		var others sync.WaitGroup
		for range 3 {
			others.Go(func() {
				g, err := l.Lock(t.Context(), "k")
				if err != nil {
					t.Errorf("Lock: %v", err)
					return
				}
				wantErr(t, g.Unlock(), nil)
			})
		}
		synctest.Wait()
		wantErr(t, first.Unlock(), nil)
		others.Wait()
		synctest.Wait()
		if got := f.seen(); !slices.Equal(got, []uint64{0, first.Hold().Token, 0}) {
			t.Errorf("Holders told %d for one lease of four goroutines", got)
		}
		cancel()
		<-f.ended
	})
}

// A store that tells of no changes is looked at each second, and when it signals.
func TestHoldersByLooking(t *testing.T) {
	for name, watch := range map[string]func(context.Context,
		backend.Claim) (<-chan backend.Wake, error){
		"signals": nil,
		"silent": func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
			return nil, errors.ErrUnsupported
		},
		"closed": func(context.Context, backend.Claim) (<-chan backend.Wake, error) {
			none := make(chan backend.Wake)
			close(none)
			return none, nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := hook()
			b.watch = watch
			bubble(t, undeclared{b}, locker.Config{},
				func(t *testing.T, l *locker.Client[struct{}]) {
					ctx, cancel := context.WithCancel(t.Context())
					f := follow(ctx, l, "k")
					g := mustLock(t, l, "k")
					time.Sleep(1100 * time.Millisecond)
					if got := f.seen(); !slices.Equal(got, []uint64{0, g.Hold().Token}) {
						t.Errorf("Holders told %d", got)
					}
					wantErr(t, g.Unlock(), nil)
					if watch != nil {
						time.Sleep(time.Second)
					}
					if got := f.seen(); len(got) != 3 || got[2] != 0 {
						t.Errorf("Holders told %d, want free at the end", got)
					}
					cancel()
					<-f.ended
				})
		})
	}
}

// unreachable is a store whose observation has gaps.
type unreachable struct{ *hooked }

func (unreachable) Observe(ctx context.Context, _ string) iter.Seq2[backend.State, error] {
	held := backend.State{Holders: []backend.Holder{{Owner: "o", ID: "o", Token: 7}}}
	elements := []struct {
		state backend.State
		err   error
	}{
		{held, nil},
		{held, nil},
		{err: errSilence},
		{err: backend.ErrUnavailable},
		{held, nil},
		{backend.State{}, nil},
		{err: backend.ErrDenied},
	}
	return func(yield func(backend.State, error) bool) {
		for _, e := range elements {
			if !yield(e.state, e.err) {
				return
			}
		}
	}
}

// What is told twice comes once, an outage is one error and the state comes again, and a refusal is
// the end.
func TestHoldersErrors(t *testing.T) {
	bubble(t, unreachable{hook()}, locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		f := follow(t.Context(), l, "k")
		<-f.ended
		if got := f.seen(); !slices.Equal(got, []uint64{7, 7, 0}) {
			t.Errorf("Holders told %d", got)
		}
		errs := f.failures()
		if len(errs) != 2 {
			t.Fatalf("errors %v, want one of the outage and the refusal", errs)
		}
		wantErr(t, errs[0], errSilence)
		wantErr(t, errs[1], backend.ErrDenied)
	})
}

// Close ends the loops, also of one that is slow, which it does not wait for.
func TestHoldersEndWithClose(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		f := follow(ctx, l, "k")
		slow := make(chan error, 1)
		entered, goOn := make(chan struct{}), make(chan struct{})
		go func() {
			for _, err := range l.Holders(ctx, "k") {
				if err != nil {
					slow <- err
					return
				}
				close(entered)
				<-goOn
			}
		}()
		<-entered
		wantErr(t, l.Close(), nil)
		<-f.ended
		close(goOn)
		for _, err := range append(f.failures(), <-slow) {
			wantErr(t, err, locker.ErrClosed)
		}
		for _, err := range l.Holders(t.Context(), "k") {
			wantErr(t, err, locker.ErrClosed)
		}
	})
}

// A caller that is slow is told of what happened meanwhile.
func TestHoldersWaitForTheCaller(t *testing.T) {
	bubble(t, hook(), locker.Config{}, func(t *testing.T, l *locker.Client[struct{}]) {
		n := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for s, err := range l.Holders(ctx, "k") {
			if err != nil {
				t.Fatal(err)
			}
			if n == 0 {
				for range 10 {
					g := mustLock(t, l, "k")
					synctest.Wait()
					wantErr(t, g.Unlock(), nil)
					synctest.Wait()
				}
			}
			if n++; n == 21 {
				if len(s.Holders) > 0 {
					t.Errorf("the last state is %+v", s)
				}
				break
			}
		}
	})
}
