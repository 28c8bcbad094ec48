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
	waiting, err := waitingBy(r.send(r.l.For("me").Heartbeat(claims)), len(claims))
	if err != nil {
		r.t.Fatalf("heartbeat: %v", err)
	}
	return waiting
}

// waitingBy reads the reply about n claims of one lock: which of them wait.
func waitingBy(reply any, n int) ([]bool, error) {
	answers, err := DecodeHeartbeat(reply, n)
	if err != nil {
		return nil, err
	}
	waiting := make([]bool, n)
	for i, answer := range answers[0] {
		waiting[i] = errors.Is(answer, backend.ErrHeld)
	}
	return waiting, nil
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
	r.beats("of a key that is not there", []bool{false, false}, queued("a"), queued("b"))
	holder := plainClaim("holder")
	r.granted(holder)
	r.beats("of a key that one holds", []bool{false, false}, queued("a"), queued("holder"))
	brief := func(owner string) backend.Claim {
		c := queued(owner)
		c.WaiterTTL = minute / 2
		return c
	}
	for i, name := range []string{"a", "b", "c", "d"} {
		_ = r.refused(brief(name), i+1)
	}
	before := [5]string{}
	for i := range before {
		before[i] = r.field(fmt.Sprint("q:", i))
	}
	r.beats("of three in the queue", []bool{true, false, true, true, false},
		queued("a"), queued("holder"), queued("b"), queued("d"), queued("stranger"))
	for i, kept := range []bool{1: true, 2: true, 3: false, 4: true} {
		is, was := r.field(fmt.Sprint("q:", i)), before[i]
		var ends, ended, lease int64
		_, _ = fmt.Sscan(is, &ends, &lease)
		_, _ = fmt.Sscan(was, &ended)
		switch {
		case !kept && is != was:
			t.Errorf("place %d was %q, and became %q", i, was, is)
		case kept && (ends < ended+minute.Milliseconds()/2 || lease != minute.Milliseconds()):
			t.Errorf("place %d is %q after a heartbeat of a minute, and was %q", i, is, was)
		}
	}
	r.ended("w:c")
	r.beats("after a place lapsed", []bool{true, true, false, true}, queued("a"), queued("b"),
		queued("c"), queued("d"))
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

// A place that has lapsed is not revived, and one that is refreshed with less time does not lose
// any.
func TestHeartbeatRevivesNothing(t *testing.T) {
	r := newRig(t)
	r.granted(plainClaim("holder"))
	lapsed := queued("lapsed")
	_ = r.refused(queued("first"), 1)
	_ = r.refused(lapsed, 2)
	r.ended("w:lapsed")
	r.beats("a place that lapsed", []bool{true, false}, queued("first"), lapsed)
	r.ended("w:first")
	_ = r.refused(queued("last"), 3) // who lapsed is still counted
	r.ended("x")
	r.beats("when another is let in", []bool{false, false}, queued("first"), lapsed)
	r = newRig(t)
	r.granted(plainClaim("holder"))
	for i, owner := range []string{"next", "last", "lapsed"} {
		_ = r.refused(queued(owner), i+1)
	}
	r.ended("w:lapsed")
	r.ended("x")
	r.beats("a place that lapsed behind one that is let in", []bool{false, true}, queued("lapsed"),
		queued("last"))
	_ = r.drop(queued("next"))
	r = newRig(t)
	r.granted(plainClaim("holder"))
	_ = r.refused(queued("first"), 1)
	brief := queued("first")
	brief.WaiterTTL = time.Millisecond
	r.beats("a shorter time", []bool{true}, brief)
	r.lapse(brief.WaiterTTL)
	r.beats("after the shorter time", []bool{true}, brief)
}

// A heartbeat lets in whoever is next when the holder's lease or the head's place has run out, and
// tells it so.
//
// covers: W9
func TestHeartbeatLetsIn(t *testing.T) {
	r := newRig(t)
	r.granted(plainClaim("holder"))
	dead := queued("dead")
	_ = r.refused(dead, 1)
	_ = r.refused(queued("a"), 2)
	_ = r.refused(queued("b"), 3)
	told := r.subscribed(r.l.For("me").ClientChannel())
	r.ended("x")
	r.ended("w:dead")
	r.beats("after lease and place ran out", []bool{true, false, false}, queued("b"), queued("a"),
		dead)
	topic, w, ok := DecodeHanded(told())
	if want := r.l.Topic(backend.Claim{Key: r.key, Owner: "a"}); !ok || topic != want ||
		!w.Granted {
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
		r.granted(plainClaim("holder"))
		for i, owner := range []string{"a", "b", "c"} {
			_ = r.refused(kind(owner), i+1)
		}
		r.beats(name, []bool{true, true, true}, kind("a"), kind("b"), kind("c"))
		r.ended("x")
		want := map[string][]bool{
			"readers": {false, false, false}, "permits": {false, false, true}, "re-entrant": {
				false,
				true, true,
			},
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

// The cost of a heartbeat is a few commands, however many places it keeps; and it is taken when the
// server is out of memory.
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
	ok := []any{int64(1), "2 0 1", int64(70), int64(500), "", "", int64(0), int64(0), ""}
	got, err := DecodeHeartbeat(ok, 3, 1)
	var held *backend.HeldError
	if err != nil || len(got) != 2 || got[1] != nil || !errors.As(got[0][0], &held) ||
		held.RetryAfter != 0 ||
		!errors.Is(got[0][1], backend.ErrLost) || !errors.As(got[0][2], &held) ||
		held.Token != 70 || held.RetryAfter != 500*time.Millisecond {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range []any{
		nil, int64(1),
		[]any{int64(1)},
		[]any{int64(1), "1 0", int64(1), int64(1), ""},
		[]any{int64(1), "1 0 2 3", int64(1), int64(1), ""},
		[]any{int64(1), "1 0 x", int64(1), int64(1), ""},
		[]any{int64(1), "1 0 -1", int64(1), int64(1), ""},
		[]any{int64(1), "", int64(1), int64(1), ""},
		[]any{int64(1), int64(101), int64(1), int64(1), ""},
		[]any{int64(1), "1 0 2", "1", int64(1), ""},
		[]any{int64(1), "1 0 2", int64(1), int64(-1), ""},
		[]any{int64(1), "1 0 2", int64(1), int64(1), int64(0)},
		[]any{int64(1), "1 0 2", int64(1), int64(1)},
		[]any{int64(2), "1 0 2", int64(1), int64(1), ""},
		"101",
	} {
		if got, err := DecodeHeartbeat(bad, 3); err == nil ||
			backend.AnswerOf(err) != backend.Unknown {
			t.Errorf("%v is read as %v, %v", bad, got, err)
		}
	}
	if _, err := DecodeHeartbeat([]any{int64(4), "why"}, 3); !errors.Is(err, backend.ErrForeign) {
		t.Errorf("%v, want ErrForeign", err)
	}
}

// Behind a guard a heartbeat keeps places while the server is closed, and lets nobody in. A client
// with another rule gets nothing.
//
// covers: R1
func TestHeartbeatBehindAGuard(t *testing.T) {
	l := layout(t).For("me").Guarded(minute, 0)
	r := variant(t, l)
	beat := func(owners ...string) ([]bool, error) {
		var claims []backend.Claim
		for _, owner := range owners {
			c := queued(owner)
			c.Key, c.TTL = r.key, minute
			claims = append(claims, c)
		}
		return waitingBy(r.send(r.l.Heartbeat(claims)), len(claims))
	}
	_, _ = r.tryAcquire(plainClaim("a"))
	r.pass(time.Hour)
	for _, c := range []backend.Claim{reader("r1"), reader("r2"), queued("w")} {
		if _, err := r.tryAcquire(c); (err == nil) != (c.Owner != "w") {
			t.Fatalf("%s: %v", c.Owner, err)
		}
	}
	r.pass(0) // closed
	for _, owner := range []string{"r1", "r2"} {
		c := reader(owner)
		c.NoneInFlight = true
		if err := r.tryRelease(c); err != nil {
			t.Fatal(err)
		}
	}
	if waiting, err := beat("w"); err != nil || !waiting[0] {
		t.Errorf("while the server is closed: %v, %v, want to wait", waiting, err)
	}
	r.l = layout(t).For("me").Guarded(2*minute, 0)
	if waiting, err := beat("w"); !errors.Is(err, backend.ErrUnsafe) {
		t.Errorf("with another rule: %v, %v, want ErrUnsafe", waiting, err)
	}
	r.l = l
	r.pass(time.Hour)
	if waiting, err := beat("w"); err != nil || waiting[0] {
		t.Errorf("after the grace: %v, %v, want to be let in", waiting, err)
	}
	if s, err := r.inspect(); err != nil || len(s.Holders) != 1 || s.Holders[0].Owner != "w" {
		t.Errorf("%+v, %v", s, err)
	}
}

// A permit that was given back behind a closed guard is given to the head by a heartbeat, though
// others hold on.
//
// covers: R1
func TestHeartbeatAfterAGuardOpens(t *testing.T) {
	l := layout(t).For("me").Guarded(minute, 0)
	r := variant(t, l)
	_, _ = r.tryAcquire(plainClaim("a"))
	r.pass(time.Hour)
	for _, owner := range []string{"p1", "p2", "p3"} {
		_, _ = r.tryAcquire(permit(owner, 2))
	}
	r.pass(0)
	c := permit("p1", 2)
	c.NoneInFlight = true
	if err := r.tryRelease(c); err != nil {
		t.Fatal(err)
	}
	r.pass(time.Hour)
	c = permit("p3", 2)
	c.Key, c.TTL = r.key, minute
	reply := r.send(r.l.Heartbeat([]backend.Claim{c}))
	if waiting, err := waitingBy(reply, 1); err != nil || waiting[0] {
		t.Errorf("%v, %v, want to be let in", waiting, err)
	}
}

// A replica keeps no place.
//
// covers: R14
func TestHeartbeatAtAReplica(t *testing.T) {
	r := variant(t, layout(t))
	if _, err := r.tryAcquire(plainClaim("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := r.tryAcquire(queued("b")); !errors.Is(err, backend.ErrHeld) {
		t.Fatal(err)
	}
	r.srv.MustDo("REPLICAOF", "127.0.0.1", "1")
	b := queued("b")
	b.Key, b.TTL = r.key, minute
	args := words(r.l.Heartbeat([]backend.Claim{b}))
	if reply, err := r.srv.Do(args...); err == nil {
		t.Errorf("a heartbeat at a replica = %v, want a refusal", reply)
	}
}

// A heartbeat that passes over as many who are gone as one script may has the next one come soon:
// nobody else might let in who is behind them.
//
// covers: W9
func TestHeartbeatThatPassesOverMany(t *testing.T) {
	const gone, briefly = 130, 20 * time.Millisecond
	r := newRig(t)
	r.granted(plainClaim("holder"))
	for i := range gone {
		c := queued(fmt.Sprint("c", i))
		c.WaiterTTL = briefly
		_ = r.refused(c, i+1)
	}
	c := queued("b")
	_ = r.refused(c, gone+1)
	r.lapse(briefly)
	r.ended("x")
	c.Key, c.TTL = r.key, minute
	answers, err := DecodeHeartbeat(r.send(r.l.For("me").Heartbeat([]backend.Claim{c})), 1)
	if err != nil {
		t.Fatal(err)
	}
	var held *backend.HeldError
	if !errors.As(answers[0][0], &held) || held.RetryAfter != time.Millisecond {
		t.Errorf("the first heartbeat: %+v, want one that is to be repeated at once", answers[0][0])
	}
	r.beats("the second heartbeat", []bool{false}, c)
	r.granted(c)
}
