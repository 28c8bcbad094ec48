package redistest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

type fencing interface {
	backend.Backend
	Fenced(ctx context.Context, key string, token uint64, script string, keys,
		args []string) (any, error)
	LockKey(key string) string
}

// A fencedLock is a lock, and data that it protects.
type fencedLock struct {
	t   *testing.T
	b   fencing
	srv *testserver.Server
	key string
}

func (l fencedLock) claim() backend.Claim {
	c := storetest.Claim(l.key)
	c.NoneInFlight = true
	return c
}

func (l fencedLock) queued() backend.Claim {
	c := l.claim()
	c.Queue, c.WaiterTTL = true, time.Minute
	storetest.Want(l.t, "queue", l.try(c), backend.ErrHeld)
	return c
}

func (l fencedLock) try(c backend.Claim) error {
	_, err := l.b.TryAcquire(l.t.Context(), c)
	return err
}

func (l fencedLock) granted(c backend.Claim) uint64 {
	l.t.Helper()
	return storetest.Acquired(l.t, l.b, c).Token
}

func (l fencedLock) release(c backend.Claim) {
	l.t.Helper()
	storetest.Want(l.t, "release", storetest.Release(l.t.Context(), l.b, c), nil)
}

// writes checks that a write with a token is done, or refused and not done, whatever form the lock
// has.
func (l fencedLock) writes(when string, token uint64, may bool) {
	l.t.Helper()
	data := l.key + ":data:{" + script.HashTag(l.b.LockKey(l.key)) + "}"
	value := fmt.Sprint(when, token)
	before := l.srv.MustDo("GET", data)
	_, err := l.b.Fenced(l.t.Context(), l.key, token, "return redis.call('SET', KEYS[1], ARGV[1])",
		[]string{data}, []string{value})
	now := l.srv.MustDo("GET", data)
	switch {
	case may:
		storetest.Want(l.t, when, err, nil)
		if now != value {
			l.t.Errorf("%s: the data are %q, want %q", when, now, value)
		}
	default:
		storetest.Want(l.t, when, err, backend.ErrLost)
		if now != before {
			l.t.Errorf("%s: the data are %q, want %q as before", when, now, before)
		}
	}
}

// form checks what is stored, so that each form of a lock is known to have been tried.
func (l fencedLock) form(want string) {
	l.t.Helper()
	if got := l.srv.MustDo("TYPE", l.b.LockKey(l.key)); got != want {
		l.t.Fatalf("the lock is a %s in Redis, want %s", got, want)
	}
}

// Fenced holds fenced writes to what a token is worth, with a lock in each of its forms. A write is
// refused from the moment at which a successor holds, before that has written anything.
//
// covers: K4, K5, K7
func Fenced(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	for name, test := range map[string]func(t *testing.T, l fencedLock){
		"string": func(_ *testing.T, l fencedLock) {
			l.writes("never held", 1, false)
			a := l.claim()
			first := l.granted(a)
			l.form("string")
			l.writes("held", first, true)
			l.writes("again", first, true)
			l.writes("one too many", first+1, false)
			l.writes("one too few", first-1, false)
			l.release(a)
			l.form("string")
			l.writes("free", first, false)
			second := l.granted(l.claim())
			l.writes("of the one before", first, false)
			l.writes("of the next", second, true)
		},
		"expired": func(t *testing.T, l fencedLock) {
			a := l.claim()
			a.TTL = 50 * time.Millisecond
			first := l.granted(a)
			var second uint64
			storetest.Eventually(t, "another gets the lock", func() error {
				g, err := l.b.TryAcquire(t.Context(), l.claim())
				second = g.Token
				return err
			})
			l.writes("late", first, false)
			l.writes("of the next", second, true)
		},
		"hash": func(_ *testing.T, l fencedLock) {
			a := l.claim()
			first := l.granted(a)
			l.writes("held", first, true)
			b, c := l.queued(), l.queued()
			l.form("hash")
			l.writes("held, and others wait", first, true)
			l.writes("one too many", first+1, false)
			l.release(a)
			l.form("hash")
			l.writes("late, and the next was let in", first, false)
			second := l.granted(b)
			l.writes("let in, and another waits", second, true)
			l.release(b)
			l.form("string")
			third := l.granted(c)
			l.writes("late again", second, false)
			l.writes("the last of the queue", third, true)
			c.NoneInFlight = false
			l.release(c)
			l.form("hash") // for its tombstone
			l.writes("after the last", third, false)
		},
		"reserve": func(_ *testing.T, l fencedLock) {
			a := l.claim()
			a.Reserve = 8
			first := l.granted(a)
			l.writes("the first of a lease", first, true)
			l.writes("the third", first+2, true)
			l.writes("the first, late", first, false)
			l.writes("the third again", first+2, true)
			l.writes("the last", first+7, true)
			l.writes("one too many", first+8, false)
			l.queued()
			l.form("hash")
			l.writes("the last, and others wait", first+7, true)
			l.writes("the third, and others wait", first+2, false)
			l.writes("one too many, and others wait", first+8, false)
			l.release(a)
			l.writes("the last, late", first+7, false)
		},
		"re-entrant": func(_ *testing.T, l fencedLock) {
			a := l.claim()
			a.Reentrant, a.Hold = true, backend.NewOwner()
			again := a
			again.Hold = backend.NewOwner()
			first := l.granted(a)
			l.writes("held", first, true)
			if token := l.granted(again); token != first {
				l.t.Fatalf("token %d after %d", token, first)
			}
			l.form("hash")
			l.writes("held twice", first, true)
			l.release(a)
			l.writes("held still", first, true)
			l.release(again)
			l.writes("late", first, false)
		},
		"shared": func(_ *testing.T, l fencedLock) {
			a := l.claim()
			a.Mode = backend.Shared
			l.writes("by a reader", l.granted(a), false)
		},
		"deleted": func(_ *testing.T, l fencedLock) {
			first := l.granted(l.claim())
			srv.MustDo("DEL", l.b.LockKey(l.key))
			l.writes("forgotten", first, false)
			l.writes("of the next", l.granted(l.claim()), true)
		},
		"foreign": func(_ *testing.T, l fencedLock) {
			srv.MustDo("SET", l.b.LockKey(l.key), "a session of some web shop")
			l.writes("not a lock", 1, false)
			srv.MustDo("DEL", l.b.LockKey(l.key))
			srv.MustDo("RPUSH", l.b.LockKey(l.key), "1")
			l.writes("a list", 1, false)
		},
	} {
		t.Run(name, func(t *testing.T) { test(t, lockOn(t, srv, scheme+"://"+srv.Addr())) })
	}
	t.Run("dialect", func(t *testing.T) {
		l := lockOn(t, srv, scheme+"://"+srv.Addr()+"?dialect=string")
		l.writes("never held", 1, false)
		a := l.claim()
		a.Reserve = 4
		first := l.granted(a)
		l.writes("held", first, true)
		l.writes("the second", first+1, true)
		l.writes("the first, late", first, false)
		l.writes("one too many", first+4, false)
		srv.MustDo("SET", l.b.LockKey(l.key), "a peer's")
		l.writes("a peer holds", first+1, false)
		srv.MustDo("DEL", l.b.LockKey(l.key))
		l.writes("free", first+1, false)
		l.writes("of the next", l.granted(l.claim()), true)
	})
	t.Run("replies", func(t *testing.T) { replies(t, lockOn(t, srv, scheme+"://"+srv.Addr())) })
}

// FencedInCluster has the keys of data in the slot of the lock, and says so of others.
func FencedInCluster(t *testing.T, set *testserver.ClusterSet, url string) {
	l := lockOn(t, set.Nodes[0], url)
	token := l.granted(l.claim())
	run := func(keys ...string) (any, error) {
		return l.b.Fenced(t.Context(), l.key, token, "return redis.call('INCR', KEYS[1])", keys,
			nil)
	}
	reply, err := run("stock:{" + l.key + "}")
	storetest.Want(t, "in the slot of the lock", err, nil)
	if reply != int64(1) {
		t.Errorf("the reply is %v", reply)
	}
	_, err = run("stock:{"+l.key+"}", "stock")
	storetest.Want(t, "in another slot", err, backend.ErrInvalid)
}

func lockOn(t *testing.T, srv *testserver.Server, url string) fencedLock {
	b, ok := Closing(t, url).(fencing)
	if !ok {
		t.Fatalf("%s: no fenced writes", url)
	}
	return fencedLock{t, b, srv, storetest.Key(t)}
}

// replies checks what a script gets and gives back.
func replies(t *testing.T, l fencedLock) {
	token := l.granted(l.claim())
	run := func(source string, args ...string) (any, error) {
		return l.b.Fenced(t.Context(), l.key, token, source, []string{l.key + ":a", l.key + ":b"},
			args)
	}
	for source, want := range map[string]any{
		"return #KEYS * 10 + #ARGV":         int64(23),
		"return KEYS[2] .. ARGV[3]":         l.key + ":b" + "z",
		"return redis.call('GET', KEYS[1])": nil,
		"return":                            nil,
		"redis.call('SET', KEYS[2], ARGV[1]); return redis.call('GET', KEYS[2]) -- a comment": "x",
	} {
		got, err := run(source, "x", "y", "z")
		storetest.Want(t, source, err, nil)
		if got != want {
			t.Errorf("%s: %v, want %v", source, got, want)
		}
	}
	got, err := run("return {1, 'a', {2}}")
	storetest.Want(t, "a table", err, nil)
	if fmt.Sprint(got) != "[1 a [2]]" {
		t.Errorf("a table: %v", got)
	}
	if _, err := run("return redis.error_reply('SOLD out')"); err == nil ||
		!strings.Contains(err.Error(), "SOLD out") {
		t.Errorf("an error of the script: %v", err)
	}
	many := slices.Repeat([]string{"x"}, 9000)
	got, err = run("return #ARGV", many...)
	storetest.Want(t, "many arguments", err, nil)
	if got != int64(len(many)) {
		t.Errorf("many arguments: %v", got)
	}
	_, err = run("#!lua\nreturn 1")
	storetest.Want(t, "a shebang", err, backend.ErrInvalid)
	_, err = l.b.Fenced(t.Context(), l.key, 0, "return 1", nil, nil)
	storetest.Want(t, "no token", err, backend.ErrInvalid)
}
