package redlock_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/redlock"
)

// listed://store/alias?life=n is a store in memory that may have several names, and that has
// another identity in each of its lives.
func init() {
	backend.Register("listed", func(ctx context.Context, u *url.URL) (backend.Backend, error) {
		b, err := backend.Open(ctx, "mem://"+u.Host)
		return living{b, u.Host, u.Query().Get("life")}, err
	})
}

type living struct {
	backend.Backend
	host, life string
}

var restarts sync.Map // of hosts, to another life

func (l living) Identity(context.Context) (string, error) {
	if life, ok := restarts.Load(l.host); ok {
		l.life = life.(string)
	}
	return l.host + l.life, nil
}

func listOf(test string, nodes string) string {
	var urls []string
	for n := range strings.FieldsSeq(nodes) {
		urls = append(urls, "node="+url.QueryEscape("listed://"+test+n))
	}
	return "redlock://?" + strings.Join(urls, "&")
}

// A client with another list of nodes than the holder's is refused, and with the same list by
// whatever names, order and lives it is held off.
// covers: I2, Q1
func TestListsOfNodes(t *testing.T) {
	for name, test := range map[string]struct {
		holder, other string
		want          error
	}{
		"the same":                        {"a b c", "a b c", backend.ErrHeld},
		"in another order":                {"a b c", "c a b", backend.ErrHeld},
		"by other names":                  {"a b c", "a/x b/y c/z", backend.ErrHeld},
		"all restarted":                   {"a b c", "a?life=2 b?life=2 c?life=2", backend.ErrHeld},
		"one restarted, one renamed":      {"a b c", "a/x b?life=2 c", backend.ErrHeld},
		"a node replaced":                 {"a b c", "a b d", backend.ErrUnsafe},
		"a node replaced, one renamed":    {"a b c", "a b/x d", backend.ErrUnsafe},
		"nodes added":                     {"a b c", "a b c d e", backend.ErrUnsafe},
		"nodes removed":                   {"a b c d e", "a b c", backend.ErrUnsafe},
		"one in common, which all go to":  {"a b c", "c", backend.ErrUnsafe},
		"a node added to an even number":  {"a b", "a b c", backend.ErrUnsafe},
		"two replaced, in another order":  {"a b c d e", "x e c y a", backend.ErrUnsafe},
		"renamed and restarted otherwise": {"a/x b/y c/z", "a?life=2 b c", backend.ErrUnsafe}, // which cannot be told from a node replaced
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				prefix := strings.NewReplacer(" ", "-", ",", "").Replace(name) + "."
				holder, other := dial(t, listOf(prefix, test.holder)), dial(t, listOf(prefix, test.other))
				defer func() { _, _ = holder.Close(), other.Close() }()
				held := claim("k")
				if _, err := holder.TryAcquire(t.Context(), held); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				c := claim("k")
				_, err := other.TryAcquire(t.Context(), c)
				wantErr(t, "TryAcquire", err, test.want)
				if errors.Is(test.want, backend.ErrUnsafe) && (!backend.Refused(err) || !strings.Contains(err.Error(), "another list")) {
					t.Errorf("TryAcquire = %v, want a refusal that says why", err)
				}
				synctest.Wait()
				if _, err := holder.TryAcquire(t.Context(), held); err != nil {
					t.Errorf("the holder's repeat = %v", err)
				}
				if err := holder.Release(t.Context(), held); err != nil {
					t.Errorf("the holder's Release = %v", err)
				}
				synctest.Wait()
				c = claim("k")
				if _, err := other.TryAcquire(t.Context(), c); err != nil {
					t.Errorf("TryAcquire when it is free = %v: something was left", err)
				}
				if err := other.Release(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Whoever is refused for another list asks its nodes who they are by now, so a server that was
// restarted unnoticed and has another name elsewhere costs one refusal.
// covers: I2
func TestListIsLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefix := "again."
		other := dial(t, listOf(prefix, "a b c"))
		for _, n := range []string{"a", "b", "c"} {
			restarts.Store(prefix+n, "2")
		}
		defer restarts.Clear()
		holder := dial(t, listOf(prefix, "a/x b/x c/x"))
		defer func() { _, _ = holder.Close(), other.Close() }()
		held := claim("k")
		if _, err := holder.TryAcquire(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		for _, want := range []error{backend.ErrUnsafe, backend.ErrHeld} {
			synctest.Wait()
			_, err := other.TryAcquire(t.Context(), claim("k"))
			wantErr(t, "TryAcquire", err, want)
			time.Sleep(time.Second) // in the bubble: until the nodes have been asked who they are
		}
		if err := holder.Release(t.Context(), held); err != nil {
			t.Error(err)
		}
	})
}

// A majority does not help where a single node shows that another list is in use.
// covers: I2
func TestMajorityOfAnotherList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var peers []*peer
		var nodes []backend.Backend
		for range 5 {
			p := newPeer(membackend.Config{})
			peers, nodes = append(peers, p), append(nodes, p)
		}
		three, err := redlock.New(nodes[:3], redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		five, err := redlock.New(nodes, redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _, _ = three.Close(), five.Close() }()
		peers[0].set(func() { peers[0].refuse = true }) // so that three are free, which is a majority of five
		held := claim("k")
		if _, err := three.TryAcquire(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		peers[0].set(func() { peers[0].refuse = false })
		for _, p := range []*peer{peers[0], peers[3], peers[4]} {
			p.set(func() { p.slow = 1 }) // the others are heard first
		}
		_, err = five.TryAcquire(t.Context(), claim("k"))
		wantErr(t, "TryAcquire", err, backend.ErrUnsafe)
		synctest.Wait()
		for i, p := range []*peer{peers[0], peers[3], peers[4]} {
			if state, err := p.Inspect(t.Context(), "k"); err != nil || len(state.Holders) != 0 {
				t.Errorf("node %d of what was granted: %+v, %v; want it given back", i, state, err)
			}
		}
	})
}

// Holds that show no list, or one that cannot be read, are held off as ever. What a node shows for
// the quorum is not shown on.
func TestHoldWithoutList(t *testing.T) {
	for _, shown := range []string{"", "/12345678", "odd", "odd/12345678", "/", "????????/12345678", "12345678 c0ffee00c0ffee00"} {
		quorumTest(t, 3, redlock.Config{}, func(q *quorum) {
			c := claim("k")
			c.Meta.Service, c.Meta.Quorum = "app", shown
			q.on(c, q.peers...)
			_, err := q.TryAcquire(q.Context(), claim("k"))
			var held *backend.HeldError
			if !errors.As(err, &held) || held.Holder != (backend.Meta{Service: "app"}) {
				q.Errorf("%q: TryAcquire = %v, want a *HeldError of app", shown, err)
			}
		})
	}
}
