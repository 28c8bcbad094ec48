package script

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// beat keeps the places of claims in one request, as client "me".
func (r rig) beat(claims ...backend.Claim) []bool {
	r.t.Helper()
	for i := range claims {
		claims[i].Key = r.key
		if claims[i].TTL == 0 {
			claims[i].TTL = minute
		}
	}
	waiting, err := DecodeHeartbeat(r.eval(own.Heartbeat, r.l.For("me").Heartbeat(claims)...), len(claims))
	if err != nil {
		r.t.Fatalf("heartbeat: %v", err)
	}
	return waiting
}

func (r rig) beats(what string, want []bool, claims ...backend.Claim) {
	r.t.Helper()
	if got := r.beat(claims...); !slices.Equal(got, want) {
		r.t.Errorf("%s: waiting %v, want %v", what, got, want)
	}
}

// executed counts the commands that f makes the server execute, those of scripts included.
func (r rig) executed(f func()) (n int) {
	r.t.Helper()
	r.srv.MustDo("CONFIG", "RESETSTAT")
	f()
	calls := regexp.MustCompile(`cmdstat_(\w+(?:\|\w+)?):calls=(\d+)`)
	for _, found := range calls.FindAllStringSubmatch(r.srv.MustDo("INFO", "commandstats"), -1) {
		var one int
		_, _ = fmt.Sscan(found[2], &one)
		if found[1] != "config|resetstat" && found[1] != "config" && found[1] != "info" {
			n += one
		}
	}
	return n
}

// A heartbeat keeps the places of those who wait, in their order, and says who does not wait.
//
// covers: W4
func TestHeartbeatKeepsPlaces(t *testing.T) {
	r := newRig(t)
	brief := func(owner string) backend.Claim {
		c := queued(owner)
		c.WaiterTTL = 60 * time.Millisecond
		return c
	}
	r.beats("of a key that is not there", []bool{false, false}, queued("a"), queued("b"))
	holder := plainClaim("holder")
	r.granted(holder)
	r.beats("of a key that one holds", []bool{false, false}, queued("a"), queued("holder"))
	for i, name := range []string{"a", "b", "c", "d"} {
		_ = r.refused(brief(name), i+1)
	}
	before := r.field("q:2")
	r.beats("of three in the queue", []bool{true, false, true, true, false},
		queued("a"), queued("holder"), queued("b"), queued("d"), queued("stranger"))
	r.lapse(brief("").WaiterTTL)
	r.beats("after the places of the others lapsed", []bool{true, true, false, true},
		queued("a"), queued("b"), queued("c"), queued("d"))
	if after := r.field("q:2"); len(after) < 20 || after[13:] == before[13:] {
		t.Errorf("the place is %q, want the new lease in it (it was %q)", after, before)
	}
	if s := r.state(); len(s.Waiters) != 3 {
		t.Errorf("%+v in the queue, want a, b, d", s.Waiters)
	}
	_ = r.refused(queued("d"), 4) // the place of c is still counted
	for _, name := range []string{"a", "b", "d"} {
		r.dropped(holder)
		holder = queued(name)
		r.granted(holder)
	}
	r.beats("of the last, who holds", []bool{false}, holder)
}

// A place that has lapsed is not revived, and one that is refreshed with less time does not lose any.
func TestHeartbeatRevivesNothing(t *testing.T) {
	r := newRig(t)
	r.granted(plainClaim("holder"))
	lapsed := queued("lapsed")
	lapsed.WaiterTTL = 20 * time.Millisecond
	_ = r.refused(queued("first"), 1)
	_ = r.refused(lapsed, 2)
	r.lapse(lapsed.WaiterTTL)
	lapsed.WaiterTTL = minute
	r.beats("a place that lapsed", []bool{true, false}, queued("first"), lapsed)
	brief := queued("first")
	brief.WaiterTTL = time.Millisecond
	r.beats("a shorter time", []bool{true}, brief)
	r.lapse(brief.WaiterTTL)
	r.beats("after the shorter time", []bool{true}, brief)
}

// A heartbeat lets in whoever is next when the holder's lease or the head's place has run out, and tells it so.
//
// covers: W9
func TestHeartbeatLetsIn(t *testing.T) {
	r := newRig(t)
	holder := plainClaim("holder")
	holder.TTL = 40 * time.Millisecond
	r.granted(holder)
	dead := queued("dead")
	dead.WaiterTTL = holder.TTL
	_ = r.refused(dead, 1)
	_ = r.refused(queued("a"), 2)
	_ = r.refused(queued("b"), 3)
	told := r.subscribed(r.l.For("me").ClientChannel())
	r.lapse(holder.TTL)
	r.beats("after lease and place ran out", []bool{true, false, false}, queued("b"), queued("a"), dead)
	topic, w, ok := DecodeHanded(told())
	if want := r.l.Topic(backend.Claim{Key: r.key, Owner: "a"}); !ok || topic != want || !w.Granted {
		t.Errorf("told %q, %+v, want the grant of a", topic, w)
	}
	if g := r.granted(queued("a")); g.Token != w.Grant.Token {
		t.Errorf("a has token %d, and was told %d", g.Token, w.Grant.Token)
	}
	_ = r.refused(queued("b"), 1)
}

// subscribed returns what is published on channel next.
func (r rig) subscribed(channel string) func() string {
	r.t.Helper()
	conn, err := net.Dial("tcp", r.srv.Addr())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close() })
	in := bufio.NewScanner(conn)
	next := func(lines int) (last string) {
		r.t.Helper()
		for range lines {
			if !in.Scan() {
				r.t.Fatalf("nothing is published on %s: %v", channel, in.Err())
			}
			last = in.Text()
		}
		return last
	}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	_, _ = fmt.Fprintf(conn, "SUBSCRIBE %s\r\n", channel)
	next(6) // *3, subscribe and channel with a length each, and the number of channels
	return func() string { r.t.Helper(); return next(7) }
}

// Readers and permits wait in the same queue, and a heartbeat lets in as many of them as fit.
func TestHeartbeatInEveryMode(t *testing.T) {
	for name, kind := range map[string]func(string) backend.Claim{
		"readers": reader, "permits": func(o string) backend.Claim { return permit(o, 2) },
		"re-entrant": func(o string) backend.Claim { return entrant(o, o) },
	} {
		r := newRig(t)
		holder := plainClaim("holder")
		holder.TTL = 40 * time.Millisecond
		r.granted(holder)
		for i, owner := range []string{"a", "b", "c"} {
			_ = r.refused(kind(owner), i+1)
		}
		r.beats(name, []bool{true, true, true}, kind("a"), kind("b"), kind("c"))
		r.lapse(holder.TTL)
		want := map[string][]bool{
			"readers": {false, false, false}, "permits": {false, false, true}, "re-entrant": {false, true, true},
		}[name]
		r.beats(name+" after the lease ran out", want, kind("a"), kind("b"), kind("c"))
		if s := r.state(); len(s.Waiters) != count(want) {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

func count(waiting []bool) (n int) {
	for _, w := range waiting {
		if w {
			n++
		}
	}
	return n
}

// The cost of a heartbeat is a few commands, however many places it keeps; and it is taken when the server is out of memory.
//
// covers: W14, R6
func TestHeartbeatIsCheap(t *testing.T) {
	r := newRig(t)
	r.granted(plainClaim("holder"))
	claims := make([]backend.Claim, backend.MaxHeartbeat)
	for i := range claims {
		claims[i] = queued(fmt.Sprint("w", i))
		claims[i].WaiterTTL = minute / 2
		_, _ = r.ask(claims[i])
	}
	if n := r.executed(func() { _ = r.beat(claims...) }); n > 7 {
		t.Errorf("a heartbeat of %d places executed %d commands", len(claims), n)
	}
	r.srv.MustDo("CONFIG", "SET", "maxmemory", "1")
	defer r.srv.MustDo("CONFIG", "SET", "maxmemory", "0")
	for i, waits := range r.beat(claims...) {
		if !waits {
			t.Fatalf("without memory place %d is not kept", i)
		}
	}
}

func TestDecodeHeartbeat(t *testing.T) {
	if got, err := DecodeHeartbeat([]any{int64(1), "101"}, 3); err != nil || !slices.Equal(got, []bool{true, false, true}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []any{
		nil, int64(1), []any{int64(1)}, []any{int64(1), "10"}, []any{int64(1), "1012"}, []any{int64(1), "10x"},
		[]any{int64(1), int64(101)}, []any{int64(2), "101"}, "101",
	} {
		if got, err := DecodeHeartbeat(bad, 3); err == nil || backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%v is read as %v, %v", bad, got, err)
		}
	}
	if _, err := DecodeHeartbeat([]any{int64(4), "why"}, 3); !errors.Is(err, backend.ErrForeign) {
		t.Errorf("%v, want ErrForeign", err)
	}
}
