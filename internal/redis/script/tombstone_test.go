package script

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

const minute = time.Minute

var seq atomic.Int64 // keys of this binary

func (r rig) release(owner string, noneInFlight bool) error {
	r.t.Helper()
	c := backend.Claim{Key: r.key, Owner: owner, TTL: minute, NoneInFlight: noneInFlight}
	return released(r.send(r.l.Release(c)))
}

// covers: A4
func TestTombstone(t *testing.T) {
	r := newRig(t)
	if err := r.release("me", false); !errors.Is(err, backend.ErrLost) {
		t.Fatalf("release of nothing: %v", err)
	}
	if left := r.left(); left < (2*minute+3*time.Second).Milliseconds()-1000 {
		t.Errorf("the key is gone in %d ms, before the tombstone ends", left)
	}
	if _, err := r.acquire("me"); !errors.Is(err, backend.ErrLost) {
		t.Fatalf("the attempt that came late: %v, want ErrLost", err)
	}
	g, err := r.acquire("you")
	if err != nil {
		t.Fatalf("another: %v", err)
	}
	if err := r.release("me", false); !errors.Is(err, backend.ErrLost) {
		t.Fatalf("release while another holds: %v", err)
	}
	if again, err := r.acquire("you"); err != nil || again.Token != g.Token {
		t.Fatalf("the holder was disturbed: %+v, %v", again, err)
	}
	if n := strings.Count(r.stored(), " me;"); n != 1 {
		t.Errorf("%d tombstones of one owner", n)
	}
}

// covers: A4, R10
func TestTombstonesAreBounded(t *testing.T) {
	r := newRig(t)
	ends := r.now() + 1000_000
	var z strings.Builder
	for i := range 32 {
		fmt.Fprintf(&z, "%d owner%d;", ends+int64((i*7+4)%32), i) // owner4 ends first
	}
	r.set("v", "h2", "f", "1", "z", z.String())
	if err := r.release("me", false); !errors.Is(err, backend.ErrLost) {
		t.Fatal(err)
	}
	h := r.stored()
	if n := strings.Count(h, ";"); n != 32 || strings.Contains(h, "owner4;") ||
		!strings.Contains(h, " me;") {
		t.Errorf("%d tombstones: %s", n, h)
	}
	if _, err := r.acquire("owner31"); !errors.Is(err, backend.ErrLost) {
		t.Errorf("owner31: %v, want ErrLost", err)
	}
	if _, err := r.acquire("owner4"); err != nil {
		t.Errorf("owner4, whose tombstone was dropped: %v", err)
	}
}

func TestTombstonesArePurged(t *testing.T) {
	past, future := "1000", fmt.Sprint(newRig(t).now()+1000_000)
	for name, test := range map[string]struct{ z, acquired, released string }{
		"all ended": {past + " a;", "", ""},
		"some ended": {
			past + " a;" + future + " b;" + past + " c;", future + " b;",
			future + " b;",
		},
		"none ended": {future + " b;", future + " b;", future + " b;"},
	} {
		r := newRig(t)
		r.set("v", "h2", "f", "1", "z", test.z)
		if _, err := r.acquire("me"); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := r.field("z"); got != test.acquired {
			t.Errorf("%s: after acquire %q, want %q", name, got, test.acquired)
		}
		r.set("v", "h2", "f", "1", "z", test.z, "o", "me", "x", fmt.Sprint(r.now()+60_000))
		if err := r.release("me", true); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := r.field("z"); got != test.released {
			t.Errorf("%s: after release %q, want %q", name, got, test.released)
		}
	}
}

// left is how long the key lives yet, in ms.
func (r rig) left() (ms int64) {
	r.t.Helper()
	if _, err := fmt.Sscan(r.srv.MustDo("PTTL", r.l.Key(r.key)), &ms); err != nil {
		r.t.Fatal(err)
	}
	return ms
}

// field is one of the long form; the short one has none.
func (r rig) field(name string) string {
	r.t.Helper()
	if r.srv.MustDo("TYPE", r.l.Key(r.key)) != "hash" {
		return ""
	}
	reply, err := r.srv.Do("HGET", r.l.Key(r.key), name)
	if err != nil {
		r.t.Fatal(err)
	}
	s, _ := reply.(string)
	return s
}

// Owners are opaque bytes, and none can speak for another or break the list of tombstones.
//
// covers: I4
func TestStrangeOwners(t *testing.T) {
	r := newRig(t)
	owners := []string{"a", "a;", "a b", "1 a;", "a%20b", "%", "\x00", "a\r\n", "é", "\xff"}
	for _, o := range owners {
		if err := r.release(o, false); !errors.Is(err, backend.ErrLost) {
			t.Fatalf("%q: %v", o, err)
		}
	}
	for _, o := range owners {
		if _, err := r.acquire(o); !errors.Is(err, backend.ErrLost) {
			t.Errorf("%q was released, and acquired: %v", o, err)
		}
	}
	for _, o := range []string{"b", "a%3B", "1", "a b;"} {
		if _, err := r.acquire(o); err != nil {
			t.Errorf("%q: %v", o, err)
		}
		s, err := r.inspect()
		if err != nil || len(s.Holders) != 1 || s.Holders[0].Owner != o {
			t.Errorf("%q holds, but inspect says %+v, %v", o, s, err)
		}
		if err := r.release(o, true); err != nil {
			t.Errorf("%q: %v", o, err)
		}
	}
}
