package membackend_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/history"
)

// A key that was forgotten goes on above every token that it had, also if another with lower tokens
// was forgotten after it: the clock is no help where it has been set back.
//
// covers: K1
func TestTokensOfForgottenKeysRise(t *testing.T) {
	b := membackend.New()
	defer b.Close()
	acquire := func(key string, least uint64) uint64 {
		t.Helper()
		c := backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: time.Minute, MinToken: least}
		g, err := b.TryAcquire(t.Context(), c)
		if err == nil && least > 0 {
			err = b.Renew(t.Context(), c)
		}
		if err != nil {
			t.Fatal(err)
		}
		return max(g.Token, least)
	}
	low := acquire("other", 0)
	high := acquire("k", low+1_000_000_000_000)
	b.Drop("k")
	b.Drop("other")
	if token := acquire("k", 0); token <= high {
		t.Errorf("token %d of k was followed by %d", high, token)
	}
}

// Whoever was stopped for longer than its lease may wake up, renew and release: it has lost the
// lock, and the next is told of it all the same, for a minute. Then nothing of the key is left.
//
// covers: G6
func TestWhoDiedIsToldOfForAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		defer b.Close()
		claim := func(key string) backend.Claim {
			return backend.Claim{
				Key: key, Owner: backend.NewOwner(), TTL: time.Second,
				NoneInFlight: true,
			}
		}
		acquire := func(c backend.Claim) backend.Grant {
			t.Helper()
			g, err := b.TryAcquire(t.Context(), c)
			if err != nil {
				t.Fatal(err)
			}
			return g
		}
		dead, forgotten := claim("k"), claim("forgotten")
		g := acquire(dead)
		acquire(forgotten)
		time.Sleep(time.Minute)
		renewed := b.Renew(t.Context(), dead)
		_, released := b.Release(t.Context(), dead)
		if !errors.Is(renewed, backend.ErrLost) || !errors.Is(released, backend.ErrLost) {
			t.Error(renewed, released)
		}
		if next := acquire(claim("k")); next.TookOver != g.Token {
			t.Errorf("the next is told of token %d, want %d", next.TookOver, g.Token)
		}
		time.Sleep(time.Second)
		if err := b.Renew(t.Context(), forgotten); !errors.Is(err, backend.ErrLost) {
			t.Error(err)
		}
		if next := acquire(forgotten); next.TookOver != 0 {
			t.Errorf("after a minute the next is told of token %d", next.TookOver)
		}
	})
}

// A client that is closed twice, as by a defer behind a Close, is one client less: the store of a
// name is there until the last is closed.
func TestClientIsClosedTwice(t *testing.T) {
	a, b := open(t), open(t)
	defer b.Close()
	c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Minute}
	if _, err := b.TryAcquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(a.Close(), a.Close()); err != nil {
		t.Error(err)
	}
	next := open(t)
	defer next.Close()
	c.Owner = backend.NewOwner()
	if _, err := next.TryAcquire(t.Context(), c); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("another client of the name = %v, want ErrHeld", err)
	}
}

// A store that was opened by its name has it for as long as one of its clients is open, whoever it
// is by: a claim of the name is refused while that one holds.
func TestClientOfAClientKeepsTheName(t *testing.T) {
	first := mem(t)
	b := first.Client()
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Minute}
	if _, err := b.TryAcquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	next := open(t)
	c.Owner = backend.NewOwner()
	if _, err := next.TryAcquire(t.Context(), c); !errors.Is(err, backend.ErrHeld) {
		t.Errorf(history.Broken+"another client of the name = %v, want ErrHeld", err)
	}
	if err := errors.Join(b.Close(), next.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := mem(t).TryAcquire(t.Context(), c); err != nil {
		t.Errorf("TryAcquire when all clients have gone = %v, want that a new store is free", err)
	}
}
