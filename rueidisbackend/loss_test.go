package rueidisbackend

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// A hold that is deleted or flushed is lost within milliseconds, not at the next renewal, which is
// seconds away.
//
// covers: B2, W3
func TestLossIsToldAtOnce(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, "rueidis://"+srv.Addr())
	l := redistest.Quiet(t, b, locker.Config{TTL: 30 * time.Second})
	for name, take := range map[string]func(key string){
		"DEL":      func(key string) { srv.MustDo("DEL", b.store.Layout.Key(key)) },
		"FLUSHALL": func(string) { srv.MustDo("FLUSHALL") },
	} {
		var took []time.Duration
		for range 21 {
			g, err := l.Lock(t.Context(), key(t))
			want(t, "lock", err, nil)
			eventually(t, "the hold to be watched", func() error {
				b.watch.mu.Lock()
				defer b.watch.mu.Unlock()
				for w := range b.watch.keys[b.store.Layout.Key(g.Hold().Key)] {
					if w.known {
						return nil
					}
				}
				return errors.New("not yet")
			})
			start := time.Now()
			take(g.Hold().Key)
			select {
			case <-g.Lost():
			case <-time.After(patience):
				t.Fatalf("%s: not told", name)
			}
			took = append(took, time.Since(start))
			want(t, "unlock", g.Unlock(), locker.ErrLost)
		}
		slices.Sort(took)
		t.Logf("%s: told after %v (median), %v at most", name, took[len(took)/2], took[len(took)-1])
		if took[len(took)/2] > 50*time.Millisecond {
			t.Errorf("%s: told after %v, want under 50ms", name, took[len(took)/2])
		}
	}
}
