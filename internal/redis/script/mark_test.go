package script

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// A release publishes if somebody who watches was refused because of that hold, in whichever form
// the claim is, and otherwise does not.
//
// covers: W1
func TestMark(t *testing.T) {
	for name, c := range map[string]backend.Claim{
		"exclusive": plainClaim("b"), "reader": {Owner: "b", Mode: backend.Shared},
		"permit":        {Owner: "b", Mode: backend.Permit, Limit: 2},
		"minimum token": {Owner: "b", MinToken: 7},
	} {
		r := newRig(t)
		a := plainClaim("a")
		a.Meta.Service = "test"
		r.granted(a)
		before := r.left()
		_ = r.refused(c, 0)
		if s := r.stored(); strings.HasSuffix(s, " ") {
			t.Errorf("%s: one who does not watch leaves %q", name, s)
		}
		plain := r.l
		r.l = plain.Watched()
		for range 2 {
			_ = r.refused(c, 0)
			if s := r.stored(); !strings.HasSuffix(s, "} ") {
				t.Errorf("%s: one who watches leaves %q", name, s)
			}
		}
		if left := r.left(); left > before || left < before-60_000 {
			t.Errorf("%s: the key lives for %d ms, and lived for %d", name, left, before)
		}
		if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Meta.Service != "test" {
			t.Errorf("%s: %+v", name, s)
		}
		r.l = plain
		free := r.subscribed(r.l.Channel(r.key))
		r.dropped(a)
		r.srv.MustDo("PUBLISH", r.l.Channel(r.key), "end")
		if got := free(); got != "free" {
			t.Errorf("%s: the release of a hold that is marked publishes %q", name, got)
		}
		r.granted(a)
		quiet := r.subscribed(r.l.Channel(r.key))
		r.dropped(a)
		r.srv.MustDo("PUBLISH", r.l.Channel(r.key), "end")
		if got := quiet(); got != "end" {
			t.Errorf("%s: the release of a hold that is not marked publishes %q", name, got)
		}
	}
}

// Nobody but its holder releases a hold.
//
// covers: C1
func TestStrangersReleaseNothing(t *testing.T) {
	for _, unknown := range []bool{false, true} {
		r := newRig(t)
		r.granted(plainClaim("a"))
		b := plainClaim("b")
		b.Key, b.TTL, b.NoneInFlight = r.key, minute, !unknown
		if err := r.tryRelease(b); err == nil {
			t.Error("released by another")
		}
		if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "a" {
			t.Errorf("%+v", s)
		}
		r.dropped(plainClaim("a"))
	}
}
