package script

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// ask makes an attempt, as client "me".
func (r rig) ask(c backend.Claim) (backend.Grant, error) {
	r.t.Helper()
	c.Key = r.key
	if c.TTL == 0 {
		c.TTL = minute
	}
	return DecodeAcquire(r.send(r.l.For("me").Acquire(c)), c)
}

func (r rig) granted(c backend.Claim) backend.Grant {
	r.t.Helper()
	g, err := r.ask(c)
	if err != nil {
		r.t.Fatalf("%s: %v, want a grant", c.ID(), err)
	}
	return g
}

func (r rig) refused(c backend.Claim, position int) *backend.HeldError {
	r.t.Helper()
	g, err := r.ask(c)
	var held *backend.HeldError
	if !errors.As(err, &held) || held.Position != position {
		r.t.Fatalf("%s: %+v, %v; want place %d", c.ID(), g, err, position)
	}
	return held
}

func (r rig) drop(c backend.Claim) error {
	r.t.Helper()
	c.Key, c.TTL, c.NoneInFlight = r.key, minute, true
	return released(r.send(r.l.Release(c)))
}

func (r rig) dropped(c backend.Claim) {
	r.t.Helper()
	if err := r.drop(c); err != nil {
		r.t.Fatalf("release of %s: %v", c.ID(), err)
	}
}

// inspect tells of the lock.
func (r rig) inspect() (backend.State, error) {
	all, err := r.l.DecodeInspect(r.send(r.l.Inspect(r.key)), 1)
	if err != nil {
		return backend.State{}, err
	}
	return all[0].State, all[0].Err
}

func (r rig) state() backend.State {
	r.t.Helper()
	s, err := r.inspect()
	if err != nil {
		r.t.Fatal(err)
	}
	return s
}

// ended ends something that is stored, as if its time had passed: the lease of an exclusive holder
// ("x"), or that of one of several ("h:id"), or a place ("w:id").
func (r rig) ended(field string) {
	r.t.Helper()
	past := fmt.Sprint(r.ms() - 1)
	set := func(field, value string) { r.srv.MustDo("HSET", r.l.Key(r.key), field, value) }
	switch kind, _, _ := strings.Cut(field, ":"); kind {
	case "x":
		set("x", past)
	case "h", "w":
		slot := map[string]string{"h": "k:", "w": "q:"}[kind] + r.field(field)
		_, rest, _ := strings.Cut(r.field(slot), " ")
		set(slot, past+" "+rest)
		if kind == "h" { // so early is the soonest end
			group := strings.Fields(r.field("g"))
			group[3] = past
			set("g", strings.Join(group, " "))
		}
	}
}

// lapse waits until the server's clock is past the end of what lasts for d from now.
func (r rig) lapse(d time.Duration) {
	r.t.Helper()
	for end := r.ms() + d.Milliseconds() + 2; r.ms() < end; {
		time.Sleep(time.Millisecond)
	}
}

func (r rig) ms() int64 {
	r.t.Helper()
	return r.us() / 1000
}

func plainClaim(owner string) backend.Claim { return backend.Claim{Owner: owner} }

func queued(owner string) backend.Claim {
	return backend.Claim{Owner: owner, Queue: true, WaiterTTL: minute}
}

func reader(owner string) backend.Claim {
	return backend.Claim{Owner: owner, Mode: backend.Shared, Queue: true, WaiterTTL: minute}
}

func permit(owner string, limit int) backend.Claim {
	return backend.Claim{
		Owner: owner, Mode: backend.Permit, Limit: limit, Queue: true,
		WaiterTTL: minute,
	}
}

func heavy(owner string, limit, weight int) backend.Claim {
	c := permit(owner, limit)
	c.Weight = weight
	return c
}

func entrant(owner, hold string) backend.Claim {
	return backend.Claim{Owner: owner, Hold: hold, Reentrant: true, Queue: true, WaiterTTL: minute}
}

// Cancel and grant: whichever script comes first, there is one outcome, and the key is never left
// to somebody who has gone.
//
// covers: W7, W9
func TestCancelAgainstGrant(t *testing.T) {
	for _, cancelFirst := range []bool{true, false} {
		r := newRig(t)
		holder, gone, next := queued("holder"), queued("gone"), queued("next")
		r.granted(holder)
		_ = r.refused(gone, 1)
		_ = r.refused(next, 2)
		cancel := func() error { return r.drop(gone) }
		if cancelFirst {
			if err := cancel(); !errors.Is(err, backend.ErrLost) {
				t.Fatalf("cancel before the grant: %v", err)
			}
			r.dropped(holder)
		} else {
			r.dropped(holder)
			if err := cancel(); err != nil {
				t.Fatalf("cancel after the grant: %v", err)
			}
		}
		if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "next" ||
			len(s.Waiters) != 0 {
			t.Fatalf("cancelled first: %v: %+v", cancelFirst, s)
		}
		r.dropped(next)
		if h := r.stored(); strings.Contains(h, "q:") || strings.Contains(h, "w:") ||
			strings.Contains(h, "gone") {
			t.Errorf("left behind: %s", h)
		}
	}
}

// An attempt that is doubled, or comes after its release, takes no second place and no place at
// all.
//
// covers: A3, A4
func TestRepeatsInLine(t *testing.T) {
	r := newRig(t)
	r.granted(queued("holder"))
	for range 3 {
		_ = r.refused(queued("a"), 1)
		_ = r.refused(queued("b"), 2)
	}
	late := queued("a")
	late.Key, late.TTL = r.key, minute
	if _, err := DecodeRelease(r.send(r.l.Release(late))); !errors.Is(err, backend.ErrLost) {
		t.Fatal(err)
	}
	if _, err := r.ask(late); !errors.Is(err, backend.ErrLost) {
		t.Fatalf("the attempt that came late: %v, want ErrLost", err)
	}
	if s := r.state(); len(s.Waiters) != 1 || s.Waiters[0].Owner != "b" {
		t.Fatalf("%+v", s)
	}
	r.dropped(queued("holder"))
	first := r.granted(queued("b"))
	if again := r.granted(queued("b")); again.Token != first.Token {
		t.Errorf("tokens %d and %d of one hold", first.Token, again.Token)
	}
}

// Readers are let in together, those behind a writer wait for it, and it waits for all before it.
//
// covers: W15
func TestReadersAndWriters(t *testing.T) {
	r := newRig(t)
	r.granted(reader("r1"))
	r.granted(reader("r2"))
	_ = r.refused(queued("w"), 1)
	_ = r.refused(backend.Claim{Owner: "try", Mode: backend.Shared}, 0)
	for i := range 5 {
		_ = r.refused(reader(fmt.Sprint("late", i)), i+2)
	}
	r.dropped(reader("r1"))
	_ = r.refused(queued("w"), 1)
	r.dropped(reader("r2"))
	last := r.granted(queued("w")).Token
	_ = r.refused(reader("late0"), 1)
	r.dropped(queued("w"))
	if s := r.state(); len(s.Holders) != 5 || len(s.Waiters) != 0 {
		t.Fatalf("%+v; want the five readers", s)
	}
	for i := range 5 {
		g := r.granted(reader(fmt.Sprint("late", i)))
		if g.Token <= last {
			t.Errorf("reader %d: token %d after %d", i, g.Token, last)
		}
		last = g.Token
	}
	for i := range 5 {
		r.dropped(reader(fmt.Sprint("late", (i*2)%5)))
	}
	if h := r.stored(); regexp.MustCompile(`(?m)^([khqw]:|g)`).MatchString(h) {
		t.Errorf("left behind: %s", h)
	}
}

// covers: Q12, I9
func TestPermits(t *testing.T) {
	r := newRig(t)
	r.granted(permit("a", 2))
	r.granted(permit("b", 2))
	before := r.stored()
	for _, limit := range []int{1, 3} {
		if _, err := r.ask(permit("other", limit)); !errors.Is(err, backend.ErrMismatch) {
			t.Errorf("limit %d: %v, want ErrMismatch", limit, err)
		} else if !strings.Contains(err.Error(), fmt.Sprint("and not ", limit)) {
			t.Errorf("limit %d: %v, want to be told", limit, err)
		}
	}
	if after := r.stored(); after != before {
		t.Errorf("a mismatch wrote: %s", after)
	}
	r.dropped(permit("b", 2))
	dead := permit("dead", 2)
	r.granted(dead)
	_ = r.refused(permit("b", 2), 1)
	r.ended("h:dead")
	r.granted(permit("b", 2)) // in the queue before
	if err := r.drop(dead); !errors.Is(err, backend.ErrLost) {
		t.Errorf("release of the permit that ran out: %v", err)
	}
	_ = r.refused(queued("w"), 1)
	_ = r.refused(permit("c", 2), 2)
	if _, err := r.ask(permit("other", 3)); !errors.Is(err, backend.ErrMismatch) {
		t.Errorf("another limit than of those who wait: %v", err)
	}
	r.dropped(permit("a", 2))
	_ = r.refused(permit("c", 2), 2) // one is free, but the writer is first
	r.dropped(permit("b", 2))
	r.granted(queued("w"))
	r.dropped(queued("w"))
	r.granted(permit("c", 2))
	r.dropped(permit("c", 2))
	r.granted(permit("other", 3)) // nobody uses the old limit
}

// The sum of the weights is what is compared with the limit, in whichever order permits come, go
// and run out. What is stored names weights only where there are any, and then in a form that is
// refused by who does not look for them.
//
// covers: Q12, R23
func TestWeights(t *testing.T) {
	r := newRig(t)
	weighs := func(want string) {
		t.Helper()
		fields := strings.Fields(r.field("g"))
		if len(fields) != 11 || fields[2] != want {
			t.Errorf("the group is %q, want %s for its holders and their weight", fields, want)
		}
	}
	r.granted(heavy("light", 6, 1))
	weighs("1")
	if slot := strings.Fields(r.field("k:1")); len(slot) < 2 || strings.Contains(slot[1], "*") {
		t.Errorf("a light permit is stored as %v", slot)
	}
	r.granted(heavy("a", 6, 3))
	weighs("2*4")
	r.granted(heavy("a", 6, 3)) // a repeat
	r.granted(heavy("b", 6, 2))
	weighs("3*6")
	if slot := strings.Fields(r.field("k:2")); !strings.HasSuffix(slot[1], "*3") {
		t.Errorf("a permit of weight 3 is stored as %v", slot)
	}
	if err := DecodeRenew(r.send(r.l.Renew(backend.Claim{Owner: "a", TTL: minute}))); err != nil {
		t.Error(err)
	}
	_ = r.refused(heavy("c", 6, 4), 1)
	_ = r.refused(heavy("d", 6, 1), 2)
	if place := r.field("q:1"); !strings.Contains(place, " p,6*4, ") {
		t.Errorf("a claim of weight 4 waits as %q", place)
	}
	if place := r.field("q:2"); !strings.Contains(place, " p,6, ") {
		t.Errorf("a claim of weight 1 waits as %q", place)
	}
	r.beats("both", []bool{true, true}, heavy("c", 6, 4), heavy("d", 6, 1))
	r.dropped(heavy("light", 6, 1)) // the last slot moves to the first
	weighs("2*5")
	_ = r.refused(heavy("d", 6, 1), 2) // there is room for it, but not for the one before it
	r.ended("h:a")
	r.granted(heavy("c", 6, 4))
	weighs("2*6")
	r.dropped(heavy("c", 6, 4))
	r.granted(heavy("d", 6, 1))
	weighs("2*3")
	r.dropped(heavy("b", 6, 2))
	weighs("1")
	r.granted(heavy("e", 6, 5))
	if s := r.state(); len(s.Holders) != 2 || s.Holders[0].Weight+s.Holders[1].Weight != 5 {
		t.Errorf("%+v, want one of weight 5", s)
	}
	for _, c := range []backend.Claim{heavy("d", 6, 1), heavy("e", 6, 5)} {
		r.dropped(c)
	}
	if h := r.stored(); regexp.MustCompile(`(?m)^([khqw]:|g)`).MatchString(h) {
		t.Errorf("left behind: %s", h)
	}
}

// Whoever does not wait in the queue is woken as soon as there is room for the lightest permit, and
// not while a heavy one takes all.
//
// covers: W6
func TestWeightsAndThoseWhoWatch(t *testing.T) {
	r := newRig(t)
	r.granted(heavy("a", 5, 3))
	r.granted(heavy("b", 5, 1))
	r.granted(heavy("c", 5, 1))
	_ = r.refused(heavy("d", 5, 1), 1)
	next := r.subscribed(r.l.Channel(r.key))
	r.dropped(heavy("c", 5, 1)) // d is let in: full again
	r.dropped(heavy("a", 5, 3))
	r.srv.MustDo("PUBLISH", r.l.Channel(r.key), "end")
	if first, second := next(), next(); first != "free" || second != "end" {
		t.Errorf("%q and %q were published, want one wake-up, behind the second release", first,
			second)
	}
}

// covers: A10, G3, K7
func TestReentrant(t *testing.T) {
	r := newRig(t)
	first := r.granted(entrant("me", "h1"))
	_ = r.refused(entrant("you", "y1"), 1)
	for _, h := range []string{"h2", "h1", "h2", "h3", "h3"} { // retries do not count twice
		if g := r.granted(entrant("me", h)); g.Token != first.Token {
			t.Errorf("%s: token %d, want %d", h, g.Token, first.Token)
		}
	}
	if s := r.state(); len(s.Holders) != 3 || s.Holders[2].Owner != "me" {
		t.Fatalf("%+v", s)
	}
	for _, h := range []string{"h2", "h1"} {
		r.dropped(entrant("me", h))
		if err := r.drop(entrant("me", h)); !errors.Is(err, backend.ErrLost) {
			t.Errorf("second release of %s: %v", h, err)
		}
		_ = r.refused(entrant("you", "y1"), 1)
	}
	if _, err := r.ask(backend.Claim{Owner: "me"}); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("a plain claim of the same owner: %v", err)
	}
	r.dropped(entrant("me", "h3"))
	if g := r.granted(entrant("you", "y1")); g.Token <= first.Token {
		t.Errorf("token %d after %d", g.Token, first.Token)
	}
}

// covers: K7
func TestReserve(t *testing.T) {
	r := newRig(t)
	block := plainClaim("a")
	block.Reserve = 32
	g := r.granted(block)
	if again := r.granted(block); again.Token != g.Token || again.Reserved != 32 ||
		g.Reserved != 32 {
		t.Errorf("%+v, then %+v", g, again)
	}
	if s := r.state(); s.Token != g.Token+31 || s.Holders[0].Token != g.Token {
		t.Errorf("%+v after %+v", s, g)
	}
	next := queued("b")
	next.Reserve = 8
	if held := r.refused(next, 1); held.Token != g.Token+31 {
		t.Errorf("last token %d, want %d", held.Token, g.Token+31)
	}
	r.dropped(block)
	got := r.granted(next)
	if got.Token <= g.Token+31 || got.Reserved != 8 {
		t.Errorf("%+v after a block that ends at %d", got, g.Token+31)
	}
	r.dropped(next)
	if last := r.granted(plainClaim("c")); last.Token <= got.Token+7 || last.Reserved != 1 {
		t.Errorf("%+v after a block that ends at %d", last, got.Token+7)
	}
	if s := r.stored(); strings.Contains(s, "+") {
		t.Errorf("a reservation is left: %s", s)
	}
	r = newRig(t)
	block.Reserve = backend.MaxReserve
	for range 2 { // and a repeat
		if g := r.granted(block); g.Reserved != backend.MaxReserve {
			t.Errorf("%+v, want %d tokens", g, backend.MaxReserve)
		}
	}
}

// A grant that nobody claims costs its linger, and its late owner has lost it. So does a place
// whose claim died.
//
// covers: W9, G6
func TestDeadWaiters(t *testing.T) {
	r := newRig(t)
	r.granted(plainClaim("holder"))
	dead := queued("dead")
	dead.WaiterTTL = 10 * time.Second
	_ = r.refused(dead, 1)
	_ = r.refused(queued("next"), 2)
	r.dropped(plainClaim("holder"))
	if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "dead" ||
		s.Holders[0].TTL > dead.WaiterTTL+time.Millisecond {
		t.Fatalf("%+v, want it handed over for %v", s, dead.WaiterTTL)
	}
	_ = r.refused(plainClaim("try"), 0)
	r.ended("x")
	_ = r.refused(plainClaim("try"), 0) // notices, and does not overtake
	if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "next" {
		t.Fatalf("%+v, want it handed on", s)
	}
	if err := r.drop(dead); !errors.Is(err, backend.ErrLost) {
		t.Errorf("release of a grant that lapsed: %v", err)
	}
	_ = r.refused(dead, 1)
	_ = r.refused(queued("last"), 2)
	r.ended("w:dead")
	_ = r.refused(dead, 2) // its place lapsed: it goes to the end
	r.granted(queued("next"))
}

// TestReleaseTellsWhoWaited takes both ways of a release that lets others in: with a hand-over, and
// the long one, which passes over a place that has lapsed. It tells of those who waited when the
// hold ended.
func TestReleaseTellsWhoWaited(t *testing.T) {
	for _, long := range []bool{false, true} {
		r := newRig(t)
		var line []backend.Claim
		for i := range 4 {
			c := backend.Claim{
				Key: r.key, Owner: fmt.Sprint("c", i), TTL: minute,
				NoneInFlight: !long,
			}
			c.Queue, c.WaiterTTL, c.Meta.PID = true, minute, i+1
			if line = append(line, c); i == 0 {
				r.granted(c)
			} else {
				_ = r.refused(c, i)
			}
		}
		for i, c := range line {
			told, err := DecodeRelease(r.send(r.l.Release(c)))
			want := backend.Released{Waiting: 3 - i}
			if i < 3 {
				want.Next = line[i+1].Meta
			}
			if err != nil || told != want {
				t.Errorf("long %v: the release of %s told of %+v, %v; want %+v", long, c.Owner,
					told, err, want)
			}
		}
	}
}
