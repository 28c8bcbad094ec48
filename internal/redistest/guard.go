package redistest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// Restarts lets a server forget everything while a lock is held, and another wants it: by a
// restart, and by FLUSHALL. The other gets the lock only when the first cannot hold it any more,
// and Lock waits for that.
//
// covers: R3, R4, R8, D5
func Restarts(t *testing.T, scheme string) {
	t.Parallel()
	const longest = time.Second
	for name, forget := range map[string]func(*testserver.Server){
		"restart": (*testserver.Server).Restart,
		"flush":   func(s *testserver.Server) { s.MustDo("FLUSHALL") },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testserver.Redis(t)
			Mark(t, srv, longest, time.Hour)
			url := scheme + "://" + srv.Addr() + "?max_ttl=" + longest.String()
			b, other := Dial(t, url), Dial(t, url)
			defer func() { _, _ = b.Close(), other.Close() }()
			c := storetest.Claim(storetest.Key(t))
			c.TTL = longest
			before := time.Now()
			storetest.Acquired(t, b, c)
			believed := before.Add(longest) // without what the locker takes off
			forget(srv)

			storetest.Eventually(t, "the server is closed", func() error {
				_, err := other.TryAcquire(t.Context(), Claim2(c))
				var q *backend.QuarantineError
				if err == nil {
					t.Fatal(history.Broken + "the lock of one who holds was granted to another")
				}
				if errors.As(err, &q) && q.RetryAfter > longest {
					return nil
				}
				return err
			})
			l, err := locker.New(other, locker.Bare, locker.Config{TTL: longest})
			storetest.Want(t, "locker", err, nil)
			ctx, cancel := context.WithTimeout(t.Context(), storetest.Patience)
			defer cancel()
			g, err := l.Lock(ctx, c.Key)
			storetest.Want(t, "Lock behind a quarantine", err, nil)
			if early := time.Until(believed); early > 0 {
				t.Errorf(history.Broken+"granted %v before the first lease ended", early)
			}
			storetest.Want(t, "unlock", g.Unlock(), nil)
			storetest.Want(t, "close", l.Shutdown(ctx), nil)
		})
	}
}

// Unguarded holds clients without the server's guard, or with another, to be refused when they are
// opened: they would grant while the others wait for what the server has forgotten. So would those
// with it whose leases are longer, and their renewals.
//
// covers: R1, R3
func Unguarded(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	Mark(t, srv, time.Minute, time.Hour)
	for _, query := range []string{"", "?max_ttl=30s", "?max_ttl=1m&replica_lag=1s"} {
		if _, err := backend.Open(t.Context(), scheme+"://"+srv.Addr()+query); !errors.Is(err,
			backend.ErrUnsafe) {
			t.Errorf("open with %q = %v, want ErrUnsafe", query, err)
		}
	}
	b := Dial(t, scheme+"://"+srv.Addr()+"?max_ttl=1m")
	defer func() { storetest.Want(t, "close", b.Close(), nil) }()
	c := storetest.Claim(storetest.Key(t))
	c.TTL = time.Minute
	storetest.Acquired(t, b, c)
	c.TTL += time.Millisecond
	storetest.Want(t, "a renewal for longer", b.Renew(t.Context(), c), backend.ErrInvalid)
	_, err := b.TryAcquire(t.Context(), c)
	storetest.Want(t, "a repeat for longer", err, backend.ErrInvalid)
	_, err = b.TryAcquireAll(t.Context(), []backend.Claim{Claim2(c)})
	storetest.Want(t, "several for longer", err, backend.ErrInvalid)
	waiting := Claim2(c)
	waiting.Queue, waiting.WaiterTTL = true, time.Minute
	_, err = b.Heartbeat(t.Context(), []backend.Claim{waiting})
	storetest.Want(t, "a heartbeat for longer", err, backend.ErrInvalid)
}

// Claim2 is another's claim on the same key.
func Claim2(c backend.Claim) backend.Claim {
	c.Owner = backend.NewOwner()
	return c
}

// SameServer holds Identity to what it is for: the same for two clients of one server, another for
// another server and for another life of it.
//
// covers: Q3
func SameServer(t *testing.T, scheme string) {
	t.Parallel()
	// It waits for more replicas.
	one, two := testserver.Redis(t, testserver.WithArgs("--repl-diskless-sync-delay", "0")),
		testserver.Redis(t)
	identity := func(srv *testserver.Server) (id string) {
		b := Dial(t, scheme+"://"+srv.Addr())
		defer func() { _ = b.Close() }()
		id, err := b.Identity(t.Context())
		storetest.Want(t, "Identity", err, nil)
		return id
	}
	first := identity(one)
	if again, other := identity(one), identity(two); first != again || first == other {
		t.Errorf("%q, again %q, another server %q", first, again, other)
	}
	one.Restart()
	if later := identity(one); later == first {
		t.Errorf("the same identity after a restart: %q", later)
	}
	demoted := Dial(t, scheme+"://"+two.Addr()) // while it takes writes; a replica cannot be opened
	defer func() { _ = demoted.Close() }()
	two.MustDo("REPLICAOF", "127.0.0.1", fmt.Sprint(one.Port()))
	storetest.Eventually(t, "a replica has its primary's identity, or none", func() error {
		r, err := demoted.Identity(t.Context())
		if errors.Is(err, errors.ErrUnsupported) {
			return nil
		}
		if p := identity(one); err == nil && p != r {
			err = fmt.Errorf("primary %q, replica %q", p, r)
		}
		return err
	})
}
