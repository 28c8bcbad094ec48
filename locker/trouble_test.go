package locker_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// A lock that was lost says why the store did not confirm it, and the log says so when that begins.
//
// covers: B3
func TestLossSaysWhy(t *testing.T) {
	refused := fmt.Errorf("%w: dial tcp: connection refused", backend.ErrUnavailable)
	for name, test := range map[string]struct {
		renew verb
		is    error
		says  string
	}{
		"nobody listens": {func(context.Context, backend.Claim) error {
			return refused
		}, refused, "connection refused"},
		"it refuses": {func(context.Context, backend.Claim) error {
			return backend.ErrDenied
		}, backend.ErrDenied, backend.ErrDenied.Error()},
		"it is unknown": {func(context.Context, backend.Claim) error {
			return errSilence
		}, errSilence, "no answer from the store: "},
		"it never answers": {func(ctx context.Context, _ backend.Claim) error {
			<-ctx.Done()
			return ctx.Err()
		}, locker.ErrExpired, "no answer from the store: "},
	} {
		t.Run(name, func(t *testing.T) {
			b, renew, _ := switchable()
			var out output
			cfg := locker.Config{
				TTL:    9 * time.Second,
				Logger: slog.New(slog.NewTextHandler(&out, nil)),
			}
			bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
				g := mustLock(t, l, "k")
				renew(test.renew)
				<-g.Lost()
				_, value := g.Value()
				for _, err := range []error{context.Cause(g.Context()), value, g.Unlock()} {
					wantErr(t, err, locker.ErrLost, locker.ErrExpired, test.is)
					if !strings.Contains(err.Error(), test.says) {
						t.Errorf("%q does not say %q", err, test.says)
					}
					if errors.Is(err, context.DeadlineExceeded) ||
						errors.Is(err, context.Canceled) {
						t.Errorf("%q is a caller's ctx", err)
					}
				}
				synctest.Wait() // the end is logged as it comes
				if s := out.String(); strings.Count(s, "does not confirm") != 1 ||
					strings.Count(s, test.says) != 2 {
					t.Errorf("one line when it begins, and one when it ends, say why:\n%s", s)
				}
			})
		})
	}
}

// What is over is not said of a later loss, and begins anew when it comes again.
func TestRenewalsFailForAWhile(t *testing.T) {
	b, renew, _ := switchable()
	var out output
	cfg := locker.Config{TTL: 9 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		g := mustLock(t, l, "k")
		for range 2 {
			renew(func(context.Context, backend.Claim) error {
				return errors.New("MISCONF: cannot write")
			})
			time.Sleep(5 * time.Second)
			renew(nil)
			time.Sleep(10 * time.Second)
		}
		for _, why := range []string{"LOADING", "OOM"} { // the last one counts
			renew(func(context.Context, backend.Claim) error { return errors.New(why) })
			time.Sleep(4 * time.Second)
		}
		<-g.Lost()
		if err := g.Unlock(); strings.Contains(err.Error(), "LOADING") ||
			strings.Contains(err.Error(), "MISCONF") || !strings.Contains(err.Error(), "OOM") {
			t.Errorf("Unlock = %v", err)
		}
		began, ended := strings.Count(out.String(),
			"level=WARN msg=\"holdfast: the store does not confirm a lock\" key=k token="),
			strings.Count(out.String(),
				"level=INFO msg=\"holdfast: the store confirms the lock again\" key=k token=")
		if began != 3 || ended != 2 {
			t.Errorf("it began %d times and ended %d times in\n%s", began, ended, &out)
		}
	})
}

// A renewal that an Unlock cuts short is no failure.
func TestUnlockWithdrawsARenewal(t *testing.T) {
	b, renew, _ := switchable()
	var out output
	cfg := locker.Config{TTL: 9 * time.Second, Logger: slog.New(slog.NewTextHandler(&out, nil))}
	bubble(t, b, cfg, func(t *testing.T, l *locker.Client[struct{}]) {
		g, began := mustLock(t, l, "k"), make(chan struct{})
		renew(func(ctx context.Context, _ backend.Claim) error {
			close(began)
			<-ctx.Done()
			return ctx.Err()
		})
		<-began
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
		synctest.Wait() // until the renewal has ended as well
		if out.String() != "" {
			t.Errorf("it logs %s", &out)
		}
	})
}
