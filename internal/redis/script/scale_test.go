package script

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Thousands of waiters: each comes, asks again and leaves in a few steps, wherever in the queue it
// stands.
//
// covers: W14, R10
func TestLongLine(t *testing.T) {
	r := newRig(t)
	r.granted(plainClaim("holder"))
	const n = 5000
	cost := func(what string, from int, each func(i int)) time.Duration {
		start := time.Now()
		for i := from; i < from+500; i++ {
			each(i)
		}
		t.Logf("%s, from %d: %v each", what, from, time.Since(start)/500)
		return time.Since(start)
	}
	enter := func(i int) { _, _ = r.ask(queued(fmt.Sprint("w", i))) }
	few := cost("enter", 0, enter)
	for i := 500; i < n-500; i++ {
		enter(i)
	}
	many := cost("enter", n-500, enter)
	if many > 8*few+time.Second {
		t.Errorf("500 waiters took %v, the last of %d took %v", few, n, many)
	}
	leave := func(i int) { _ = r.drop(queued(fmt.Sprint("w", i))) }
	if last := cost("leave", n-600, leave); last > 8*few+time.Second {
		t.Errorf("500 waiters came in %v and left in %v", few, last)
	}
	if s := r.state(); len(s.Waiters) != n-500 || s.Waiters[0].Owner != "w0" {
		t.Fatalf("%d waiters", len(s.Waiters))
	}
	_ = r.refused(queued("w0"), 1)
	_ = r.refused(queued("w100"), 101)
}

// The dead do not hold up a script for long: each passes over a bounded number of them, says when
// to ask again, and gets on.
//
// covers: R10, W9
func TestManyDeadWaiters(t *testing.T) {
	r := newRig(t)
	r.granted(plainClaim("holder"))
	const n = 2000
	dead := queued("")
	dead.WaiterTTL = 2 * time.Second
	for i := range n {
		dead.Owner = fmt.Sprint("dead", i)
		_, _ = r.ask(dead)
	}
	r.refusedAnywhere(queued("alive"))
	r.lapse(dead.WaiterTTL)
	left := strings.Count(r.stored(), "\nw:")
	if left != n+1 {
		t.Fatalf("%d places", left)
	}
	r.dropped(plainClaim("holder"))
	scripts := 1
	for ; ; scripts++ {
		now := strings.Count(r.stored(), "\nw:")
		if left-now > 128 {
			t.Fatalf("the release passed over %d", left-now)
		}
		left = now
		_, err := r.ask(queued("alive"))
		now = strings.Count(r.stored(), "\nw:")
		if left-now > 128 {
			t.Fatalf("one script passed over %d", left-now)
		}
		left = now
		if err == nil {
			break
		}
		if held := (*backend.HeldError)(nil); !errors.As(err, &held) ||
			held.RetryAfter != time.Millisecond {
			t.Fatalf("%v: want to be told to ask soon", err)
		}
		if scripts > n/100 {
			t.Fatalf("%d scripts, and %d are left", scripts, left)
		}
	}
	t.Logf("%d dead waiters took %d scripts", n, scripts)
}

func (r rig) refusedAnywhere(c backend.Claim) {
	r.t.Helper()
	if g, err := r.ask(c); err == nil {
		r.t.Fatalf("granted %+v", g)
	}
}

// Many readers whose leases ran out are dropped in bounded steps, and the writer gets in. One of
// them that lives keeps it out.
//
// covers: R10, B15
func TestManyDeadReaders(t *testing.T) {
	r := newRig(t)
	const n = 1000
	c := reader("")
	c.TTL = 2 * time.Second
	for i := range n {
		if c.Owner = fmt.Sprint("r", i); i == n/2 {
			r.granted(reader("alive"))
		}
		r.granted(c)
	}
	r.lapse(c.TTL)
	for range 2 * n / 128 {
		r.refusedAnywhere(queued("w"))
	}
	if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "alive" ||
		strings.Count(r.stored(), "\nk:") > 1 {
		t.Fatalf("%d holders, %d slots", len(s.Holders), strings.Count(r.stored(), "\nk:"))
	}
	r.dropped(reader("alive"))
	r.granted(queued("w"))
}

// While dead holders are dropped bit by bit, the living come, renew and go, and are neither dropped
// nor counted twice.
//
// covers: R10, B15
func TestPurgeWhileTheyComeAndGo(t *testing.T) {
	r := newRig(t)
	const n = 700
	c := reader("")
	c.TTL = time.Second
	live := map[string]bool{}
	for i := range n {
		if name := fmt.Sprint("r", i); i%3 == 0 {
			r.granted(reader(name))
			live[name] = true
		} else {
			c.Owner = name
			r.granted(c)
		}
	}
	r.lapse(c.TTL)
	for i := range 40 {
		r.granted(reader(fmt.Sprint("new", i)))
		live[fmt.Sprint("new", i)] = true
		gone := fmt.Sprint("r", (i*51)%n/3*3)
		if err := r.drop(reader(gone)); (err == nil) != live[gone] {
			t.Fatalf("release of %s: %v", gone, err)
		}
		delete(live, gone)
	}
	s := r.state()
	for _, h := range s.Holders {
		if !live[h.Owner] {
			t.Errorf("%s does not hold", h.Owner)
		}
		delete(live, h.Owner)
	}
	if len(live) > 0 || strings.Count(r.stored(), "\nk:")+
		strings.Count(r.stored()[:2], "k:") != len(s.Holders) {
		t.Errorf("not there: %v; %d holders", live, len(s.Holders))
	}
}
