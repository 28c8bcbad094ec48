// Package recordtest tests stores of records: the conformance suite of all backends on any
// [record.Store], a store that misbehaves as stores may, and one in memory.
//
//	func TestStore(t *testing.T) {
//		recordtest.Run(t, recordtest.Harness{
//			Open: func(t testing.TB) (record.Store, record.Config) { … },
//		})
//	}
package recordtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/backend/record"
)

// A Harness is how the suite reaches the store under test.
type Harness struct {
	// Open returns another client of the store, as another process would have, and what it can do.
	// It may be called concurrently. What it has opened is closed by the Config's Close.
	Open func(t testing.TB) (record.Store, record.Config)

	// Bubble, Brief and Restart are as in [backendtest.Harness].
	Bubble, Brief bool
	Restart       func(t testing.TB)
}

// Run runs the suite of [backendtest.Run] on the backend that [record.New] makes of the store, as
// subtests of t. Beside it the suite puts values of other programs into the store, and deletes
// records behind everybody's back; and it has values that this version must not take for a free
// lock.
func Run(t *testing.T, h Harness) {
	t.Helper()
	t.Run("unreadable", func(t *testing.T) {
		if h.Bubble {
			synctest.Test(t, func(t *testing.T) { unreadable(t, h) })
		} else {
			unreadable(t, h)
		}
	})
	backendtest.Run(t, backendtest.Harness{
		Open: func(t testing.TB) backend.Backend {
			store, cfg := h.Open(t)
			return record.New(store, cfg)
		},
		Bubble: h.Bubble, Brief: h.Brief, Restart: h.Restart,
		PutForeign: func(t testing.TB, key string) (intact func() bool) {
			foreign := []byte("another program's")
			put(t, h, key, foreign)
			return func() bool { return bytes.Equal(get(t, h, key), foreign) }
		},
		Drop: func(t testing.TB, key string) {
			skew := put(t, h, key, nil)
			// Tokens go by the clock from here on, which must have gone on.
			time.Sleep(2*skew + time.Millisecond)
		},
	})
}

// unreadable puts records into the store that cannot be read: they are foreign to every verb, and
// stay as they are until somebody deletes them.
//
// covers: R24
func unreadable(t *testing.T, h Harness) {
	key := "rt-" + strings.ToLower(rand.Text()[:10])
	r := record.Record{}
	c := backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: time.Minute, NoneInFlight: true}
	if _, err := r.Acquire(c, time.Now()); err != nil {
		t.Fatal(err)
	}
	whole := r.Encode(key)
	newer, damaged := bytes.Clone(whole), bytes.Clone(whole)
	newer[3]++ // the version
	damaged[len(damaged)/2] ^= 0x10
	for name, value := range map[string][]byte{
		"of a newer version": newer, "damaged": damaged, "cut off": whole[:len(whole)-1],
		"another key's": r.Encode(key + "x"),
	} {
		put(t, h, key, value)
		b := record.New(h.Open(t))
		_, acquired := b.TryAcquire(t.Context(),
			backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: time.Minute})
		_, released := b.Release(t.Context(), c)
		_, inspected := b.Inspect(t.Context(), key)
		for verb, err := range map[string]error{
			"TryAcquire": acquired, "Renew": b.Renew(t.Context(), c), "Release": released,
			"Inspect": inspected,
		} {
			if !errors.Is(err, backend.ErrForeign) {
				t.Errorf("%s of a record that is %s = %v, want ErrForeign: a lock that cannot be "+
					"read is not free", verb, name, err)
			}
		}
		if !bytes.Equal(get(t, h, key), value) {
			t.Errorf("a record that is %s was changed", name)
		}
		put(t, h, key, nil)
		if err := b.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	}
}

// put writes value behind everybody's back.
func put(t testing.TB, h Harness, key string, value []byte) (skew time.Duration) {
	t.Helper()
	store, cfg := h.Open(t)
	err := store.Change(context.Background(), key, func([]byte, time.Time) ([]byte, error) {
		return value, nil
	})
	if cfg.Close != nil {
		err = errors.Join(err, cfg.Close())
	}
	if err != nil {
		t.Errorf("Change of %q = %v", key, err)
	}
	return cfg.Skew
}

func get(t testing.TB, h Harness, key string) []byte {
	t.Helper()
	store, cfg := h.Open(t)
	value, _, err := store.Read(context.Background(), key)
	if cfg.Close != nil {
		err = errors.Join(err, cfg.Close())
	}
	if err != nil {
		t.Errorf("Read of %q = %v", key, err)
	}
	return value
}
