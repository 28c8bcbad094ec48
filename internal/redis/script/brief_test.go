package script

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// A script makes the same of arguments that are left out and of what they stand for.
func TestArgumentsLeftOut(t *testing.T) {
	states := map[string][]string{
		"none": nil, "free": {"h2 5"}, "held": {"h2 1700000000000000 60000 other 1 "}, "mine": {"h2 1700000000000000 60000 me 1 "},
		"line": {
			"v", "h2", "f", "5", "o", "other", "x", "9999999999999", "m", "", "g", "- 0 0 0 0 0 9999999999999 1 1 1 0",
			"q:1", "9999999999999 1000 me x 60000 next 1 ", "w:next", "1",
		},
		"handed": {
			"v", "h2", "f", "5", "o", "me", "x", "9999999999999", "m", "", "g", "- 0 0 0 0 0 9999999999999 1 1 1 0",
			"q:1", "9999999999999 1000 me x 60000 next 1 ", "w:next", "1",
		},
	}
	moving := regexp.MustCompile(`[0-9]{5,16}`) // times and tokens
	for name, state := range states {
		for verb, s := range map[string]Script{"plain": own.Acquire, "in line": own.Acquire, "release": own.Release} {
			c := plainClaim("me")
			if verb == "in line" {
				c = queued("me")
			}
			c.TTL, c.NoneInFlight = minute, true
			var seen [2]string
			for i := range seen {
				r := newRig(t)
				r.set(state...)
				args := r.l.For("me").Acquire(c)
				rest := []string{"x", "0", "15000000"}
				if verb == "release" {
					args, rest = r.l.Release(c), []string{"0"}
				}
				if i == 1 {
					args = append(args, rest...)
				}
				reply := fmt.Sprint(r.eval(s, args...))
				seen[i] = moving.ReplaceAllString(strings.ReplaceAll(reply+"\n"+r.stored(), r.key, "k"), "n")
			}
			if seen[0] != seen[1] {
				t.Errorf("%s, %s: %s\nand with all arguments: %s", name, verb, seen[0], seen[1])
			}
		}
	}
}
