package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Who is refused is told when to ask again: at the end of the lease that ends first, by what it is
// now, and where it does not wait in the queue, not after the place of the first in the queue has
// lapsed. Those behind the first need not ask.
//
// covers: W9, B15
func TestWhenToAskAgain(t *testing.T) {
	dialect, err := Dialect("", 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	const hour = time.Hour
	holds := func(r rig, c backend.Claim, ttl time.Duration) {
		c.TTL, c.Meta.Service = ttl, c.ID()
		r.granted(c)
	}
	renewed := func(r rig, c backend.Claim, ttl time.Duration) {
		c.Key, c.TTL = r.key, ttl
		if err := DecodeRenew(r.send(r.l.Renew(c))); err != nil {
			r.t.Fatal(err)
		}
	}
	waits := func(r rig, owner string, ttl time.Duration) {
		c := queued(owner)
		c.WaiterTTL = ttl
		r.refusedAnywhere(c)
	}
	for name, test := range map[string]struct {
		l      Layout
		is     func(r rig)
		asks   backend.Claim
		at     int
		want   time.Duration // a millisecond more at most, and it may have become less
		holder string        // whose lease it is
	}{
		"one that holds": {is: func(r rig) {
			holds(r, plainClaim("h"), minute)
		}, asks: plainClaim("a"), want: minute, holder: "h"},
		"one that was renewed": {is: func(r rig) {
			holds(r, plainClaim("h"), minute)
			renewed(r, plainClaim("h"), hour)
		}, asks: plainClaim("a"), want: hour, holder: "h"},
		"a reader's claim": {is: func(r rig) {
			holds(r, plainClaim("h"), minute)
		}, asks: reader("a"), at: 1, want: minute, holder: "h"},
		"readers, of whom the second ends first": {is: func(r rig) {
			holds(r, reader("r1"), hour)
			holds(r, reader("r2"), minute)
			holds(r, reader("r3"), 2*hour)
		}, asks: plainClaim("a"), want: minute, holder: "r2"},
		"readers, of whom the first was renewed": {is: func(r rig) {
			holds(r, reader("r1"), minute)
			holds(r, reader("r2"), hour)
			renewed(r, reader("r1"), 2*hour)
		}, asks: queued("a"), at: 1, want: hour, holder: "r2"},
		"many readers": {is: func(r rig) {
			for i := range 130 {
				holds(r, reader(fmt.Sprint("r", i)), hour)
			}
			holds(r, reader("r130"), minute)
		}, asks: plainClaim("a"), want: minute},
		"the first in the queue": {is: func(r rig) {
			holds(r, plainClaim("h"), hour)
			waits(r, "a", minute)
			waits(r, "b", minute)
		}, asks: queued("a"), at: 1, want: hour, holder: "h"},
		"the second in the queue": {is: func(r rig) {
			holds(r, plainClaim("h"), hour)
			waits(r, "a", minute)
			waits(r, "b", minute)
		}, asks: queued("b"), at: 2, holder: "h"},
		"beside a queue": {is: func(r rig) {
			holds(r, plainClaim("h"), hour)
			waits(r, "a", minute)
		}, asks: plainClaim("b"), want: minute, holder: "h"},
		"the dialect": {l: dialect, is: func(r rig) {
			holds(r, plainClaim("h"), minute)
		}, asks: plainClaim("a"), want: minute, holder: "h"},
		"another library": {l: dialect, is: func(r rig) {
			r.srv.MustDo("SET", r.key, "theirs", "PX", fmt.Sprint(minute.Milliseconds()))
		}, asks: plainClaim("a"), want: minute},
		"another library without an end": {l: dialect, is: func(r rig) {
			r.srv.MustDo("SET", r.key, "theirs")
		}, asks: plainClaim("a")},
	} {
		r := newRig(t)
		if test.l != (Layout{}) {
			r.l = test.l
		}
		test.is(r)
		got := r.refused(test.asks, test.at)
		if got.RetryAfter > test.want+time.Millisecond || got.RetryAfter < test.want/2 ||
			got.Holder.Service != test.holder {
			t.Errorf("%s: ask again in %v, held by %q, want %v by %q", name, got.RetryAfter,
				got.Holder.Service, test.want, test.holder)
		}
	}
}

// A heartbeat tells the first in the queue when the lease that blocks it ends, and nobody else:
// also one of which a script lets others in, and one that is not done with them.
//
// covers: W4, W9
func TestHeartbeatSaysWhenToAsk(t *testing.T) {
	lease := func(r rig, c backend.Claim, ttl time.Duration) {
		c.TTL = ttl
		r.granted(c)
	}
	for name, test := range map[string]struct {
		is   func(r rig)
		who  []string
		want []time.Duration // a millisecond more at most, and it may have become less
	}{
		"behind one that holds": {is: func(r rig) {
			held(r, 5, 3)
		}, who: []string{"w1", "w3"}, want: []time.Duration{minute, 0}},
		"not the first": {is: func(r rig) {
			held(r, 5, 3)
		}, who: []string{"w2", "w3"}, want: []time.Duration{0, 0}},
		"behind readers": {is: func(r rig) {
			lease(r, reader("r1"), 2*minute)
			lease(r, reader("r2"), minute)
			_ = r.refused(queued("w1"), 1)
			_ = r.refused(queued("w2"), 2)
		}, who: []string{"w1", "w2"}, want: []time.Duration{minute, 0}},
		"after a place that has lapsed": {is: func(r rig) {
			held(r, 5, 3)
			r.ended("w:w1")
		}, who: []string{"w2", "w3"}, want: []time.Duration{minute, 0}},
		"not the first after a place that has lapsed": {is: func(r rig) {
			held(r, 5, 3)
			r.ended("w:w1")
		}, who: []string{"w3"}, want: []time.Duration{0}},
		"behind one of readers that is over": {is: func(r rig) {
			lease(r, reader("r1"), 2*minute)
			lease(r, reader("r2"), 3*minute)
			_ = r.refused(queued("w1"), 1)
			r.ended("h:r2")
		}, who: []string{"w1"}, want: []time.Duration{2 * minute}},
	} {
		r := newRig(t)
		test.is(r)
		var claims []backend.Claim
		for _, owner := range test.who {
			c := queued(owner)
			c.Key, c.TTL = r.key, minute
			claims = append(claims, c)
		}
		answers, err := DecodeHeartbeat(r.send(r.l.For("me").Heartbeat(claims)), len(claims))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for i, answer := range answers[0] {
			var told *backend.HeldError
			if !errors.As(answer, &told) || told.RetryAfter > test.want[i]+time.Millisecond ||
				told.RetryAfter < test.want[i]/2 {
				t.Errorf("%s: %s is told %v, %+v; want %v", name, test.who[i], answer, told,
					test.want[i])
			}
		}
	}
}

// A claim that gives up its place makes room for those who do not wait in the queue: they were
// refused as others stood in it, and are told.
//
// covers: W1
func TestPlaceThatIsLeftWakes(t *testing.T) {
	for name, leave := range map[string]func(r rig){
		"release":     func(r rig) { _ = r.drop(queued("w")) },
		"one of many": func(r rig) { r.releaseAll(queued("w")) },
	} {
		r := newRig(t)
		r.granted(reader("h"))
		_ = r.refused(queued("w"), 1)
		message := r.subscribed(r.l.Key(r.key) + ":free")
		leave(r)
		if got := message(); got == "" {
			t.Errorf("%s: nobody is told that the queue is empty", name)
		}
	}
}

// The last of a queue is handed the key. A claim that watched meanwhile, and could leave no mark
// beside the queue, is told when that hold is released.
//
// covers: W1
func TestLastOfAQueueTellsWhoWatches(t *testing.T) {
	r := newRig(t)
	last := queued("w")
	last.Meta = backend.Meta{Service: "waits"}
	r.granted(plainClaim("h"))
	_ = r.refused(last, 1)
	_ = r.refusedOrNot(plainClaim("watches"))
	r.dropped(plainClaim("h"))
	if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "w" {
		t.Fatalf("the key was not handed over: %+v", s)
	}
	message := r.subscribed(r.l.Key(r.key) + ":free")
	r.dropped(last)
	if message() == "" {
		t.Error("nobody is told that the key is free")
	}
}

// A hand-over gives a token above the last one also where that is just ahead of the clock.
//
// covers: K1
func TestHandOverJustAheadOfTheClock(t *testing.T) {
	for _, waiters := range []int{1, 2} {
		shown := false
		for range 1000 { // the clock may pass the counter on a slow machine: then it shows nothing
			r := newRig(t)
			last := r.us() + 8000
			held(r, last, waiters)
			r.dropped(plainClaim("holder"))
			got := int64(r.state().Holders[0].Token)
			if got <= last {
				t.Fatalf("before %d: token %d after %d", waiters, got, last)
			}
			if got == last+1 {
				shown = true
				break
			}
		}
		if !shown {
			t.Errorf("before %d: the clock has passed every counter", waiters)
		}
	}
}

// Many of those who hold together release in one script, while a look for those that are over is
// under way, and the lock is whole afterwards.
//
// covers: W8
func TestReleaseAllDuringAPurge(t *testing.T) {
	r := newRig(t)
	var all []backend.Claim
	for i := range 300 {
		c := reader(fmt.Sprint("c", i))
		c.NoneInFlight = true
		all = append(all, c)
		r.granted(c)
	}
	r.ended("h:c299")
	r.granted(reader("more"))
	if strings.Fields(r.field("g"))[4] == "0" {
		t.Fatal("no purge is under way")
	}
	r.releaseAll(all[:250]...)
	if s := r.state(); len(s.Holders) != 50 {
		t.Errorf("%d hold, want 50", len(s.Holders))
	}
	_ = r.refused(plainClaim("w"), 0)
	for _, c := range append(all[250:299], reader("more")) {
		r.dropped(c)
	}
	r.granted(plainClaim("w"))
}

// A claim that watches, and is refused while others stand in the queue, hears of the release also
// if they have left the queue by then, and the lock is kept in its short form again.
//
// covers: W1
func TestWatcherBesideAQueueThatEmpties(t *testing.T) {
	// The long way of a release tells them anyway, and is taken if the margin is another by a
	// millisecond.
	for range 10 {
		r := newRig(t)
		h, w := plainClaim("h"), queued("w")
		// Else the short form ends in a blank anyway, as one does that was watched.
		h.Meta.Service = "shop"
		// So the key lives for no longer than it would have.
		w.TTL, w.WaiterTTL = 10*time.Second, 10*time.Second
		r.granted(h)
		_ = r.refused(w, 1)
		_ = r.refused(plainClaim("watches"), 0)
		_ = r.drop(w)
		if kind := r.srv.MustDo("TYPE", r.l.Key(r.key)); kind != "string" {
			t.Fatalf("the lock is a %s", kind)
		}
		message := r.subscribed(r.l.Key(r.key) + ":free")
		r.dropped(h)
		if got := message(); got == "" {
			t.Fatal("nobody is told of the release")
		}
	}
}
