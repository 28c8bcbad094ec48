package locker_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// lateRelease has releases arrive when the lease is over.
type lateRelease struct{ backend.Backend }

func (b lateRelease) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	time.Sleep(3 * time.Second)
	return b.Backend.Release(ctx, c)
}

// A run whose release came too late to note it is not told to have been noted: another may run the
// job in the same time.
func TestOnceNotedTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := lateRelease{membackend.New()}
		defer b.Close()
		l, err := locker.New(b, locker.Bare, locker.Config{TTL: 2 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		ran, err := locker.Once(t.Context(), l, "k", time.Hour,
			func(context.Context, struct{}) error {
				return nil
			})
		if !ran || !errors.Is(err, locker.ErrLost) {
			t.Errorf("Once = %v, %v, want that it ran, and that the lock was lost before "+
				"that was noted", ran, err)
		}
	})
}

// unheard has the first of the releases arrive, or not, and tells nobody; it takes so long.
type unheard struct {
	backend.Backend
	first   bool
	arrives bool
	takes   time.Duration
}

func (b *unheard) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if !b.first {
		b.first = true
		if b.arrives {
			_, _ = b.Backend.Release(ctx, c)
		}
		time.Sleep(b.takes)
		return backend.Released{}, errSilence
	}
	return b.Backend.Release(ctx, c)
}

// A run whose release got no answer is noted by the release that is made again, or was by the
// first. If the lease ended in between nobody knows.
//
// covers: A2
func TestOnceNotedWithoutAnAnswer(t *testing.T) {
	for name, test := range map[string]struct {
		arrives bool
		takes   time.Duration
		known   bool
	}{
		"reply lost":                 {true, 0, true},
		"request lost":               {false, 0, true},
		"reply lost, long ago":       {true, 2900 * time.Millisecond, false},
		"request lost, for too long": {false, 2900 * time.Millisecond, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &unheard{Backend: membackend.New(), arrives: test.arrives, takes: test.takes}
				defer b.Close()
				l, err := locker.New(b, locker.Bare,
					locker.Config{TTL: 3 * time.Second, ReleaseTimeout: 20 * time.Second})
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				ran, err := locker.Once(t.Context(), l, "k", time.Hour,
					func(context.Context, struct{}) error {
						time.Sleep(test.takes / 2)
						return nil
					})
				if !ran || (err == nil) != test.known {
					t.Errorf("Once = %v, %v, want that it ran, and whether that was noted "+
						"to be known: %v", ran, err, test.known)
				}
			})
		})
	}
}
