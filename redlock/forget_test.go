package redlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// Five servers without persistence forget everything, one after another and faster than their
// quarantine: some restart, one is flushed. Whoever holds goes on holding as long as a majority
// remembers, and is never joined by another; afterwards the lock is granted again.
//
// covers: Q10, R3, R4, R8
func TestNodesThatForget(t *testing.T) {
	const longest = time.Second
	servers := testserver.Redises(t, 5)
	for _, s := range servers {
		redistest.Mark(t, s, longest, time.Hour)
	}
	url := guardedURL(servers, longest)
	holder, rival := dial(t, url), dial(t, url)
	defer func() { _, _ = holder.Close(), rival.Close() }()

	l, err := locker.New(holder, locker.Bare, locker.Config{TTL: longest})
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var overlaps, asked atomic.Int64
	done := make(chan struct{})
	go func() { // wants the lock all the time
		defer close(done)
		for ctx.Err() == nil {
			c := storetest.Claim("k")
			c.TTL = longest
			_, err := rival.TryAcquire(ctx, c)
			asked.Add(1)
			if err == nil && g.Context().Err() == nil { // it still believes
				overlaps.Add(1)
			}
			_, _ = rival.Release(context.WithoutCancel(ctx), c)
		}
	}()
	for i, s := range servers {
		if i == 2 {
			s.MustDo("FLUSHALL")
		} else {
			s.Restart()
		}
		// The next one goes when this one answers again, which is long before its quarantine is
		// over.
		storetest.Eventually(t, "the server is closed to new locks", func() error {
			b, err := backend.Open(t.Context(), s.URL()+"?max_ttl="+longest.String())
			if err != nil {
				return err
			}
			defer func() { _ = b.Close() }()
			_, err = b.TryAcquire(t.Context(),
				backend.Claim{Key: "other", Owner: backend.NewOwner(), TTL: longest})
			if errors.Is(err, backend.ErrQuarantined) {
				return nil
			}
			return errors.Join(errors.New("not closed"), err)
		})
	}
	lost := false
	select {
	case <-g.Lost(): // at the latest at its own deadline, as no majority remembers it
		lost = true
	case <-time.After(storetest.Patience):
	}
	cancel()
	<-done
	if n := overlaps.Load(); n > 0 || !lost || asked.Load() == 0 {
		t.Errorf("held together %d times, lost: %v, asked %d times", n, lost, asked.Load())
	}
	if err := g.Unlock(); !errors.Is(err, locker.ErrLost) {
		t.Errorf("Unlock = %v, want ErrLost", err)
	}
	awaitGrantOf(t, holder, longest)
	if err := l.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}
