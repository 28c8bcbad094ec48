package redistest

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// HungServer lets 200 callers come and go, each for 50 ms, while the server is there and silent:
// what they leave behind is bounded by most goroutines (besides the timers of the callers, which
// may all run at once), and ends with the request timeout; and when the server is back, it is not
// flooded.
func HungServer(t *testing.T, scheme string, most int) {
	const callers, timeout = 200, 500 * time.Millisecond
	srv := testserver.Redis(t)
	b := Dial(t, scheme+"://"+srv.Addr()+"?request_timeout="+timeout.String())
	defer func() { storetest.Want(t, "close", b.Close(), nil) }()
	storetest.Eventually(t, "an answer", func() error { _, err := b.TryAcquire(t.Context(), storetest.Claim(storetest.Key(t))); return err })
	before, calls := runtime.NumGoroutine(), scripts(srv)
	srv.Stop()
	var crowd sync.WaitGroup
	var peak int
	began := time.Now()
	for range callers {
		crowd.Go(func() {
			for time.Since(began) < 4*timeout {
				ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
				_, err := b.TryAcquire(ctx, storetest.Claim("hung"))
				cancel()
				if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, backend.ErrUnavailable) &&
					!strings.Contains(err.Error(), "EOF") && !strings.Contains(err.Error(), "no answer") &&
					!strings.Contains(err.Error(), "closed") && !strings.Contains(err.Error(), "timeout") {
					t.Errorf("acquire: %v", err)
					return
				}
			}
		})
	}
	for time.Since(began) < 4*timeout {
		peak = max(peak, runtime.NumGoroutine())
		time.Sleep(10 * time.Millisecond) // the measurement itself
	}
	crowd.Wait()
	t.Logf("%d goroutines at most besides %d callers and %d", peak-callers-before, callers, before)
	if extra := peak - callers - before; extra > most {
		t.Errorf("%d callers left %d goroutines behind, want at most %d", callers, extra, most)
	}
	storetest.Eventually(t, "the end of what was left behind", func() error {
		if n := runtime.NumGoroutine(); n > before+16 {
			return errors.New("still there")
		}
		return nil
	})
	srv.Cont()
	storetest.Eventually(t, "an answer", func() error { _, err := b.TryAcquire(t.Context(), storetest.Claim(storetest.Key(t))); return err })
	if n := scripts(srv) - calls; n > 8*most {
		t.Errorf("%d scripts were run when the server was back", n)
	} else {
		t.Logf("%d scripts were run when the server was back", n)
	}
}
