package rueidisbackend

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// A hold that is deleted or flushed is lost at once, not at the next renewal, which is ten seconds
// away.
//
// covers: B2, W3
func TestLossIsToldAtOnce(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, "rueidis://"+srv.Addr())
	l := redistest.Quiet(t, b, locker.Config{TTL: 30 * time.Second})
	watched := func(key string) error {
		b.watch.mu.Lock()
		defer b.watch.mu.Unlock()
		for w := range b.watch.keys[b.store.Layout.Key(key)] {
			if w.known {
				return nil
			}
		}
		return errors.New("not yet")
	}
	for _, all := range []bool{false, true} {
		name := "DEL"
		if all {
			name = "FLUSHALL"
		}
		var guards []*locker.Guard[struct{}]
		for i := range 21 {
			g, err := l.Lock(t.Context(), fmt.Sprintf("%s-%s-%d", key(t), name, i))
			want(t, "lock", err, nil)
			guards = append(guards, g)
		}
		for _, g := range guards {
			eventually(t, "the hold to be watched", func() error { return watched(g.Hold().Key) })
		}
		var took []time.Duration
		var start time.Time
		for i, g := range guards {
			switch {
			case !all:
				start = time.Now()
				srv.MustDo("DEL", b.store.Layout.Key(g.Hold().Key))
			case i == 0:
				start = time.Now()
				srv.MustDo("FLUSHALL")
			}
			select {
			case <-g.Lost():
			case <-time.After(patience):
				t.Fatalf("%s: not told", name)
			}
			took = append(took, time.Since(start))
		}
		for _, g := range guards {
			want(t, "unlock", g.Unlock(), locker.ErrLost)
		}
		slices.Sort(took)
		t.Logf("%s: told after %v (median), %v at most", name, took[len(took)/2], took[len(took)-1])
		if took[len(took)/2] > 3*time.Second {
			t.Errorf("%s: told after %v, and the next renewal is after 10s", name,
				took[len(took)/2])
		}
	}
}

// A key that has become something else, before its lease is watched, is a loss as well.
//
// covers: B2
func TestForeignKeyIsALoss(t *testing.T) {
	srv := testserver.Redis(t)
	b := opened(t, "rueidis://"+srv.Addr())
	g, err := redistest.Quiet(t, b, locker.Config{TTL: 5 * time.Minute}).Lock(t.Context(), key(t))
	want(t, "lock", err, nil)
	name := b.store.Layout.Key(g.Hold().Key)
	srv.MustDo("DEL", name)
	srv.MustDo("LPUSH", name, "x")
	select {
	case <-g.Lost():
	case <-time.After(patience):
		t.Error("not told, and the renewal is not due yet")
	}
	want(t, "unlock", g.Unlock(), locker.ErrLost)
}
