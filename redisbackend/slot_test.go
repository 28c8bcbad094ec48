package redisbackend

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// While a slot moves, a server refuses scripts what is not there, or not there any more: who waits
// for a lock must not destroy it, and who reads what was saved must not find nothing.
//
// covers: R12
func TestSlotThatMoves(t *testing.T) {
	testserver.OnlyInAll(t, "a cluster")
	t.Parallel()
	set := testserver.Cluster(t)
	b := opened(t, set.URL())
	moves := func(key string) (from, to *testserver.Server, end func()) {
		name := b.store.Layout.Key(key)
		from, err := set.Owner(name)
		want(t, "owner", err, nil)
		if to = set.Nodes[0]; to == from {
			to = set.Nodes[1]
		}
		return from, to, set.BeginMove(t, name, from, to)
	}

	t.Run("held", func(t *testing.T) {
		for _, how := range []string{"queue", "withdraw", "release"} {
			held := claim("held by " + how)
			acquired(t, b, held)
			from, to, end := moves(held.Key)
			other := claim(held.Key)
			switch how {
			case "queue":
				other.Queue, other.WaiterTTL = true, time.Minute
				if _, err := b.TryAcquire(t.Context(), other); err == nil {
					t.Fatalf("%s: granted beside a hold", how)
				}
			case "withdraw":
				_, _ = b.Release(t.Context(), other) // with a tombstone
			}
			if _, err := b.TryAcquire(t.Context(), claim(held.Key)); err == nil {
				t.Errorf("%s: granted beside a hold", how)
			}
			if how == "release" {
				_, _ = b.Release(t.Context(), held)
			}
			set.MoveKey(t, b.store.Layout.Key(held.Key), from, to)
			end()
			if how == "release" {
				want(t, "release", storetest.Release(t.Context(), b, held), nil)
				acquired(t, b, claim(held.Key))
			}
		}
	})
	t.Run("saved", func(t *testing.T) {
		c := claim("saved")
		c.Load = true
		acquired(t, b, c)
		c.Save, c.NoneInFlight = []byte("value"), true
		want(t, "save", storetest.Release(t.Context(), b, c), nil)
		name := b.store.Layout.Key(c.Key)
		from, to, end := moves(c.Key)
		set.MoveKey(t, name, from, to)
		next := claim(c.Key)
		next.Load = true
		if g, err := b.TryAcquire(t.Context(), next); err == nil && string(g.State) != "value" {
			t.Errorf("while its slot moves, %q was read", g.State)
		}
		set.MoveKey(t, name+":state", from, to)
		end()
		var g backend.Grant
		eventually(t, "acquire after the move", func() (err error) {
			g, err = b.TryAcquire(t.Context(), next)
			return err
		})
		if string(g.State) != "value" {
			t.Errorf("after its slot moved, %q was read", g.State)
		}
	})
}
