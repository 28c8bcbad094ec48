package main

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A mute store does not answer a release, and is waited for as long as the clients of stores do.
type mute struct{ backend.Backend }

func (mute) Release(ctx context.Context, _ backend.Claim) (backend.Released, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	<-ctx.Done()
	return backend.Released{}, ctx.Err()
}

// CMD has ended, and the store does not confirm the release: within the second that the help tells
// of, the run ends too, and so does one whose clean-up the store does not answer.
//
// covers: C4
func TestReleaseThatIsNotConfirmedIsGivenUp(t *testing.T) {
	for name, held := range map[string]bool{"held": true, "refused": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := mute{membackend.New()}
				cfg := locker.Config{
					TTL: time.Minute, ReleaseTimeout: releaseLimit,
					Logger: slog.New(slog.DiscardHandler),
				}
				l, err := locker.New(b, locker.Bare, cfg)
				if err != nil {
					t.Fatal(err)
				}
				g, err := l.Lock(t.Context(), "k")
				if err != nil {
					t.Fatal(err)
				}
				r, began := runner{}, time.Now()
				if held {
					r.over = began
					if err := g.Unlock(); err == nil {
						t.Error("a release without an answer is confirmed")
					}
				} else {
					go func() { _ = g.Unlock() }() // which is under way
					synctest.Wait()
				}
				r.closeStore(&client{Client: l, backend: b, config: cfg})
				if took := time.Since(began); took > time.Second {
					t.Errorf("the run ends %v later, and was to within a second", took)
				}
				time.Sleep(time.Minute) // what goes on then would end with the process
			})
		})
	}
}
