package script

import (
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// What GET tells of a lock is what Inspect tells.
func TestOwner(t *testing.T) {
	r := newRig(t)
	get := func() Owner {
		t.Helper()
		value := r.srv.MustDo("GET", r.l.Key(r.key))
		o, ok := r.l.ParseOwner(value)
		if !ok {
			t.Fatalf("%q is not understood", value)
		}
		return o
	}
	c := plainClaim("an owner; with blanks")
	c.Meta = backend.Meta{Service: "a service", PID: 7}
	g := r.granted(c)
	c.Key, c.TTL = r.key, minute
	if o := get(); o.ID != r.l.OwnerID(c) || o.Token != g.Token || o.Meta != c.Meta ||
		o.Keep != r.l.Keep(c) {
		t.Errorf("held: %+v", o)
	}
	r.dropped(c)
	if o := get(); o.ID != "" || o.Token != g.Token {
		t.Errorf("free: %+v", o)
	}
	for _, foreign := range []string{
		"", "h2", "h2 x", "h1 5", "h2 5 x id 1 ", "h2 5 7 id",
		"h2 5 7 id x ", "a session of some web shop",
	} {
		if o, ok := r.l.ParseOwner(foreign); ok {
			t.Errorf("%q is read as %+v", foreign, o)
		}
	}
}
