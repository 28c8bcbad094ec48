package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// variant is a rig on a server of its own, for another layout.
func variant(t *testing.T, l Layout) rig {
	t.Helper()
	return rig{t: t, srv: testserver.Redis(t), l: l, key: "k"}
}

func (r rig) tryAcquire(c backend.Claim) (backend.Grant, error) {
	r.t.Helper()
	c.Key, c.TTL = r.key, minute
	return DecodeAcquire(r.send(r.l.Acquire(c)), c)
}

func (r rig) tryRenew(c backend.Claim) error {
	r.t.Helper()
	c.Key, c.TTL = r.key, minute
	return DecodeRenew(r.send(r.l.Renew(c)))
}

func (r rig) tryRelease(c backend.Claim) error {
	r.t.Helper()
	c.Key, c.TTL = r.key, minute
	return released(r.send(r.l.Release(c)))
}

// pass makes the mark older, as if time had passed.
func (r rig) pass(d time.Duration) {
	r.t.Helper()
	words := strings.Fields(r.srv.MustDo("GET", r.l.MarkKey()))
	words[2] = fmt.Sprint(r.ms() - d.Milliseconds())
	r.srv.MustDo("SET", r.l.MarkKey(), strings.Join(words, " "))
}

func (r rig) closed(what, why string, err error) {
	r.t.Helper()
	var q *backend.QuarantineError
	if !errors.As(err, &q) || !strings.Contains(q.Why, why) || q.RetryAfter <= 0 ||
		q.RetryAfter > 64*time.Second {
		r.t.Fatalf("%s: %v, want a quarantine because it is %s", what, err, why)
	}
}

// Whatever makes a server forget holds closes it, for long enough, and what it still knows is
// renewed and released.
//
// covers: R1, R3, R4, R8, R16, R26, D2, D5
func TestGuard(t *testing.T) {
	l := layout(t).For("me").Guarded(minute, 0)
	for what, forget := range map[string]func(rig){
		"new or flushed": func(r rig) { r.srv.MustDo("DEL", l.MarkKey()) },
		"restarted or promoted": func(r rig) {
			r.srv.MustDo("REPLICAOF", "127.0.0.1", "1")
			r.srv.MustDo("REPLICAOF", "NO", "ONE")
		},
		"set back in time": func(r rig) { r.pass(-30 * time.Second) },
	} {
		r := variant(t, l)
		_, err := r.tryAcquire(plainClaim("a"))
		r.closed("the first use ever", "new", err)
		r.pass(62 * time.Second)
		_, err = r.tryAcquire(plainClaim("a"))
		r.closed("before the grace is over", "new", err)
		r.pass(63 * time.Second)
		if _, err := r.tryAcquire(queued("a")); err != nil {
			t.Fatal(err)
		}
		if _, err := r.tryAcquire(queued("b")); !errors.Is(err, backend.ErrHeld) {
			t.Fatal(err)
		}

		forget(r)
		_, err = r.tryAcquire(plainClaim("c"))
		r.closed("another", what, err)
		if err := r.tryRenew(queued("a")); err != nil {
			t.Fatalf("%s: renew: %v", what, err)
		}
		a := queued("a")
		a.NoneInFlight = true
		if err := r.tryRelease(a); err != nil {
			t.Fatalf("%s: release: %v", what, err)
		}
		if s, err := r.inspect(); err != nil || len(s.Holders) != 0 || len(s.Waiters) != 1 {
			t.Fatalf("%s: the release let somebody in: %+v, %v", what, s, err)
		}
		for _, c := range []backend.Claim{queued("b"), plainClaim("c"), reader("d")} {
			_, err = r.tryAcquire(c)
			r.closed(c.Owner, what, err)
		}
		r.pass(63 * time.Second)
		if _, err := r.tryAcquire(queued("b")); err != nil {
			t.Fatalf("%s: after the grace: %v", what, err)
		}
	}
}

// A client with a longer TTL than the others would outlive their grace.
//
// covers: R1
func TestGuardOfOthers(t *testing.T) {
	r := variant(t, layout(t).Guarded(minute, 0))
	_, _ = r.tryAcquire(plainClaim("a"))
	r.pass(time.Hour)
	r.l = layout(t).Guarded(2*minute, 0)
	if _, err := r.tryAcquire(plainClaim("a")); !errors.Is(err, backend.ErrUnsafe) ||
		!strings.Contains(err.Error(), "60000/62200 ms there, 120000/123400 ms here") {
		t.Errorf("another max_ttl: %v, want ErrUnsafe that says which", err)
	}
	r.srv.MustDo("SET", r.l.MarkKey(), "somebody's")
	if _, err := r.tryAcquire(plainClaim("a")); !errors.Is(err, backend.ErrForeign) {
		t.Errorf("a damaged mark: %v, want ErrForeign", err)
	}
}

// A client that was started with another max_ttl than it had, or than the others have, gives back
// what it holds. It lets nobody in with that, as it does not know for how long this server is
// closed; and its lease does not grow.
//
// covers: R1
func TestGuardLetsOthersRelease(t *testing.T) {
	long, short := layout(t).Guarded(minute, 0), layout(t).Guarded(minute/2, 0)
	r := variant(t, long)
	_, _ = r.tryAcquire(plainClaim("a"))
	r.pass(time.Hour)
	for _, owner := range []string{"a", "b"} {
		if _, err := r.tryAcquire(queued(owner)); (err == nil) != (owner == "a") {
			t.Fatalf("%s: %v", owner, err)
		}
	}
	r.pass(40 * time.Second) // over for the short one, not for this server
	r.l = short
	a := queued("a")
	a.NoneInFlight = true
	if err := r.tryRenew(a); !errors.Is(err, backend.ErrUnsafe) {
		t.Errorf("renew with another max_ttl: %v, want ErrUnsafe", err)
	}
	if err := r.tryRelease(a); err != nil {
		t.Errorf("release with another max_ttl: %v", err)
	}
	if err := r.tryRelease(a); !errors.Is(err, backend.ErrLost) {
		t.Errorf("second release with another max_ttl: %v, want ErrLost", err)
	}
	s, err := r.inspect()
	if err != nil || len(s.Holders) != 0 || len(s.Waiters) != 1 {
		t.Errorf("afterwards: %+v, %v; want nobody but b, in the queue", s, err)
	}
	r.l = long
	_, err = r.tryAcquire(queued("b"))
	r.closed("b before the grace is over", "new", err)
	r.pass(time.Hour)
	if _, err = r.tryAcquire(queued("b")); err != nil {
		t.Errorf("b after the grace: %v", err)
	}
}

// Without memory for the mark the server stays closed.
//
// covers: R6
func TestGuardOutOfMemory(t *testing.T) {
	r := variant(t, layout(t).Guarded(minute, 0))
	r.srv.MustDo("CONFIG", "SET", "maxmemory", "1")
	for range 2 {
		_, err := r.tryAcquire(plainClaim("a"))
		r.closed("out of memory", "new", err)
	}
	if n := r.srv.MustDo("DBSIZE"); n != "0" {
		t.Errorf("%s keys", n)
	}
}

func dialectRig(t *testing.T) rig {
	t.Helper()
	l, err := Dialect("", 0, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return variant(t, l)
}

// covers: R24
func TestDialect(t *testing.T) {
	r := dialectRig(t)
	first, err := r.tryAcquire(plainClaim("a"))
	if err != nil {
		t.Fatal(err)
	}
	if got := r.srv.MustDo("GET", "k"); got != "a" {
		t.Errorf("the key holds %q, want the owner", got)
	}
	if again, err := r.tryAcquire(plainClaim("a")); err != nil || again.Token != first.Token {
		t.Errorf("a repeat: %+v, %v", again, err)
	}
	if got := r.srv.MustDo("SET", "k", "peer", "NX", "PX", "1000"); got != "" && got != "<nil>" {
		t.Errorf("a peer took it: %q", got)
	}
	if _, err := r.tryAcquire(plainClaim("b")); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("another: %v", err)
	}
	if err := r.tryRenew(plainClaim("b")); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewed by another: %v", err)
	}
	if err := r.tryRelease(plainClaim("b")); !errors.Is(err, backend.ErrLost) {
		t.Errorf("released by another: %v", err)
	}
	minToken := plainClaim("a")
	minToken.MinToken = first.Token + 1000
	if err := r.tryRenew(minToken); err != nil {
		t.Errorf("renew: %v", err)
	}
	if err := r.tryRelease(plainClaim("a")); err != nil {
		t.Errorf("release: %v", err)
	}
	if _, err := r.tryAcquire(plainClaim("a")); !errors.Is(err, backend.ErrLost) {
		t.Errorf("a late attempt: %v", err)
	}

	r.srv.MustDo("SET", "k", "peer", "PX", "60000")
	if _, err := r.tryAcquire(plainClaim("c")); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("while a peer holds: %v", err)
	}
	if s, err := r.inspect(); err != nil || s.Holders[0].Owner != "peer" ||
		s.Holders[0].Token != 0 {
		t.Errorf("a peer's: %+v, %v", s, err)
	}
	r.srv.MustDo("DEL", "k")
	c := plainClaim("c")
	c.Reserve = 5
	next, err := r.tryAcquire(c)
	if err != nil || next.Token <= first.Token+1000 || next.Reserved != 5 {
		t.Errorf("after a token that was raised to %d: %+v, %v", first.Token+1000, next, err)
	}
	r.srv.MustDo("DEL", "k")
	if err := r.tryRenew(c); !errors.Is(err, backend.ErrLost) {
		t.Errorf("renewal of what an operator deleted: %v", err)
	}
	r.srv.MustDo("RPUSH", "k", "x")
	for what, err := range map[string]error{
		"renew": r.tryRenew(c), "release": r.tryRelease(c), "acquire": func() error {
			_, err := r.tryAcquire(c)
			return err
		}(),
	} {
		if !errors.Is(err, backend.ErrForeign) {
			t.Errorf("%s on a list: %v", what, err)
		}
	}
}

// The side key is in the lock's slot, so that a cluster takes both.
func TestSideKey(t *testing.T) {
	l, err := Dialect("p:", 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"k": "{p:k}:holdfast", "a{b}c": "p:a{b}c:tagged:holdfast", "a{b": "{p:a{b}:holdfast",
	} {
		if got := l.Inspect(key).Keys; got[0] != "p:"+key || got[1] != want {
			t.Errorf("%q: %q", key, got)
		}
		if back, ok := l.UserKey("p:" + key); !ok || back != key {
			t.Errorf("%q came back as %q", key, back)
		}
	}
}
