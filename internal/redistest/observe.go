package redistest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// An Observer notes who has held a key.
type Observer struct {
	b     backend.Backend
	key   string
	leave func()

	mu     sync.Mutex
	states int
	owners []string
	errs   []error
}

// Observe observes key until Leave, or the end of the test. It returns when the first state is
// there.
func Observe(t testing.TB, b backend.Backend, key string) *Observer {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	o, ended := &Observer{b: b, key: key}, make(chan struct{})
	o.leave = func() {
		cancel()
		<-ended
	}
	t.Cleanup(o.leave)
	go func() {
		defer close(ended)
		for state, err := range b.Observe(ctx, key) {
			if ctx.Err() == nil {
				o.note(state, err)
			}
		}
	}()
	storetest.Eventually(t, "a first state", func() error {
		if states, _, errs := o.seen(); states+len(errs) == 0 {
			return errors.New("none")
		}
		return nil
	})
	return o
}

func (o *Observer) note(state backend.State, err error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if err != nil {
		o.errs = append(o.errs, err)
		return
	}
	o.states++
	for _, h := range state.Holders {
		o.owners = append(o.owners, h.Owner)
	}
}

func (o *Observer) seen() (states int, owners []string, errs []error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.states, slices.Clone(o.owners), slices.Clone(o.errs)
}

// Leave ends the observation.
func (o *Observer) Leave() { o.leave() }

// briefHold is a hold that must be seen.
const briefHold = 100 * time.Millisecond

// hold holds the key for a moment, and reports whether that was seen.
func (o *Observer) hold(t testing.TB) error {
	t.Helper()
	c := storetest.Claim(o.key)
	if _, err := o.b.TryAcquire(t.Context(), c); err != nil {
		return err
	}
	time.Sleep(briefHold)
	if _, err := o.b.Release(t.Context(), c); err != nil {
		return err
	}
	if _, owners, _ := o.seen(); !slices.Contains(owners, c.Owner) {
		return errUnseen
	}
	return nil
}

var errUnseen = errors.New("a hold was not seen")

// SeesAll waits until four holds in a row are seen, for a moment each: more than a look now and
// then would see.
func (o *Observer) SeesAll(t testing.TB) {
	t.Helper()
	o.inARow(t, 4)
}

// Recovers waits until eleven holds in a row are seen. One may be seen before the server tells
// again, as each connection that is not made is a reason to look; so many are not.
func (o *Observer) Recovers(t testing.TB) {
	t.Helper()
	o.inARow(t, 11)
}

// inARow waits until so many holds in a row are seen. On a busy machine a hold may be over before
// word of it is here, a connection be made anew once more, or another failover be due: then it
// begins again.
func (o *Observer) inARow(t testing.TB, holds int) {
	t.Helper()
	storetest.Eventually(t, "holds in a row that are observed", func() error {
		for range holds {
			if err := o.hold(t); err != nil {
				_, _, errs := o.seen()
				return fmt.Errorf("%w; errors so far: %v", err, errs)
			}
		}
		return nil
	})
}

// ObservationLeavesNothing wants the server to be told nothing beyond what it was before, and the
// holders' requests to be the same, once nobody observes any more; and a connection that is killed
// to be made anew.
func ObservationLeavesNothing(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	testserver.OnlyWhere(t, srv, func(v testserver.Version) bool {
		return v.AtLeast(7, 0)
	}, "CLIENT LIST does not tell which connections broadcast")
	// What is noticed only because nothing is heard for that long is not noticed here.
	b := Dial(t, scheme+"://"+srv.Addr()+"?request_timeout=10m")
	defer func() { storetest.Want(t, "close", b.Close(), nil) }()
	other, key := storetest.Claim(storetest.Key(t)), storetest.Key(t)
	storetest.Acquired(t, b, other) // the client's own connections are there
	if n := broadcasting(srv); len(n) != 0 {
		t.Fatalf("connections %v that the server tells of changes, and nobody observes", n)
	}
	o := Observe(t, b, key)
	o.SeesAll(t)
	for range 3 {
		ids := broadcasting(srv)
		if len(ids) != 1 {
			t.Fatalf("%d connections for one who observes, want one", len(ids))
		}
		srv.MustDo("CLIENT", "KILL", "ID", ids[0])
		storetest.Eventually(t, "another connection", func() error {
			if now := broadcasting(srv); len(now) != 1 || now[0] == ids[0] {
				return fmt.Errorf("connections %v", now)
			}
			return nil
		})
		o.SeesAll(t)
	}
	if _, _, errs := o.seen(); len(errs) > 0 {
		t.Errorf("a connection that was lost is an error, though the server answers: %v", errs)
	}
	o.Leave()
	storetest.Eventually(t, "the end of the connection", func() error {
		if ids := broadcasting(srv); len(ids) > 0 {
			return fmt.Errorf("connections %v", ids)
		}
		return nil
	})
}

// broadcasting are the ids of the connections with CLIENT TRACKING in BCAST mode.
func broadcasting(srv *testserver.Server) (ids []string) {
	for line := range strings.Lines(srv.MustDo("CLIENT", "LIST")) {
		id, rest, _ := strings.Cut(strings.TrimPrefix(line, "id="), " ")
		_, flags, _ := strings.Cut(rest, " flags=")
		if flags, _, _ = strings.Cut(flags, " "); strings.Contains(flags, "B") {
			ids = append(ids, id)
		}
	}
	return ids
}

// TrackingRefused has an ACL, and a proxy without RESP3 or without CLIENT, keep the server from
// telling of changes: that is said, after the state as it is now, and locks go on.
func TrackingRefused(t *testing.T, scheme string) {
	acl := testserver.Redis(t)
	urls := map[string]string{
		"the user may not": SetUser(t, acl, scheme, append(Permissions(t), "SCAN")...),
		"no CLIENT command": scheme + "://" +
			testserver.Redis(t, testserver.WithArgs("--rename-command", "CLIENT", "")).Addr(),
		"no RESP3": scheme + "://" +
			testserver.Redis(t, testserver.WithArgs("--rename-command", "HELLO", "")).Addr(),
	}
	for name, url := range urls {
		t.Run(name, func(t *testing.T) {
			b := Dial(t, url)
			defer func() { storetest.Want(t, "close", b.Close(), nil) }()
			c := storetest.Claim(storetest.Key(t))
			storetest.Acquired(t, b, c)
			var last error
			states := 0
			for state, err := range b.Observe(storetest.Quick(t, storetest.Patience), c.Key) {
				if last = err; err != nil {
					continue
				}
				if states++; len(state.Holders) != 1 || state.Holders[0].Owner != c.Owner {
					t.Errorf("state %+v", state)
				}
			}
			if !errors.Is(last, errors.ErrUnsupported) ||
				!strings.Contains(last.Error(), "CLIENT TRACKING") || states == 0 {
				t.Errorf("%d states, and then %v; want one, and why there are no more", states,
					last)
			}
			storetest.Want(t, "release", storetest.Release(t.Context(), b, c), nil)
		})
	}
}
