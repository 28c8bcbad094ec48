package redisclaim

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// relay runs the script, as client "me".
func (r rig) relay(ended, next backend.Claim) (done bool, g backend.Grant, err error) {
	r.t.Helper()
	ended.Key, ended.TTL, ended.Settled = r.key, minute, true
	next.Key, next.TTL = r.key, minute
	args, ok := r.l.For("me").Relay(ended, next)
	if !ok {
		r.t.Fatalf("not for a relay: %+v, %+v", ended, next)
	}
	return DecodeRelay(r.eval(own.Relay, args...), next)
}

// Whatever is in the store, RELAY leaves and answers what RELEASE and ACQUIRE would, or does nothing at all. The short ways are taken
// in the states that are the most frequent.
//
// covers: W6, Q14, W15
func TestRelay(t *testing.T) {
	const line = "- 0 0 0 0 0 9999999999999 %d %d %d 0"
	later := "9999999999999 1000 you x 60000 other 1 meta"
	hash := func(owner, until string, more ...string) []string {
		return append([]string{"v", "h2", "f", "5", "o", owner, "x", until, "m", "", "b", "1"}, more...)
	}
	for name, c := range map[string]struct {
		state []string
		done  bool
	}{
		"alone":                 {[]string{"h2 5 60000 me 1 "}, true},
		"over":                  {[]string{"h2 5 130000 me 1 "}, false},
		"free":                  {[]string{"h2 5"}, false},
		"nothing":               {nil, false},
		"of another":            {[]string{"h2 5 60000 other 1 "}, false},
		"token beyond 2^53":     {[]string{"h2 99999999999999999 60000 me 1 "}, false},
		"token ahead of time":   {[]string{"h2 8888888888888888 60000 me 1 "}, false},
		"one in line":           {hash("me", "9999999999999", "g", fmt.Sprintf(line, 1, 1, 1), "q:1", later, "w:other", "1"), true},
		"of another, with line": {hash("one", "9999999999999", "g", fmt.Sprintf(line, 1, 1, 1), "q:1", later, "w:other", "1"), false},
		"over, with line":       {hash("me", "5", "g", fmt.Sprintf(line, 1, 1, 1), "q:1", later, "w:other", "1"), false},
		"next is in line":       {hash("me", "9999999999999", "g", fmt.Sprintf(line, 1, 1, 1), "q:1", strings.Replace(later, "other", "next", 1), "w:next", "1"), false},
		"head is dead":          {hash("me", "9999999999999", "g", fmt.Sprintf(line, 1, 1, 1), "q:1", "5"+later[13:], "w:other", "1"), false},
		"two in line": {hash("me", "9999999999999", "g", fmt.Sprintf(line, 3, 4, 2), "q:3", later, "w:other", "3",
			"q:4", strings.Replace(later, "other", "third", 1), "w:third", "4"), true},
		"tombstone": {hash("me", "9999999999999", "z", "9999999999999 next;", "g", fmt.Sprintf(line, 1, 1, 1), "q:1", later, "w:other", "1"), false},
		"readers":   {[]string{"v", "h2", "f", "5", "g", "s 0 1 9999999999999 0 0 9999999999999 1 0 0 0", "k:1", "9999999999999 5  me ", "h:me", "1"}, false},
		"damaged":   {hash("me", "9999999999999", "g", "what"), false},
		"foreign":   {[]string{"something else"}, false},
	} {
		moving := regexp.MustCompile(`[0-9]{5,16}`)                                                              // times and tokens
		again := strings.NewReplacer("1.001s", "1s", "q:2", "q:1", "w:next2", "w:next1", " 2 2 1 0", " 1 1 1 0") // a line that was empty in between is counted anew
		var after [2]string
		for i := range after {
			r := newRig(t)
			r.set(c.state...)
			before := r.stored()
			me, next := plainClaim("me"), queued("next")
			next.Reserve = 3
			var released, err error
			var g backend.Grant
			if i == 0 {
				var done bool
				if done, g, err = r.relay(me, next); done != c.done {
					t.Errorf("%s: done %v, want %v", name, done, c.done)
				}
				if !done {
					if r.stored() != before {
						t.Errorf("%s: nothing was to be done, but\n%s\nis now\n%s", name, before, r.stored())
					}
					break
				}
			} else {
				released = r.drop(me)
				g, err = r.ask(next)
			}
			said := fmt.Sprint(released, " ", g, " ", err, "\n", r.stored())
			after[i] = again.Replace(moving.ReplaceAllString(strings.ReplaceAll(said, r.key, "k"), "n"))
		}
		if c.done && after[0] != after[1] {
			t.Errorf("%s: relayed:\n%s\nreleased and asked:\n%s", name, after[0], after[1])
		}
	}
}

// Two of three things end with a relay, and none comes back: a second one, or one that is late, finds another's hold.
//
// covers: A3, W7
func TestRelayOnce(t *testing.T) {
	r := newRig(t)
	first := r.granted(plainClaim("a"))
	done, g, err := r.relay(plainClaim("a"), queued("b"))
	if !done || err != nil || g.Token <= first.Token {
		t.Fatalf("%v %+v %v after %+v", done, g, err, first)
	}
	for _, next := range []string{"b", "c"} {
		if done, _, _ := r.relay(plainClaim("a"), queued(next)); done {
			t.Fatalf("a hold that is over was relayed to %s", next)
		}
	}
	held := r.refused(queued("c"), 1)
	if held.Token != g.Token {
		t.Errorf("the key's token is %d, want %d", held.Token, g.Token)
	}
	done, _, err = r.relay(queued("b"), queued("d"))
	if held, ok := err.(*backend.HeldError); !done || !ok || held.Position != 1 || held.RetryAfter <= 0 || held.RetryAfter > minute+time.Millisecond { //nolint:errorlint // as it is made
		t.Fatalf("%v %v, want first place behind c", done, err)
	}
	if s := r.state(); len(s.Holders) != 1 || s.Holders[0].Owner != "c" || len(s.Waiters) != 1 || s.Waiters[0].Owner != "d" {
		t.Errorf("%+v", s)
	}
}

// A server that may have forgotten relays to nobody, and one without memory leaves all as it is.
//
// covers: Q1, R5
func TestRelayRefused(t *testing.T) {
	r := variant(t, layout(t).Guarded(time.Second, 0))
	me, next := plainClaim("me"), queued("next")
	me.Key, me.TTL, me.Settled, next.Key, next.TTL = r.key, minute, true, r.key, time.Second
	if _, err := r.tryAcquire(next); err == nil {
		t.Fatal("a new server granted")
	}
	r.set("h2 5 60000 me 1 ")
	args, _ := r.l.Relay(me, next)
	if done, _, err := DecodeRelay(r.evalKeys(r.l.Scripts().Relay, args), next); done {
		t.Errorf("relayed in quarantine: %v", err)
	}
	r.pass(3 * time.Second)
	r.srv.MustDo("CONFIG", "SET", "maxmemory", "1")
	if done, _, err := DecodeRelay(r.evalKeys(r.l.Scripts().Relay, args), next); done || r.stored() != "h2 5 60000 me 1 " {
		t.Errorf("relayed without memory: %v, %s", err, r.stored())
	}
	r.srv.MustDo("CONFIG", "SET", "maxmemory", "0")
	if done, g, err := DecodeRelay(r.evalKeys(r.l.Scripts().Relay, args), next); !done || err != nil || g.Token == 0 {
		t.Errorf("%v %+v %v after the quarantine", done, g, err)
	}
}
