package membackend_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
)

// covers: R3, Q10
func TestQuarantine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.NewWith(membackend.Config{Quarantine: time.Minute})
		defer b.Close()
		c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: time.Minute}
		time.Sleep(20 * time.Second)
		_, err := b.TryAcquire(t.Context(), c)
		var q *backend.QuarantineError
		if !errors.As(err, &q) || q.RetryAfter != 40*time.Second ||
			backend.AnswerOf(err) != backend.No || backend.Refused(err) {
			t.Errorf("TryAcquire = %v, want a definite no for 40s, which is no refusal", err)
		}
		if err := b.Renew(t.Context(), c); !errors.Is(err, backend.ErrLost) {
			t.Errorf("Renew = %v, want an answer", err)
		}
		if _, err := b.Release(t.Context(), c); !errors.Is(err, backend.ErrLost) {
			t.Errorf("Release = %v, want an answer", err)
		}
		time.Sleep(q.RetryAfter)
		if _, err := b.TryAcquire(t.Context(), c); !errors.Is(err, backend.ErrLost) {
			t.Errorf("TryAcquire of what was released meanwhile = %v, want ErrLost: tombstones "+
				"work in quarantine", err)
		}
		c.Owner = backend.NewOwner()
		if _, err := b.TryAcquire(t.Context(), c); err != nil {
			t.Errorf("TryAcquire when it is over = %v", err)
		}
		c.TTL++
		for what, err := range map[string]error{
			"Renew": b.Renew(t.Context(), c),
			"TryAcquire": func() error {
				_, err := b.TryAcquire(t.Context(), c)
				return err
			}(),
		} {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s with a lease that outlasts the quarantine = %v, want ErrInvalid", what,
					err)
			}
		}
	})
}

// covers: Q3
func TestIdentity(t *testing.T) {
	b := membackend.New()
	defer b.Close()
	other := membackend.New()
	defer other.Close()
	client := b.Client()
	id := func(b *membackend.Backend) string {
		id, err := b.Identity(t.Context())
		if err != nil || id == "" {
			t.Errorf("Identity = %q, %v", id, err)
		}
		return id
	}
	if id(b) != id(client) || id(b) == id(other) {
		t.Errorf("two clients of one store are %q and %q, another store is %q", id(b), id(client),
			id(other))
	}
	if err := client.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Identity(t.Context()); !errors.Is(err, backend.ErrClosed) {
		t.Errorf("Identity after Close = %v", err)
	}
}
