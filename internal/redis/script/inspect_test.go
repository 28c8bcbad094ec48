package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// One script tells of several locks, of each what a script of its own does, and stops where it has
// read much.
//
// covers: R23
func TestInspectOfSeveral(t *testing.T) {
	r := newRig(t)
	var keys []string
	another := func() rig {
		r := newRig(t)
		keys = append(keys, r.key)
		return r
	}
	held := another()
	held.granted(plainClaim("me"))
	waited := another()
	waited.granted(plainClaim("me"))
	_ = waited.refused(queued("you"), 1)
	another() // is not there
	freed := another()
	freed.granted(plainClaim("me"))
	freed.dropped(plainClaim("me"))
	readers := another()
	readers.granted(reader("me"))
	readers.granted(reader("you"))
	list, text, hash := another(), another(), another()
	list.srv.MustDo("RPUSH", list.l.Key(list.key), "a job")
	text.set("a session")
	hash.set("name", "Jo")
	all := func(keys []string) []Inspected {
		t.Helper()
		reply, err := r.srv.Do(words(r.l.Inspect(keys...))...)
		if err != nil {
			t.Fatal(err)
		}
		if text := fmt.Sprint(reply); strings.Contains(text, "Jo") ||
			strings.Contains(text, "session") {
			t.Errorf("what is not ours is read: %s", text)
		}
		told, err := r.l.DecodeInspect(reply, len(keys))
		if err != nil {
			t.Fatal(err)
		}
		return told
	}
	told := all(keys)
	if len(told) != len(keys) {
		t.Fatalf("%d of %d locks are told of", len(told), len(keys))
	}
	for i, want := range []struct{ holders, waiters int }{{1, 0}, {1, 1}, {0, 0}, {0, 0}, {2, 0}} {
		alone := all(keys[i : i+1])[0].State
		if s := told[i].State; told[i].Err != nil || len(s.Holders) != want.holders ||
			len(s.Waiters) != want.waiters || s.Token != alone.Token {
			t.Errorf("lock %d: %+v; alone %+v", i, told[i], alone)
		}
	}
	for i := 5; i < len(keys); i++ {
		if !errors.Is(told[i].Err, backend.ErrForeign) {
			t.Errorf("what is no lock: %+v", told[i])
		}
	}
	for i := range 100 {
		readers.granted(reader(fmt.Sprint("r", i)))
	}
	many := []string{held.key}
	for range 10 {
		many = append(many, readers.key)
	}
	if told := all(many); len(told) < 2 || len(told) > 4 { // 400 values each
		t.Errorf("%d locks of 100 holders are told of at once", len(told))
	}
	if told := all(many[1:2]); len(told[0].State.Holders) != 102 {
		t.Errorf("%d of 102 holders", len(told[0].State.Holders))
	}
}
