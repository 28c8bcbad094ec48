package script

import (
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A fenced program that writes and then ends with an error was there all the same, as what it wrote
// stays: a request that was sent before it, with a lower token of the same lease, and comes late is
// refused.
//
// covers: K4, K7
func TestFencedErrorIsRemembered(t *testing.T) {
	dialect, err := Dialect("", 0, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	const write = "redis.call('SET', KEYS[1], ARGV[1]) "
	for form, lock := range map[string]struct {
		l     Layout
		queue bool
	}{
		"string": {l: layout(t)}, "hash": {l: layout(t), queue: true}, "dialect": {l: dialect},
	} {
		for end, program := range map[string]string{
			"an error of its own":              write + "return redis.error_reply('SOLD out')",
			"an error that it passes on":       write + "return redis.pcall('INCR', KEYS[1])",
			"a command that ends it":           write + "return redis.call('INCR', KEYS[1])",
			"an error of Lua, after its write": write + "error('SOLD out')",
		} {
			r := newRig(t)
			r.l = lock.l
			c := plainClaim("a")
			c.Reserve = 2
			g := r.granted(c) // for two goroutines, which hold one after the other
			if g.Reserved != 2 {
				t.Fatalf("%s: %d tokens, want 2", form, g.Reserved)
			}
			if lock.queue {
				_ = r.refused(queued("b"), 1)
			}
			data := r.l.Key(r.key) + ":data"
			run := func(token uint64, program, value string) (failed, refusal error) {
				q := r.l.Fenced(r.key, token, program, []string{data}, []string{value})
				got, err := r.srv.Do(words(q)...)
				if err != nil {
					return err, nil
				}
				_, err = DecodeFenced(got, token)
				return nil, err
			}
			failed, refusal := run(g.Token+1, program, "the second's")
			if failed == nil || refusal != nil || r.srv.MustDo("GET", data) != "the second's" {
				t.Fatalf("%s, %s: %v, %v; want an error after the write", form, end, failed,
					refusal)
			}
			failed, refusal = run(g.Token, write, "the first's")
			if got := r.srv.MustDo("GET", data); got != "the second's" {
				t.Errorf("%s, %s: a late write of the first is over the second's: %q", form, end,
					got)
			}
			if failed != nil || !errors.Is(refusal, backend.ErrLost) {
				t.Errorf("%s, %s: the first, late: %v, %v; want ErrLost", form, end, failed,
					refusal)
			}
			failed, refusal = run(g.Token+1, write, "the second's again")
			if failed != nil || refusal != nil {
				t.Errorf("%s, %s: the second once more: %v, %v", form, end, failed, refusal)
			}
		}
	}
}

// A release that hands the key over, and knows of an attempt in flight, is remembered: the attempt
// that lands while the next one holds, or after it, gets neither the key nor a place in the queue.
//
// covers: A4, C9
func TestHandOverRemembersTheReleased(t *testing.T) {
	for name, waiting := range map[string][]string{
		"to the last":    {"b"},
		"before another": {"b", "c"},
	} {
		for _, late := range []backend.Claim{queued("a"), plainClaim("a")} {
			r := newRig(t)
			first := r.granted(late)
			for i, owner := range waiting {
				_ = r.refused(queued(owner), i+1)
			}
			c := late
			c.Key, c.TTL, c.NoneInFlight = r.key, minute, false
			ended, err := DecodeRelease(r.send(r.l.Release(c)))
			if err != nil || ended.Waiting != len(waiting) {
				t.Fatalf("%s: the release: %+v, %v; want %d that wait", name, ended, err,
					len(waiting))
			}
			for i, next := range waiting {
				h := r.state().Holders
				if len(h) != 1 || h[0].Owner != next || h[0].Token <= first.Token {
					t.Fatalf("%s: %+v, want %s to hold", name, h, next)
				}
				if g, err := r.ask(late); !errors.Is(err, backend.ErrLost) {
					t.Errorf("%s, %s holds: the late attempt: %+v, %v; want ErrLost", name, next, g,
						err)
				}
				if s := r.state(); len(s.Waiters) != len(waiting)-i-1 {
					t.Errorf("%s, %s holds: %+v wait, want %d", name, next, s.Waiters,
						len(waiting)-i-1)
				}
				r.dropped(queued(next))
			}
			if g, err := r.ask(late); !errors.Is(err, backend.ErrLost) {
				t.Errorf("%s, all are gone: the late attempt: %+v, %v; want ErrLost", name, g, err)
			}
			if s := r.state(); len(s.Holders)+len(s.Waiters) > 0 {
				t.Errorf("%s, all are gone: %+v hold and %+v wait", name, s.Holders, s.Waiters)
			}
		}
	}
}
