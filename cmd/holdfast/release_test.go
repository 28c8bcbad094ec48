package main

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

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

// A glimpsed store shows those who held some time ago, when it is first asked.
type glimpsed struct {
	backend.Backend
	before *backend.State
}

func (g *glimpsed) Inspect(ctx context.Context, key string) (backend.State, error) {
	if s := g.before; s != nil {
		g.before = nil
		return *s, nil
	}
	return g.Backend.Inspect(ctx, key)
}

// Of those who share a lock one releases it just when it is taken from all: the others lose it all
// the same, and if there are none, nothing was taken.
func TestReleaseByForceWhileAHolderReleases(t *testing.T) {
	for name, others := range map[string]int{"first of two": 1, "alone": 0} {
		t.Run(name, func(t *testing.T) {
			b := &glimpsed{Backend: membackend.New()}
			defer b.Close()
			var first backend.Claim
			for i := range 1 + others {
				c := backend.Claim{
					Key: "k", Owner: backend.NewOwner(), TTL: time.Minute, Mode: backend.Shared,
				}
				if _, err := b.TryAcquire(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if i == 0 {
					first = c
				}
			}
			s, err := b.Inspect(t.Context(), "k")
			if err != nil || len(s.Holders) != 1+others || s.Holders[0].Owner != first.Owner {
				t.Fatalf("%+v, %v", s, err)
			}
			if _, err := b.Release(t.Context(), first); err != nil {
				t.Fatal(err)
			}
			b.before = &s
			cmd, out := &cobra.Command{}, bytes.Buffer{}
			cmd.SetContext(t.Context())
			cmd.SetOut(&out)
			c := clientOf(t, b)
			defer c.Close()
			err = (&common{output: "text"}).releaseAll(cmd, c, "k")
			var status *exitError
			if others > 0 && err != nil ||
				others == 0 && (!errors.As(err, &status) || status.status != exitFailed) ||
				bytes.Count(out.Bytes(), []byte("k: taken from ")) != others {
				t.Errorf("%v, says %s", err, out.String())
			}
			if s, err := b.Inspect(t.Context(), "k"); err != nil || len(s.Holders) > 0 {
				t.Errorf("still held: %+v, %v", s, err)
			}
		})
	}
}

// A refusing store tells once who holds, and then that it may not.
type refusing struct{ backend.Backend }

func (refusing) Observe(context.Context, string) iter.Seq2[backend.State, error] {
	return func(yield func(backend.State, error) bool) {
		if yield(backend.State{}, nil) {
			yield(backend.State{}, backend.ErrDenied)
		}
	}
}

// A watch ends when the store will never tell more, and says why.
func TestWatchEndsWhereTheStoreRefuses(t *testing.T) {
	b := refusing{membackend.New()}
	defer b.Close()
	cmd, out := &cobra.Command{}, bytes.Buffer{}
	cmd.SetContext(t.Context())
	cmd.SetOut(&out)
	c := clientOf(t, b)
	defer c.Close()
	err := (&common{output: "json"}).watch(cmd, c, "k")
	var status *exitError
	if !errors.Is(err, backend.ErrDenied) || !errors.As(err, &status) ||
		status.status != exitStore || !strings.Contains(out.String(), `"free"`) {
		t.Errorf("it ends with %v, and printed %s", err, out.String())
	}
}
