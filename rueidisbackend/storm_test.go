package rueidisbackend

import (
	"context"
	"flag"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// storm is how long TestKilledAgainAndAgain goes on for each way to wait: make soak gives it half
// a minute.
var storm = flag.Duration("storm", time.Second, "how long connections are killed every 50ms")

// Every connection is killed every 50 ms, while 32 workers of two processes want three locks: no
// two hold one together, every Lock returns, and nothing is left behind.
//
// covers: W2, W3, R21, A2, C4
func TestKilledAgainAndAgain(t *testing.T) {
	for name, mode := range map[string]waiting.Mode{
		"in the queue": waiting.Handoff,
		"notified":     waiting.Notify,
	} {
		t.Run(name, func(t *testing.T) { killedAgainAndAgain(t, mode) })
	}
}

func killedAgainAndAgain(t *testing.T, mode waiting.Mode) {
	const workers, processes, locks = 32, 2, 3
	srv := testserver.Redis(t)
	var held [locks]atomic.Int64
	var tokens [locks]atomic.Uint64
	var done, lost atomic.Int64
	names := [locks]string{key(t), key(t), key(t)}
	end, stop := context.WithTimeout(t.Context(), *storm)
	defer stop()

	// work is one worker's turn on lock n.
	work := func(l *locker.Client[struct{}], n int) {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		g, err := l.Lock(ctx, names[n])
		if err != nil {
			t.Errorf("Lock: %v", err)
			return
		}
		if _, err := g.Value(); err == nil { // else it is lost already, and another may hold
			if held[n].Add(1) != 1 {
				t.Errorf("two hold %s", names[n])
			}
			if token := g.Hold().Token; tokens[n].Swap(token) >= token {
				t.Errorf("token %d did not rise", token)
			}
			time.Sleep(100 * time.Microsecond) // the work
			held[n].Add(-1)
		}
		if g.Unlock() != nil {
			lost.Add(1)
		}
		done.Add(1)
	}
	var all sync.WaitGroup
	for range processes {
		b := opened(t, "rueidis://"+srv.Addr())
		l := redistest.Quiet(t, b,
			locker.Config{TTL: 10 * time.Second, Wait: waiting.Config{Mode: mode, Passes: 4}})
		for i := range workers / processes {
			all.Go(func() {
				for end.Err() == nil {
					work(l, i%locks)
				}
			})
		}
	}
	kills := 0
	for tick := time.NewTicker(50 * time.Millisecond); end.Err() == nil; {
		select {
		case <-tick.C:
			for _, kind := range []string{"normal", "pubsub"} {
				if n, err := srv.Do("CLIENT", "KILL", "TYPE", kind); err == nil && n != int64(0) {
					kills++
				}
			}
		case <-end.Done():
			tick.Stop()
		}
	}
	all.Wait()
	t.Logf("%d acquisitions, %d lost, %d kills", done.Load(), lost.Load(), kills)
	if kills == 0 || done.Load() < workers {
		t.Errorf("%d kills, %d acquisitions", kills, done.Load())
	}
	direct := opened(t, "rueidis://"+srv.Addr())
	for _, name := range names {
		eventually(t, "nothing left behind", func() error {
			_, err := direct.TryAcquire(t.Context(), claim(name))
			return err
		})
	}
}
