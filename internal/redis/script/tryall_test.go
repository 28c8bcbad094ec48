package script

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// beside returns rigs of n other locks of the server.
func (r rig) beside(n int) []rig {
	rigs := make([]rig, n)
	for i := range rigs {
		rigs[i] = r
		rigs[i].key = fmt.Sprint(r.key, "-", i)
	}
	return rigs
}

func (r rig) tryAll(claims []backend.Claim) ([]backend.Grant, error) {
	r.t.Helper()
	reply := r.try(r.l.TryAcquireAll(claims))
	if err, failed := reply.(error); failed {
		return nil, err
	}
	return DecodeTryAcquireAll(reply, claims)
}

func (r rig) tryReleaseAll(claims []backend.Claim) []bool {
	r.t.Helper()
	released, err := DecodeTryReleaseAll(r.send(r.l.TryReleaseAll(claims)), len(claims))
	if err != nil {
		r.t.Fatal(err)
	}
	return released
}

// pttl is for how many ms the key lives.
func (r rig) pttl() int64 {
	r.t.Helper()
	n, err := strconv.ParseInt(r.srv.MustDo("PTTL", r.l.Key(r.key)), 10, 64)
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// dumped is all that the key holds.
func dumped(r rig) string { return r.srv.MustDo("DUMP", r.l.Key(r.key)) }

// What many keys at once leave in the store is what each would leave alone, but for the time.
//
// covers: A1, I1
func TestTryAllStoresWhatOneDoes(t *testing.T) {
	r := newRig(t)
	ahead := 1000*r.ms() + 60_000_000
	for name, before := range map[string][]string{
		"new": nil, "free": {"h2 1700000000000000"}, "free for long": {"h2 7"},
		"a counter ahead": {fmt.Sprint("h2 ", ahead)},
	} {
		for _, reserve := range []int{0, 16} {
			both := newRig(t).beside(3)
			claims := make([]backend.Claim, len(both))
			for i, r := range both {
				r.set(before...)
				claims[i] = backend.Claim{
					Key: r.key, Owner: "some one", TTL: minute + time.Microsecond, Reserve: reserve,
					Meta: backend.Meta{Service: "shop", PID: 7},
				}
			}
			want, err := DecodeAcquire(both[0].send(both[0].l.Acquire(claims[0])), claims[0])
			if err != nil {
				t.Fatal(err)
			}
			if name == "a counter ahead" { // the short way is not open, and ACQUIRE has another
				if grants, err := both[1].tryAll(claims[1:]); err != nil || len(grants) != 0 ||
					both[1].stored() != before[0] {
					t.Errorf("%s: %+v, %v, and %q is stored", name, grants, err, both[1].stored())
				}
				continue
			}
			var grants []backend.Grant
			if n := r.executed(func() {
				grants, err = both[1].tryAll(claims[1:])
			}); n > 2+2*len(claims[1:]) {
				t.Errorf("%d commands for two keys", n)
			}
			if err != nil || len(grants) != 2 {
				t.Fatalf("%s: %+v, %v", name, grants, err)
			}
			alone, ok := parseShort(both[0].stored())
			for i, r := range both[1:] {
				there, ok2 := parseShort(r.stored())
				if !ok || !ok2 || uint64(there.counter) != grants[i].Token+
					uint64(max(reserve, 1))-1 {
					t.Fatalf("%s: %+v stores %q", name, grants[i], r.stored())
				}
				g := grants[i]
				if g.Token < want.Token || g.Reserved != want.Reserved || g.TTL != want.TTL {
					t.Errorf("%s: granted %+v, and %+v alone", name, g, want)
				}
				if there.counter = alone.counter; there != alone {
					t.Errorf("%s: %+v is stored, and %+v alone", name, there, alone)
				}
				// They were made one after the other.
				if apart := both[0].pttl() - r.pttl(); apart < -5000 || apart > 5000 {
					t.Errorf("%s: its key lives %d ms longer alone", name, apart)
				}
				again, err := DecodeAcquire(r.send(r.l.Acquire(claims[1+i])), claims[1+i])
				if err != nil || again.Token != g.Token {
					t.Errorf("%s: a repeat of %+v = %+v, %v", name, g, again, err)
				}
			}
			for i := range claims {
				claims[i].NoneInFlight = true
			}
			both[0].send(both[0].l.Release(claims[0]))
			if got := both[1].tryReleaseAll(claims[1:]); !slices.Equal(got, []bool{true, true}) {
				t.Fatalf("%s: released %v", name, got)
			}
			for i, r := range both[1:] {
				if last := grants[i].Token + uint64(max(reserve, 1)) - 1; r.stored() != Free(last) {
					t.Errorf("%s: %q after the release of token %d", name, r.stored(), last)
				}
				if apart := both[0].pttl() - r.pttl(); apart < -5000 || apart > 5000 {
					t.Errorf("%s: the counter is kept %d ms longer alone", name, apart)
				}
			}
		}
	}
}

// The first key that is not plainly free ends it: it and those behind it are as they were.
//
// covers: A1, W7, R23
func TestTryAcquireAllEnds(t *testing.T) {
	for name, put := range map[string]func(r rig){
		"held":            func(r rig) { r.granted(plainClaim("holder")) },
		"held by a claim": func(r rig) { r.granted(plainClaim("c1")) },
		"held, and watched": func(r rig) {
			r.granted(plainClaim("holder"))
			r.send(r.l.Watched().Acquire(backend.Claim{Key: r.key, Owner: "w", TTL: minute}))
		},
		"a queue":      func(r rig) { held(r, 5, 2) },
		"readers":      func(r rig) { r.granted(reader("a")) },
		"a tombstone":  func(r rig) { _ = r.release("c1", false) },
		"a string":     func(r rig) { r.set("a session of some web shop") },
		"a list":       func(r rig) { r.srv.MustDo("RPUSH", r.l.Key(r.key), "x") },
		"no time left": func(r rig) { r.set("h2 9007199254740990") },
	} {
		for at := range 3 {
			rigs := newRig(t).beside(3)
			claims := make([]backend.Claim, len(rigs))
			for i, r := range rigs {
				claims[i] = backend.Claim{Key: r.key, Owner: "c1", TTL: minute}
			}
			put(rigs[at])
			before := dumped(rigs[at])
			grants, err := rigs[0].tryAll(claims)
			if err != nil || len(grants) != at {
				t.Errorf("%s at %d: %+v, %v", name, at, grants, err)
			}
			if after := dumped(rigs[at]); after != before {
				t.Errorf("%s at %d: %q became %q", name, at, before, after)
			}
			for i, r := range rigs[at+1:] {
				if there := r.srv.MustDo("EXISTS", r.l.Key(r.key)); there != "0" {
					t.Errorf("%s at %d: number %d is taken behind it", name, at, at+1+i)
				}
			}
		}
	}
}

// A release of many keys ends what each claim holds alone, as it was granted. All else is left as
// it is.
//
// covers: C1, W7
func TestTryReleaseAllLeaves(t *testing.T) {
	names := map[string]func(r rig){
		"another's":   func(r rig) { r.granted(plainClaim("holder")) },
		"longer name": func(r rig) { r.granted(plainClaim("c11")) },
		"a queue": func(r rig) {
			r.granted(plainClaim("c1"))
			_ = r.refused(queued("next"), 1)
		},
		"readers":  func(r rig) { r.granted(reader("c1")) },
		"free":     func(r rig) { r.set("h2 1700000000000000") },
		"nothing":  func(rig) {},
		"a string": func(r rig) { r.set("a session of some web shop") },
		"a list":   func(r rig) { r.srv.MustDo("RPUSH", r.l.Key(r.key), "x") },
	}
	for name, put := range names {
		rigs := newRig(t).beside(2)
		claims := make([]backend.Claim, len(rigs))
		for i, r := range rigs {
			claims[i] = backend.Claim{Key: r.key, Owner: "c1", TTL: minute, NoneInFlight: true}
		}
		put(rigs[0])
		rigs[1].granted(plainClaim("c1"))
		before := dumped(rigs[0])
		if got := rigs[0].tryReleaseAll(claims); !slices.Equal(got, []bool{false, true}) {
			t.Errorf("%s, and one that holds: released %v", name, got)
		}
		if after := dumped(rigs[0]); after != before {
			t.Errorf("%s: %q became %q", name, before, after)
		}
	}
}

// Who watches one of many keys is told that it is free.
//
// covers: W1
func TestTryReleaseAllTells(t *testing.T) {
	r := newRig(t)
	r.granted(plainClaim("c1"))
	next := r.subscribed(r.l.Channel(r.key))
	r.send(r.l.Watched().Acquire(backend.Claim{Key: r.key, Owner: "w", TTL: minute}))
	if got := r.tryReleaseAll([]backend.Claim{{
		Key: r.key, Owner: "c1", TTL: minute,
		NoneInFlight: true,
	}}); !got[0] {
		t.Fatal("not released")
	}
	if told := next(); told != "free" {
		t.Errorf("told %q", told)
	}
}

// Where the server may have forgotten holds, or its clients have another rule, many keys are
// granted no more than one; and they may be given back.
//
// covers: R1
func TestTryAllBehindAGuard(t *testing.T) {
	long, short := layout(t).Guarded(minute, 0), layout(t).Guarded(minute/2, 0)
	r := variant(t, long)
	rigs := r.beside(3)
	claims := make([]backend.Claim, len(rigs))
	for i, r := range rigs {
		claims[i] = backend.Claim{Key: r.key, Owner: "c1", TTL: minute, NoneInFlight: true}
	}
	var q *backend.QuarantineError
	if grants, err := r.tryAll(claims); !errors.As(err, &q) || q.RetryAfter <= 0 ||
		len(grants) != 0 {
		t.Errorf("on a new server: %+v, %v", grants, err)
	}
	r.pass(time.Hour)
	if grants, err := r.tryAll(claims[:2]); err != nil || len(grants) != 2 {
		t.Fatalf("when it is open: %+v, %v", grants, err)
	}
	r.pass(40 * time.Second) // closed again
	if grants, err := r.tryAll(claims[2:]); !errors.Is(err, backend.ErrQuarantined) ||
		len(grants) != 0 {
		t.Errorf("when it is closed: %+v, %v", grants, err)
	}
	r.l = short
	if grants, err := r.tryAll(claims[2:]); !errors.Is(err, backend.ErrUnsafe) || len(grants) != 0 {
		t.Errorf("by another rule: %+v, %v", grants, err)
	}
	if got := r.tryReleaseAll(claims); !slices.Equal(got, []bool{true, true, false}) {
		t.Errorf("released %v", got)
	}
}

// A server that takes no writes grants nothing, and says why; nor does it release anything.
//
// covers: R14
func TestTryAllWithoutWrites(t *testing.T) {
	for name, refuse := range map[string][]string{
		"a replica": {"REPLICAOF", "127.0.0.1", "1"}, "no memory": {
			"CONFIG", "SET", "maxmemory",
			"1",
		},
	} {
		r := variant(t, layout(t))
		claims := []backend.Claim{
			{Key: "k", Owner: "c1", TTL: minute, NoneInFlight: true},
			{Key: "l", Owner: "c1", TTL: minute, NoneInFlight: true},
		}
		if grants, err := r.tryAll(claims[:1]); err != nil || len(grants) != 1 {
			t.Fatal(err)
		}
		before := r.stored()
		r.srv.MustDo(refuse...)
		if grants, err := r.tryAll(claims[1:]); err == nil || len(grants) != 0 {
			t.Errorf("%s: granted %+v, %v", name, grants, err)
		}
		released, err := DecodeTryReleaseAll(r.try(r.l.TryReleaseAll(claims)), 2)
		if err == nil && slices.Contains(released, true) || r.stored() != before {
			t.Errorf("%s: released %v, %v, and %q is stored", name, released, err, r.stored())
		}
	}
}

// A reply that is none is no answer.
func TestDecodeTryAll(t *testing.T) {
	claims := []backend.Claim{{TTL: minute, Reserve: 3}, {TTL: minute}}
	grants, err := DecodeTryAcquireAll([]any{int64(1), int64(7), int64(9)}, claims)
	if err != nil || len(grants) != 2 || grants[0].Token != 7 || grants[0].Reserved != 3 ||
		grants[1].Token != 9 || grants[1].TTL != minute {
		t.Errorf("two grants: %+v, %v", grants, err)
	}
	if grants, err = DecodeTryAcquireAll([]any{int64(1)}, claims); err != nil || len(grants) != 0 {
		t.Errorf("no grant: %+v, %v", grants, err)
	}
	released, err := DecodeTryReleaseAll([]any{int64(1), int64(0), int64(1)}, 2)
	if err != nil || !slices.Equal(released, []bool{false, true}) {
		t.Errorf("the second is released: %v, %v", released, err)
	}
	for name, reply := range map[string]any{
		"nothing": nil, "not an array": "OK", "empty": []any{}, "another code": []any{
			int64(2),
			int64(7), int64(1),
		},
		"too many": []any{int64(1), int64(1), int64(1), int64(1)}, "a text": []any{
			int64(1), "7",
			int64(1),
		},
		"negative": []any{int64(1), int64(-1), int64(1)}, "a number": int64(9),
		"a code alone": int64(1),
	} {
		if grants, err := DecodeTryAcquireAll(reply,
			claims); backend.AnswerOf(err) != backend.Unknown || len(grants) != 0 {
			t.Errorf("%s: granted %+v, %v", name, grants, err)
		}
		if released, err := DecodeTryReleaseAll(reply,
			len(claims)); backend.AnswerOf(err) != backend.Unknown || len(released) != 0 {
			t.Errorf("%s: released %v, %v", name, released, err)
		}
	}
	if grants, err := DecodeTryAcquireAll([]any{int64(1), int64(0)}, claims); err == nil {
		t.Errorf("token 0: %+v", grants)
	}
	for name, reply := range map[string]any{
		"too few": []any{int64(1), int64(1)},
		"neither": []any{int64(1), int64(2), int64(0)},
	} {
		if released, err := DecodeTryReleaseAll(reply, 2); err == nil {
			t.Errorf("%s: %v", name, released)
		}
	}
	for code, want := range map[int64]error{
		3: backend.ErrLost, 4: backend.ErrForeign,
		7: backend.ErrQuarantined, 8: backend.ErrUnsafe,
	} {
		if _, err := DecodeTryAcquireAll([]any{code}, claims); !errors.Is(err, want) {
			t.Errorf("code %d: %v, want %v", code, err, want)
		}
	}
}
