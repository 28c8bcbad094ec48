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
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/redlock"
)

// listed://store/alias?life=n is a store in memory that may have several names, and that has
// another identity in each of its lives.
// relisted:// is another client of the same stores.
func init() {
	for _, scheme := range []string{"listed", "relisted"} {
		backend.Register(scheme, func(ctx context.Context, u *url.URL) (backend.Backend, error) {
			b, err := backend.Open(ctx, "mem://"+u.Host)
			return living{b, u.Host, u.Query().Get("life")}, err
		})
	}
}

type living struct {
	backend.Backend
	host, life string
}

var restarts sync.Map // of hosts, to another life, or none

func (l living) Identity(ctx context.Context) (string, error) {
	if life, ok := restarts.Load(l.host); ok {
		if l.life = life.(string); l.life == "" {
			<-ctx.Done()
			return "", ctx.Err()
		}
	}
	return l.host + l.life, nil
}

func listOf(test string, nodes string) string {
	var urls []string
	for n := range strings.FieldsSeq(nodes) {
		scheme := "listed://"
		if name, ok := strings.CutPrefix(n, "re:"); ok {
			scheme, n = "relisted://", name
		}
		urls = append(urls, "node="+url.QueryEscape(scheme+test+n))
	}
	return "redlock://?" + strings.Join(urls, "&")
}

// acquire is TryAcquire, repeated when the nodes have been asked who they are.
func acquire(t *testing.T, b backend.Backend, c backend.Claim) (doubts int, err error) {
	t.Helper()
	for {
		_, err = b.TryAcquire(t.Context(), c)
		var q *backend.QuarantineError
		if !errors.As(err, &q) {
			return doubts, err
		}
		if doubts++; doubts == 100 || q.RetryAfter <= 0 {
			t.Fatalf("TryAcquire = %v, for the %d. time, and to be asked again after %v", err,
				doubts, q.RetryAfter)
		}
		time.Sleep(q.RetryAfter)
	}
}

// A client with another list of nodes than the holder's is refused, and with the same list by
// whatever names, order and lives it is held off.
// covers: I2, Q1
func TestListsOfNodes(t *testing.T) {
	for name, test := range map[string]struct {
		holder, other string
		want          error
	}{
		"the same":                   {"a b c", "a b c", backend.ErrHeld},
		"in another order":           {"a b c", "c a b", backend.ErrHeld},
		"by other names":             {"a b c", "a/x b/y c/z", backend.ErrHeld},
		"all restarted":              {"a b c", "a?life=2 b?life=2 c?life=2", backend.ErrHeld},
		"one restarted, one renamed": {"a b c", "a/x b?life=2 c", backend.ErrHeld},
		"by another client, restarted": {
			"a b c", "re:a?life=2 re:b?life=2 re:c?life=2",
			backend.ErrHeld,
		},
		"a node replaced":                {"a b c", "a b d", backend.ErrUnsafe},
		"a node replaced, one renamed":   {"a b c", "a b/x d", backend.ErrUnsafe},
		"nodes added":                    {"a b c", "a b c d e", backend.ErrUnsafe},
		"nodes removed":                  {"a b c d e", "a b c", backend.ErrUnsafe},
		"one in common, which all go to": {"a b c", "c", backend.ErrUnsafe},
		"a node added to an even number": {"a b", "a b c", backend.ErrUnsafe},
		"two replaced, in another order": {"a b c d e", "x e c y a", backend.ErrUnsafe},
		// which cannot be told from a node replaced
		"renamed and restarted otherwise": {"a/x b/y c/z", "a?life=2 b c", backend.ErrUnsafe},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				prefix := strings.NewReplacer(" ", "-", ",", "").Replace(name) + "."
				holder, other := dial(t, listOf(prefix, test.holder)),
					dial(t, listOf(prefix, test.other))
				defer func() { _, _ = holder.Close(), other.Close() }()
				held := claim("k")
				if _, err := holder.TryAcquire(t.Context(), held); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				c := claim("k")
				doubts, err := acquire(t, other, c)
				wantErr(t, "TryAcquire", err, test.want)
				sameLength := len(strings.Fields(test.holder)) == len(strings.Fields(test.other))
				if want := errors.Is(test.want, backend.ErrUnsafe) &&
					sameLength; doubts > 0 != want {
					t.Errorf("the nodes were waited for %d times, want that: %v", doubts, want)
				}
				if errors.Is(test.want, backend.ErrUnsafe) &&
					(!backend.Refused(err) || !strings.Contains(err.Error(), "another list")) {
					t.Errorf("TryAcquire = %v, want a refusal that says why", err)
				}
				synctest.Wait()
				if _, err := holder.TryAcquire(t.Context(), held); err != nil {
					t.Errorf("the holder's repeat = %v", err)
				}
				if _, err := holder.Release(t.Context(), held); err != nil {
					t.Errorf("the holder's Release = %v", err)
				}
				synctest.Wait()
				c = claim("k")
				if _, err := other.TryAcquire(t.Context(), c); err != nil {
					t.Errorf("TryAcquire when it is free = %v: something was left", err)
				}
				if _, err := other.Release(t.Context(), c); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Nodes of New have no URL, so with another life they may be those of any list.
//
// covers: I2
func TestListsOfNodesWithoutNames(t *testing.T) {
	for name, nameless := range map[string]func(named,
		unnamed backend.Backend) (holder, other backend.Backend){
		"of the holder's": func(named, unnamed backend.Backend) (holder, other backend.Backend) {
			return unnamed, named
		},
		"of ours": func(named, unnamed backend.Backend) (holder, other backend.Backend) {
			return named, unnamed
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				prefix := strings.NewReplacer(" ", "-", "'", "").Replace(name) + ".nameless."
				var nodes []backend.Backend
				for _, n := range []string{"a", "b", "c"} {
					nodes = append(nodes, dial(t, "listed://"+prefix+n+"?life=2"))
				}
				unnamed, err := redlock.New(nodes, redlock.Config{})
				wantErr(t, "New", err, nil)
				holder, other := nameless(dial(t, listOf(prefix, "a b c")), unnamed)
				defer func() {
					for _, b := range append(nodes, holder, other) {
						_ = b.Close()
					}
				}()
				_, err = holder.TryAcquire(t.Context(), claim("k"))
				wantErr(t, "TryAcquire", err, nil)
				synctest.Wait()
				doubts, err := acquire(t, other, claim("k"))
				if wantErr(t, "TryAcquire of a held lock", err, backend.ErrHeld); doubts > 0 {
					t.Errorf("the nodes were asked who they are %d times", doubts)
				}
			})
		})
	}
}

// Whoever meets another list asks its nodes who they are by now, and waits for that: so a server
// that was restarted unnoticed and has another name elsewhere costs a moment.
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
		synctest.Wait()
		l, err := locker.New(other, locker.Bare, locker.Config{})
		if err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(10*time.Second, func() {
			if _, err := holder.Release(context.WithoutCancel(t.Context()), held); err != nil {
				t.Error(err)
			}
		})
		g, err := l.Lock(t.Context(), "k")
		if err != nil {
			t.Fatalf("Lock = %v, and the nodes are the same", err)
		}
		if err := errors.Join(g.Unlock(), l.Close()); err != nil {
			t.Error(err)
		}
	})
}

// A node that does not say who it is, as it is away, is not waited for without end.
// covers: I2
func TestListWithoutANode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefix := "without."
		other := dial(t, listOf(prefix, "a b d"))
		holder := dial(t, listOf(prefix, "a b c"))
		defer func() { _, _ = holder.Close(), other.Close() }()
		restarts.Store(prefix+"d", "") // says nothing any more
		defer restarts.Clear()
		if _, err := holder.TryAcquire(t.Context(), claim("k")); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		began := time.Now()
		doubts, err := acquire(t, other, claim("k"))
		wantErr(t, "TryAcquire", err, backend.ErrUnsafe)
		if took := time.Since(began); doubts == 0 || took > 10*time.Second {
			t.Errorf("it took %v, and %d attempts", took, doubts)
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
		// So that three are free, which is a majority of five.
		peers[0].set(func() { peers[0].refuse = true })
		held := claim("k")
		if _, err := three.TryAcquire(t.Context(), held); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		peers[0].set(func() { peers[0].refuse = false })
		for _, p := range []*peer{peers[0], peers[3], peers[4]} {
			p.set(func() { p.slow = 1 }) // the others are heard first
		}
		_, err = acquire(t, five, claim("k"))
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
	for _, shown := range []string{
		"", "/12345678", "odd", "odd/12345678", "/", "????????/12345678",
		"12345678 c0ffee00c0ffee00",
	} {
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

// late://store is a store in memory that cannot be opened at first, and takes no minimum tokens.
// That of long://store takes them, but no lease that is shorter than a second, as etcd.
func init() {
	for scheme, less := range map[string]func(caps *backend.Capabilities){
		"late": func(caps *backend.Capabilities) { caps.MinToken = false },
		"long": func(caps *backend.Capabilities) { caps.MinTTL = time.Second },
	} {
		backend.Register(scheme, func(ctx context.Context, u *url.URL) (backend.Backend, error) {
			if _, up := restarts.Load(u.Host); !up {
				return nil, backend.ErrUnavailable
			}
			b, err := backend.Open(ctx, "mem://"+u.Host)
			return lesser{b, less}, err
		})
	}
}

type lesser struct {
	backend.Backend
	less func(*backend.Capabilities)
}

func (l lesser) Capabilities() backend.Capabilities {
	caps := l.Backend.Capabilities()
	l.less(&caps)
	return caps
}

func (l lesser) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if c.TTL < l.Capabilities().MinTTL {
		return backend.Grant{}, c.Validate(l.Capabilities())
	}
	return l.Backend.TryAcquire(ctx, c) // a minimum token means nothing to it
}

// A node that is opened later, and can do less than was promised for all, is not asked: its tokens
// could not be put in order with the others'.
// covers: K3
func TestLesserNodeIsNotAsked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefix := "lesser."
		defer restarts.Clear()
		b := dial(t, "redlock://?node=mem%3A%2F%2F"+prefix+"a&node=mem%3A%2F%2F"+prefix+
			"b&node=late%3A%2F%2F"+prefix+"c")
		defer b.Close()
		restarts.Store(prefix+"c", "")
		for range 10 {
			time.Sleep(time.Second)
			c := claim("k")
			if _, err := b.TryAcquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			node := dial(t, "mem://"+prefix+"c")
			if state, err := node.Inspect(t.Context(), "k"); err != nil || len(state.Holders) > 0 {
				t.Fatalf("%+v, %v: it was asked", state, err)
			}
			if err := errors.Join(storetest.Release(t.Context(), b, c), node.Close()); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A node that is opened later, and needs longer leases than those that were open before, is a node
// like any other to claims that are long enough; for shorter ones it is one that refuses.
// covers: Q14
func TestNodeWithLongLeasesComesLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		prefix := "long."
		defer restarts.Clear()
		b := dial(t, "redlock://?node=mem%3A%2F%2F"+prefix+"a&node=mem%3A%2F%2F"+prefix+
			"b&node=long%3A%2F%2F"+prefix+"c")
		defer b.Close()
		if d := b.Capabilities().MinTTL; d != 100*time.Millisecond {
			t.Fatalf("MinTTL = %v before the node answers", d)
		}
		restarts.Store(prefix+"c", "")
		time.Sleep(5 * time.Second) // until it has been opened
		node := dial(t, "mem://"+prefix+"c")
		defer node.Close()
		for ttl, want := range map[time.Duration]int{time.Second: 1, 200 * time.Millisecond: 0} {
			c := claim("k")
			c.TTL = ttl
			if _, err := b.TryAcquire(t.Context(), c); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if state, err := node.Inspect(t.Context(), "k"); err != nil ||
				len(state.Holders) != want {
				t.Errorf("a hold of %v: %+v, %v; want it held %d times on the node", ttl, state,
					err, want)
			}
			if _, err := b.Release(t.Context(), c); err != nil {
				t.Errorf("Release of a hold of %v = %v", ttl, err)
			}
			synctest.Wait()
		}
	})
}

// Tokens of nodes are put in one order by telling each of them the highest: one that takes none, or
// has none, leaves the quorum without.
func TestFencingNeedsMinToken(t *testing.T) {
	for name, less := range map[string]func(*backend.Capabilities){
		"no minimum": func(caps *backend.Capabilities) { caps.MinToken = false },
		"no tokens":  func(caps *backend.Capabilities) { caps.Fencing = false },
	} {
		b, err := redlock.New([]backend.Backend{
			membackend.New(), lesser{membackend.New(), less}, membackend.New(),
		}, redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if b.Capabilities().Fencing {
			t.Errorf("%s: the quorum has tokens", name)
		}
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}
}
