package script

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// releaseAll releases claims in one request, and says of each whether it held.
func (r rig) releaseAll(claims ...backend.Claim) (held []bool) {
	r.t.Helper()
	for i := range claims {
		claims[i].Key, claims[i].TTL = r.key, minute
	}
	answers, err := DecodeReleaseAll(r.send(r.l.ReleaseAll(claims)), len(claims))
	if err != nil {
		r.t.Fatalf("releaseall: %v", err)
	}
	for _, err := range answers {
		held = append(held, err == nil)
	}
	return held
}

// Claims that wait, that hold and that do neither are released in a few commands, however many they
// are, and those who stay are as they were: in the order of the queue, and counted.
//
// covers: W8, R10
func TestReleaseAllOfMany(t *testing.T) {
	for name, mode := range map[string]func(owner string) backend.Claim{
		"readers": reader, "permits": func(owner string) backend.Claim {
			return permit(owner, 300)
		},
	} {
		r := newRig(t)
		var claims []backend.Claim
		for i := range 300 {
			claims = append(claims, mode(fmt.Sprint("c", i)))
			r.granted(claims[i])
		}
		var gone, stay []backend.Claim
		var want []bool
		for i, c := range claims {
			if i%7 == 3 || len(gone) == 200 {
				stay = append(stay, c)
				continue
			}
			gone, want = append(gone, c), append(want, true)
		}
		c := mode("stranger")
		c.NoneInFlight = true
		for i := range gone {
			gone[i].NoneInFlight = true
		}
		gone, want = append(gone, c), append(want, false)
		var held []bool
		if n := r.executed(func() { held = r.releaseAll(gone...) }); n > 20 {
			t.Errorf("%s: %d commands", name, n)
		}
		if !slices.Equal(held, want) {
			t.Errorf("%s: held %v, want %v", name, held, want)
		}
		s := r.state()
		if len(s.Holders) != len(stay) {
			t.Errorf("%s: %d hold, want %d", name, len(s.Holders), len(stay))
		}
		for _, c := range stay {
			r.dropped(c)
		}
		r.granted(plainClaim("writer"))
	}

	r := newRig(t)
	r.granted(plainClaim("holder"))
	var gone []backend.Claim
	var stay []string
	for i := range 300 {
		c := queued(fmt.Sprint("w", i))
		_ = r.refused(c, i+1)
		if i%7 == 3 || len(gone) == 200 {
			stay = append(stay, c.Owner)
			continue
		}
		c.NoneInFlight = true
		gone = append(gone, c)
	}
	if n := r.executed(func() { r.releaseAll(gone...) }); n > 20 {
		t.Errorf("waiters: %d commands", n)
	}
	r.dropped(plainClaim("holder"))
	for _, owner := range stay {
		if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != owner {
			t.Fatalf("%+v hold, want %s", s.Holders, owner)
		}
		r.dropped(queued(owner))
	}
}

// Nobody of those who go is let in on the way, and whoever stood behind them is, once.
//
// covers: W7, W9
func TestReleaseAllLetsIn(t *testing.T) {
	r := newRig(t)
	before := r.granted(plainClaim("holder"))
	for i, owner := range []string{"a", "b", "stays", "c"} {
		_ = r.refused(queued(owner), i+1)
	}
	held := r.releaseAll(queued("a"), plainClaim("holder"), queued("c"), queued("b"))
	if want := []bool{false, true, false, false}; !slices.Equal(held, want) {
		t.Errorf("held %v, want %v", held, want)
	}
	s := r.state()
	if len(s.Holders) != 1 || s.Holders[0].Owner != "stays" || len(s.Waiters) != 0 {
		t.Errorf("afterwards %+v", s)
	}
	if g := r.granted(queued("stays")); g.Token <= before.Token {
		t.Errorf("token %d after %d", g.Token, before.Token)
	}
	for _, owner := range []string{"a", "holder", "b", "c"} {
		if _, err := r.acquire(owner); !errors.Is(err, backend.ErrLost) {
			t.Errorf("a late attempt of %s: %v", owner, err)
		}
	}
}

// Where the server may have forgotten holds, nobody is let in; those who have a lease may give it
// back, by any rule.
//
// covers: R1
func TestReleaseAllBehindAGuard(t *testing.T) {
	long, short := layout(t).Guarded(minute, 0), layout(t).Guarded(minute/2, 0)
	r := variant(t, long)
	_, _ = r.tryAcquire(plainClaim("a"))
	r.pass(time.Hour)
	for _, c := range []backend.Claim{plainClaim("a"), queued("b"), queued("c")} {
		_, _ = r.tryAcquire(c)
	}
	r.pass(40 * time.Second) // closed again
	r.l = short
	if held := r.releaseAll(plainClaim("a"), queued("c")); !held[0] || held[1] {
		t.Errorf("held %v by another rule", held)
	}
	if s, err := r.inspect(); err != nil || len(s.Holders) != 0 || len(s.Waiters) != 1 {
		t.Errorf("behind a guard: %+v, %v; want b to wait", s, err)
	}
}
