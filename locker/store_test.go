package locker_test

import (
	"context"
	"encoding/base64"
	"errors"
	"log/slog"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// stock runs f in a bubble with a Store of ints.
func stock(t *testing.T, b backend.Backend, cfg locker.Config,
	f func(t *testing.T, s *locker.Store[int]),
) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, err := locker.NewStore(b, locker.JSON[int](), cfg)
		if err != nil {
			t.Fatal(err)
		}
		f(t, s)
		if err := s.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
}

func add(n int) func(context.Context, int) (int, error) {
	return func(_ context.Context, v int) (int, error) { return v + n, nil }
}

func wantStock(t *testing.T, s *locker.Store[int], key string, want int) (token uint64) {
	t.Helper()
	got, token, err := s.Get(context.Background(), key)
	if err != nil || got != want {
		t.Errorf("Get(%q) = %d, %v, want %d", key, got, err, want)
	}
	return token
}

func TestStore(t *testing.T) {
	b := hook()
	stock(t, b, locker.Config{Namespace: "shop"}, func(t *testing.T, s *locker.Store[int]) {
		if token := wantStock(t, s, "k", 0); token != 0 {
			t.Errorf("token %d of a value that was never saved", token)
		}
		var last uint64
		for i := range 3 {
			if err := s.Update(t.Context(), "k", add(1)); err != nil {
				t.Fatal(err)
			}
			token := wantStock(t, s, "k", i+1)
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
		}
		if n, m := b.acquires.Load(), b.releases.Load(); n != 3 || m != 3 {
			t.Errorf("three Updates took %d attempts and %d releases", n, m)
		}
		wantStock(t, s, "other", 0)
		errSoldOut := errors.New("sold out")
		err := s.Update(t.Context(), "k", func(context.Context, int) (int, error) {
			return 99, errSoldOut
		})
		wantErr(t, err, errSoldOut)
		func() {
			defer func() { _ = recover() }()
			_ = s.Update(t.Context(), "k", func(context.Context, int) (int, error) {
				panic("at work")
			})
		}()
		if token := wantStock(t, s, "k", 3); token != last {
			t.Errorf("the token is %d, want %d: nothing was saved since", token, last)
		}
		wantHeld(t, b, "shop~k", false)

		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				if err := s.Update(t.Context(), "k", add(1)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantStock(t, s, "k", 23)
	})
}

// A holder that lost its lock saves nothing, whether it noticed or not.
func TestStoreSavesNothingWithoutTheLock(t *testing.T) {
	b, renew, _ := switchable()
	var mine backend.Claim
	b.acquire = func(ctx context.Context, c backend.Claim) (backend.Grant, error) {
		mine = c
		return b.Backend.TryAcquire(ctx, c)
	}
	stock(t, b, locker.Config{TTL: time.Minute}, func(t *testing.T, s *locker.Store[int]) {
		for what, lose := range map[string]func(){
			"the store says so": func() { _, _ = b.Backend.Release(t.Context(), mine) },
			"the holder knows": func() {
				_, _ = b.Backend.Release(t.Context(), mine)
				time.Sleep(time.Minute)
			},
			"it was cut off": func() { renew(silent); time.Sleep(2 * time.Minute) },
			"it was paused": func() {
				renew(silent)
				time.Sleep(59 * time.Second)
				_, _ = b.Backend.Release(t.Context(), mine)
			},
			"it holds for too long": func() { time.Sleep(time.Hour) },
			"it holds a moment too long": func() { // and the store has the lease still
				time.Sleep(2 * time.Second)
			},
		} {
			before := wantNow(t, s)
			var opts []locker.Option
			want := locker.ErrLost
			if strings.Contains(what, "too long") {
				opts, want = append(opts, locker.MaxHold(time.Second)), locker.ErrMaxHold
			}
			err := s.Update(t.Context(), "k", func(_ context.Context, v int) (int, error) {
				lose()
				if strings.Contains(what, "too long") {
					return v + 1000, nil
				}
				if err := other(t, b, v+1); err != nil {
					t.Errorf("%s: another saves: %v", what, err)
				}
				return v + 1000, nil
			}, opts...)
			renew(nil)
			wantErr(t, err, want)
			if errors.Is(err, locker.ErrUnknown) {
				t.Errorf("%s: %v, want a definite no", what, err)
			}
			if now := wantNow(t, s); now >= before+1000 {
				t.Errorf("%s: it saved %d over %d", what, now, before)
			}
		}
	})
}

// fn's ctx is that of the hold: it hears of a loss and of the caller's end, leads to the token, and
// an Update of the same key under it does not wait for itself.
func TestUpdateContext(t *testing.T) {
	b, renew, _ := switchable()
	stock(t, b, locker.Config{TTL: time.Minute}, func(t *testing.T, s *locker.Store[int]) {
		var kept context.Context
		update := func(ctx context.Context,
			fn func(ctx context.Context, v int) (int, error),
		) error {
			return s.Update(ctx, "k", func(ctx context.Context, v int) (int, error) {
				kept = ctx
				return fn(ctx, v)
			})
		}
		err := update(t.Context(), func(ctx context.Context, v int) (int, error) {
			renew(silent)
			<-ctx.Done()
			wantErr(t, context.Cause(ctx), locker.ErrLost)
			return 0, ctx.Err()
		})
		renew(nil)
		wantErr(t, err, locker.ErrLost, context.Canceled)
		began := time.Now()
		err = update(context.Background(), func(ctx context.Context, v int) (int, error) {
			wantErr(t, s.Update(ctx, "k", add(1)), locker.ErrWouldDeadlock, locker.ErrNotAcquired)
			if err := s.Update(ctx, "another", add(7)); err != nil {
				t.Errorf("Update of another key: %v", err)
			}
			return v + 1, nil
		})
		if took := time.Since(began); err != nil || took > 0 {
			t.Errorf("Update in which another one of the key is refused = %v, after %v", err, took)
		}
		wantErr(t, context.Cause(kept), locker.ErrUnlocked)
		wantStock(t, s, "another", 7)
		caller, leave := context.WithCancel(t.Context())
		var token uint64
		err = update(caller, func(ctx context.Context, v int) (int, error) {
			leave()
			<-ctx.Done()
			h, _ := locker.HoldFrom(ctx)
			token = h.Token
			return v + 1, nil // the hold goes on
		})
		if got := wantStock(t, s, "k", 2); err != nil || got != token {
			t.Errorf("Update whose caller left = %v, saved by token %d, want %d", err, got, token)
		}
	})
}

func silent(ctx context.Context, _ backend.Claim) error { return errSilence }

// wantNow is the value of k.
func wantNow(t *testing.T, s *locker.Store[int]) int {
	t.Helper()
	v, _, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// other saves v as another process.
func other(t *testing.T, b *hooked, v int) error {
	t.Helper()
	s, err := locker.NewStore(b.Backend, locker.JSON[int](), locker.Config{})
	if err != nil {
		return err
	}
	defer s.Close()
	return s.Update(t.Context(), "k", func(context.Context, int) (int, error) { return v, nil })
}

// Three answers: a save that was not answered and is repeated in time is known to be made; after
// the deadline nobody can tell.
func TestStoreSaveWithoutAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		// whether the request that gets no answer is executed; whether only the first has none
		executed, first bool
		takes           time.Duration // each
		unknown         bool
		want            int
	}{
		"reply lost":                 {true, true, 0, false, 1},
		"request lost":               {false, true, 0, false, 1},
		"no answer, executed":        {true, false, 0, true, 1},
		"no answer, not executed":    {false, false, 0, true, 0},
		"reply lost, long ago":       {true, true, 2900 * time.Millisecond, false, 1},
		"request lost, for too long": {false, true, 2900 * time.Millisecond, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b, _, release := switchable()
			stock(t, b, locker.Config{TTL: 3 * time.Second, ReleaseTimeout: 20 * time.Second},
				func(t *testing.T, s *locker.Store[int]) {
					var n atomic.Int64
					release(func(ctx context.Context, c backend.Claim) error {
						if n.Add(1) > 1 && test.first {
							return storetest.Release(ctx, b.Backend, c)
						}
						if test.executed {
							_, _ = b.Backend.Release(context.Background(), c)
						}
						time.Sleep(test.takes)
						return errSilence
					})
					err := s.Update(t.Context(), "k", func(_ context.Context, v int) (int, error) {
						time.Sleep(test.takes / 2)
						return v + 1, nil
					})
					release(nil)
					switch {
					case test.unknown:
						wantErr(t, err, locker.ErrUnknown)
					case err != nil:
						t.Errorf("Update = %v", err)
					}
					time.Sleep(time.Minute)
					wantStock(t, s, "k", test.want)
				})
		})
	}
}

// A save that got no answer is not taken for made because the hold is gone: somebody may have ended
// it meanwhile, as a person by force, and another may have saved since.
//
// covers: A2
func TestStoreSaveAfterTheHoldWasEnded(t *testing.T) {
	b, _, release := switchable()
	stock(t, b, locker.Config{TTL: 3 * time.Second}, func(t *testing.T, s *locker.Store[int]) {
		release(func(ctx context.Context, c backend.Claim) error {
			state, err := b.Inspect(ctx, "k")
			if err == nil {
				_, err = b.ForceRelease(ctx, "k", state.Holders[0].Token)
			}
			release(nil)
			return errors.Join(errSilence, err)
		})
		wantErr(t, s.Update(t.Context(), "k", add(1)), locker.ErrUnknown)
		wantStock(t, s, "k", 0)
	})
}

// A save that is under way when the lease ends, and is refused, was not made.
func TestStoreSaveThatComesTooLate(t *testing.T) {
	b, _, release := switchable()
	stock(t, b, locker.Config{TTL: 2 * time.Second}, func(t *testing.T, s *locker.Store[int]) {
		release(func(ctx context.Context, c backend.Claim) error {
			time.Sleep(2500 * time.Millisecond)
			return storetest.Release(ctx, b.Backend, c)
		})
		err := s.Update(t.Context(), "k", add(1))
		release(nil)
		wantErr(t, err, locker.ErrLost)
		if errors.Is(err, locker.ErrUnknown) {
			t.Errorf("%v, want a definite no", err)
		}
		wantStock(t, s, "k", 0)
	})
}

// What cannot be read or written is an error that names key and codec, and what is stored stays.
func TestStoreCodecErrorsLoseNothing(t *testing.T) {
	b := hook()
	stock(t, b, locker.Config{}, func(t *testing.T, s *locker.Store[int]) {
		texts, err := locker.NewStore(b, locker.JSON[string](), locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer texts.Close()
		gone := errors.New("no such form")
		odd, err := locker.NewStore(b, locker.Codec[int]{
			Name: "odd", Encode: func(int) ([]byte, error) {
				return nil, gone
			}, Decode: func([]byte) (int, error) { return 0, nil },
		}, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer odd.Close()
		if err := texts.Update(t.Context(), "k", func(context.Context, string) (string, error) {
			return "seven", nil
		}); err != nil {
			t.Fatal(err)
		}
		_, _, getErr := s.Get(t.Context(), "k")
		for what, err := range map[string]error{
			"Update": s.Update(t.Context(), "k", func(context.Context, int) (int, error) {
				t.Error("fn is called with what is no value")
				return 1, nil
			}),
			"Get":           getErr,
			"another codec": odd.Update(t.Context(), "k", add(1)),
			"cannot encode": odd.Update(t.Context(), "new", add(1)),
			"too long": texts.Update(t.Context(), "k",
				func(context.Context, string) (string, error) {
					return strings.Repeat("x", backend.MaxState), nil
				}),
		} {
			var codec *locker.CodecError
			var of *locker.Error
			if !errors.As(err, &codec) || !errors.As(err, &of) ||
				!strings.Contains(err.Error(), codec.Codec) || of.Key == "" {
				t.Errorf("%s: %v, want an error that names key and codec", what, err)
			}
		}
		wantErr(t, odd.Update(t.Context(), "new", add(1)), gone)
		if v, _, err := texts.Get(t.Context(), "k"); err != nil || v != "seven" {
			t.Errorf("Get = %q, %v", v, err)
		}
		if v, err := b.Saved(t.Context(), "new"); v != nil || err != nil {
			t.Errorf("stored %q, %v", v, err)
		}
		raw := backend.Claim{Key: "raw", Owner: backend.NewOwner(), TTL: time.Minute}
		if _, err := b.TryAcquire(t.Context(), raw); err != nil {
			t.Fatal(err)
		}
		raw.Save = []byte("7")
		if _, err := b.Release(t.Context(), raw); err != nil {
			t.Fatal(err)
		}
		var codec *locker.CodecError
		if err := s.Update(t.Context(), "raw", add(1)); !errors.As(err, &codec) {
			t.Errorf("Update of what no Store has saved = %v", err)
		}
	})
}

func TestStoreCodecs(t *testing.T) {
	b := hook()
	trip(t, b, "text", locker.Text[netip.Addr](), netip.MustParseAddr("2001:db8::1"))
	trip(t, b, "binary", locker.Binary[time.Time](), time.Unix(1700000000, 0).UTC())
	trip(t, b, "json", locker.JSON[map[string]int](), map[string]int{"a": 1})
	trip(t, b, "own", locker.Codec[string]{
		"b64",
		func(v string) ([]byte, error) {
			return []byte(base64.StdEncoding.EncodeToString([]byte(v))), nil
		},
		func(data []byte) (string, error) {
			v, err := base64.StdEncoding.DecodeString(string(data))
			return string(v), err
		},
	}, "line\nline \x00")
}

// trip saves v with a codec, and gets it again.
func trip[T any](t *testing.T, b backend.Backend, key string, codec locker.Codec[T], v T) {
	t.Helper()
	s, err := locker.NewStore(b, codec, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Update(t.Context(), key, func(context.Context, T) (T, error) {
		return v, nil
	}); err != nil {
		t.Errorf("%s: Update: %v", key, err)
	}
	err = s.Update(t.Context(), key, func(_ context.Context, got T) (T, error) {
		if !reflect.DeepEqual(got, v) {
			t.Errorf("%s: %v, want %v", key, got, v)
		}
		return got, nil
	})
	if got, _, getErr := s.Get(t.Context(), key); err != nil || getErr != nil ||
		!reflect.DeepEqual(got, v) {
		t.Errorf("%s: Get = %v, %v, %v, want %v", key, got, err, getErr, v)
	}
}

// A Store needs a backend that keeps values, and a lock that one holds.
func TestStoreRefuses(t *testing.T) {
	if _, err := locker.NewStore(plain(), locker.JSON[int](), locker.Config{}); !errors.Is(err,
		errors.ErrUnsupported) {
		t.Errorf("NewStore on a backend without state: %v", err)
	}
	for _, codec := range []locker.Codec[int]{
		{},
		{Name: "no functions"},
		{"a b", locker.JSON[int]().Encode, locker.JSON[int]().Decode},
	} {
		if _, err := locker.NewStore(hook(), codec, locker.Config{}); !errors.Is(err,
			backend.ErrInvalid) {
			t.Errorf("NewStore with codec %q: %v", codec.Name, err)
		}
	}
	if _, err := locker.NewStore(nil, locker.JSON[int](), locker.Config{}); !errors.Is(err,
		backend.ErrInvalid) {
		t.Errorf("NewStore without a backend: %v", err)
	}
	b := hook()
	s, err := locker.NewStore(b, locker.JSON[int](),
		locker.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	for _, opt := range []locker.Option{locker.Shared(), locker.Permit(2), locker.Reentrant("me")} {
		wantErr(t, s.Update(t.Context(), "k", add(1), opt), backend.ErrInvalid,
			locker.ErrNotAcquired)
	}
	wantErr(t, s.Update(t.Context(), "k", nil), backend.ErrInvalid)
	wantErr(t, s.Update(t.Context(), "", add(1)), backend.ErrInvalid)
	if _, _, err := s.Get(t.Context(), ""); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("Get of no key: %v", err)
	}
	if b.acquires.Load() > 0 {
		t.Error("the store was asked")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	wantErr(t, s.Update(t.Context(), "k", add(1)), locker.ErrClosed)
	if _, _, err := s.Get(t.Context(), "k"); !errors.Is(err, locker.ErrClosed) {
		t.Errorf("Get after Close: %v", err)
	}
}
