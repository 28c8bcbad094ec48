package locker_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

// The lease runs out after the hold has ended otherwise: by MaxHold, or as its Unlock closes what
// it protected. The channel of losses stays open, as it is said to, the observer is told of what
// ended it, or of the loss that its Unlock is told of, and the log of what nobody else is.
//
// covers: C3
func TestLossBehindTheEndOfTheHold(t *testing.T) {
	errStaysOpen := errors.New("stays open")
	for name, of := range map[string]struct {
		end  func(g *locker.Guard[struct{}]) error // when the lease is over
		told error                                 // by it, and to the observer
	}{
		"MaxHold": {func(g *locker.Guard[struct{}]) error {
			time.Sleep(10 * time.Second)
			_, err := g.Value()
			return err
		}, locker.ErrMaxHold},
		"Unlock": {func(g *locker.Guard[struct{}]) error { return g.Unlock() }, locker.ErrLost},
	} {
		t.Run(name, func(t *testing.T) {
			b, observed, log := hook(), []error(nil), &bytes.Buffer{}
			b.renew = silent
			cfg := locker.Config{
				TTL: 5 * time.Second, MaxHold: time.Second,
				Logger: slog.New(slog.NewTextHandler(log, nil)),
				Observer: calls{end: map[string]func(error){
					locker.OpLock: func(err error) { observed = append(observed, err) },
				}},
			}
			if of.told == locker.ErrLost { //nolint:errorlint // itself
				cfg.MaxHold = 0
			}
			synctest.Test(t, func(t *testing.T) {
				open := func(context.Context, locker.Hold) (struct{}, error) {
					return struct{}{}, nil
				}
				l, err := locker.New(b, locker.Scoped(open, func(struct{}) error {
					time.Sleep(10 * time.Second)
					return errStaysOpen
				}), cfg)
				if err != nil {
					t.Fatal(err)
				}
				defer l.Close()
				g := mustLock(t, l, "k")
				lost := g.Lost()
				wantErr(t, of.end(g), of.told)
				select {
				case <-lost:
					t.Error("the channel of losses was closed")
				default:
				}
				_ = g.Unlock()
				synctest.Wait()
				//nolint:errorlint // itself
				if of.told == locker.ErrMaxHold &&
					!strings.Contains(log.String(), errStaysOpen.Error()) {
					t.Errorf("logged %q, which is all that tells that it could not be closed",
						log.String())
				}
				if len(observed) != 1 {
					t.Fatalf("the observer was told %d times: %v", len(observed), observed)
				}
				wantErr(t, observed[0], of.told)
				wantHeld(t, b, "k", false)
			})
		})
	}
}
