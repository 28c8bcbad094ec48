package record_test

import (
	"context"
	"errors"
	"iter"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/backend/record/recordtest"
)

// silent is a store that gives no answer while it is away: not to a read, and to a change when it
// is made.
type silent struct {
	record.Store
	away atomic.Bool
}

var errAway = errors.New("no answer")

func (s *silent) Change(ctx context.Context, key string,
	f func([]byte, time.Time) ([]byte, error),
) error {
	err := s.Store.Change(ctx, key, f)
	if s.away.Load() {
		return errAway
	}
	return err
}

func (s *silent) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	if s.away.Load() {
		return nil, time.Time{}, errAway
	}
	return s.Store.Read(ctx, key)
}

// No verb takes a store that gives no answer for one that has nothing: what is asked is unknown.
// Whoever watches meanwhile hears of what happened when the store answers again.
//
// covers: A2, A3, W1
func TestNoAnswerIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := recordtest.NewMemory()
		s := &silent{Store: record.ByVersion(m)}
		b := record.New(s, m.Config())
		defer func() { _ = b.Close() }()
		claim := func(key string) backend.Claim {
			return backend.Claim{
				Key: key, Owner: backend.NewOwner(), TTL: time.Hour,
				WaiterTTL: time.Minute,
			}
		}
		held, waits := claim("k"), claim("k")
		waits.Queue = true
		g, err := b.TryAcquire(t.Context(), held)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := b.TryAcquire(t.Context(), waits); !errors.Is(err, backend.ErrHeld) {
			t.Fatalf("TryAcquire of who waits = %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		wake, err := b.Watch(ctx, waits)
		if err != nil {
			t.Fatal(err)
		}
		first := func(all []error, err error) error { return errors.Join(err, errors.Join(all...)) }
		s.away.Store(true)
		for verb, ask := range map[string]func() error{
			"TryAcquire": func() error {
				_, err := b.TryAcquire(t.Context(), claim("free"))
				return err
			},
			"Renew": func() error { return b.Renew(t.Context(), held) },
			"Release": func() error {
				_, err := b.Release(t.Context(), claim("another"))
				return err
			},
			"Heartbeat": func() error {
				return first(b.Heartbeat(t.Context(), []backend.Claim{waits}))
			},
			"ReleaseAll": func() error {
				return first(b.ReleaseAll(t.Context(), []backend.Claim{held}))
			},
			"Inspect": func() error { _, err := b.Inspect(t.Context(), "k"); return err },
			"Saved":   func() error { _, err := b.Saved(t.Context(), "k"); return err },
			"ForceRelease": func() error {
				_, err := b.ForceRelease(t.Context(), "k", g.Token)
				return err
			},
			"List": func() (err error) {
				for _, err = range b.List(t.Context(), "") {
				}
				return err
			},
			"Observe": func() error {
				for _, err := range b.Observe(t.Context(), "k") {
					return err
				}
				return nil
			},
		} {
			if err := ask(); !errors.Is(err, errAway) || backend.AnswerOf(err) != backend.Unknown {
				t.Errorf("%s while the store gives no answer = %v, want unknown, because of %v",
					verb, err, errAway)
			}
		}
		time.Sleep(2 * backend.SlowLook) // looks get no answer either
		s.away.Store(false)
		for len(wake) > 0 {
			<-wake
		}
		synctest.Wait()
		time.Sleep(2 * backend.SlowLook)
		synctest.Wait()
		if len(wake) == 0 {
			t.Errorf("who waits was told nothing when the store answered again")
		}
		var listed []string
		for l, err := range b.List(t.Context(), "") {
			if err != nil {
				t.Error(err)
			}
			listed = append(listed, l.Key)
		}
		slices.Sort(listed)
		if !slices.Equal(listed, []string{"free", "k"}) {
			t.Errorf("List when the store answers = %v", listed)
		}
	})
}

// A list of a store that gives no keys ends after Config.Timeout, however long the keys before took
// together; Close waits for it no longer, and nothing of the store is called after that.
//
// covers: E2
func TestListOfASilentStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := recordtest.NewMemory()
		cfg := m.Config()
		cfg.Timeout = 2 * time.Second
		const keys = 10 // before it is silent
		under, closed := 0, false
		cfg.Keys = func(ctx context.Context, _ string) iter.Seq2[string, error] {
			return func(yield func(string, error) bool) {
				for range keys {
					time.Sleep(cfg.Timeout - time.Millisecond)
					if !yield("k", ctx.Err()) {
						return
					}
				}
				under++
				<-ctx.Done()
				under--
				yield("", ctx.Err())
			}
		}
		cfg.Close = func() error {
			if closed = true; under > 0 {
				t.Error("the store is closed while keys are asked for")
			}
			return nil
		}
		b := record.New(record.ByVersion(m), cfg)
		held := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Hour}
		if _, err := b.TryAcquire(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		list := func(ctx context.Context) (listed int, err error) {
			for _, err = range b.List(ctx, "") {
				if err == nil {
					listed++
				}
			}
			return listed, err
		}
		began, all := time.Now(), keys*(cfg.Timeout-time.Millisecond)
		n, err := list(t.Context())
		if took := time.Since(began); n != keys || !errors.Is(err, backend.ErrUnavailable) ||
			took != all+cfg.Timeout {
			t.Errorf("List = %d keys, %v after %v; want %d, ErrUnavailable, %v", n, err, took, keys,
				all+cfg.Timeout)
		}
		ctx, cancel := context.WithTimeout(t.Context(), all+time.Second)
		defer cancel()
		if n, err := list(ctx); n != keys || !errors.Is(err, context.DeadlineExceeded) ||
			errors.Is(err, backend.ErrUnavailable) {
			t.Errorf("List whose ctx ends = %d keys, %v", n, err)
		}
		done := make(chan error)
		go func() { _, err := list(t.Context()); done <- err }()
		time.Sleep(all + time.Second)
		if err := b.Close(); err != nil || !closed {
			t.Errorf("Close = %v, %v", err, closed)
		}
		if err := <-done; err == nil {
			t.Error("a list that Close has waited for was whole")
		}
		if _, err := list(t.Context()); !errors.Is(err, backend.ErrClosed) {
			t.Errorf("List after Close = %v, want ErrClosed", err)
		}
	})
}

// Who closes the backend in the middle of a list is not waited for, and is told.
func TestCloseWithinAList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := recordtest.NewMemory()
		b := record.New(record.ByVersion(m), m.Config())
		for _, key := range []string{"a", "b"} {
			c := backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: time.Hour}
			if _, err := b.TryAcquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		n, last := 0, error(nil)
		for _, err := range b.List(t.Context(), "") {
			if n, last = n+1, err; err == nil {
				_ = b.Close()
			}
		}
		if n != 2 || !errors.Is(last, backend.ErrClosed) {
			t.Errorf("%d elements, the last of which is %v, want a key and ErrClosed", n, last)
		}
	})
}
