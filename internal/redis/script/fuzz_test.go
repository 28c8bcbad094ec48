package script

import (
	"fmt"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// FuzzGroupState damages what several holders and a queue are made of. A live holder that is
// counted is never joined by one that it excludes, and whatever is refused as foreign is left as it
// was.
//
// covers: I2, R23
func FuzzGroupState(f *testing.F) {
	const group = "s 0 1 %d 0 0 %d 1 1 1 0"
	place := "%d 1000 me x 60000 waiter 1 {}"
	f.Add(group, "%d 7  reader {}", "1", place, "1", uint8(0))
	f.Add("p 1 1 %d 0 0 %d 1 0 0 0", "%d 7  reader {}", "1", "", "", uint8(1))
	f.Add("r 0 1 0 0 0 %d 1 0 0 0", "%d 7 owner hold {}", "1", "", "", uint8(2))
	f.Add("- 0 0 0 0 0 0 1 1 1 0", "", "", place, "1", uint8(0))
	f.Add("x 0 1 1 1", "%d 7  reader {}", "2", "%d", "9", uint8(1))
	f.Add("s 0 2 0 1 5 0 1 0 0 0", "nan 7  reader {}", "1", place, "0", uint8(3))
	f.Add("p 0 1 0 0 0 0 1 1 1 1", "%d 7", "x", "0 0 me p,0, 60000 waiter 1 ", "1", uint8(3))
	f.Add(group, "%d 7  reader {}", "1", place, "1", uint8(128))
	f.Add("- 0 0 0 0 0 %d 1 1 1 0", "", "", place, "1", uint8(128))
	f.Add("p 5 1*4 %d 0 0 %d 1 1 1 0", "%d 7*4  reader {}", "1", "%d 0 me p,5*2, 60000 waiter 1 ",
		"1", uint8(2))
	f.Add("p 1 1 %d 0 0 %d 1 0 0 0", "%d 7*0  reader {}", "1", "", "", uint8(2))
	f.Fuzz(func(t *testing.T, g, slot, index, place, number string, mode uint8) {
		r := newRig(t)
		future := r.now() + 60_000
		fill := func(s string) string { // %d is a time to come
			for i := 0; i+1 < len(s); i++ {
				if s[i:i+2] == "%d" {
					s = s[:i] + fmt.Sprint(future) + s[i+2:]
				}
			}
			return s
		}
		r.set("v", "h2", "f", "7", "g", fill(g), "k:1", fill(slot), "h:reader", index, "q:1",
			fill(place), "w:waiter", number)
		before := r.stored()
		c := []backend.Claim{
			plainClaim("me"), reader("me"), permit("me", 1), entrant("me", "mine"),
		}[mode%4]
		was, wasErr := r.inspect()
		// A heartbeat neither ends a hold that runs, nor writes over what it refuses.
		if mode >= 128 {
			waiter := queued("waiter")
			waiter.Key, waiter.TTL = r.key, minute
			_, err := DecodeHeartbeat(r.send(r.l.Heartbeat([]backend.Claim{waiter})), 1)
			is, isErr := r.inspect()
			switch {
			case err != nil && r.stored() != before:
				t.Fatalf("a heartbeat was refused with %v, and changed the lock", err)
			case wasErr == nil && (isErr != nil || len(is.Holders) < len(was.Holders)):
				t.Fatalf("after a heartbeat %+v, %v; before %+v", is, isErr, was)
			}
			return
		}
		grant, err := r.ask(c)
		switch {
		case err != nil && backend.AnswerOf(err) != backend.No:
			t.Fatalf("%v is no definite answer", err)
		case wasErr != nil && err == nil:
			// Inspect reads all of it, and an attempt only what it needs.
		case err == nil && len(was.Holders) > 0 &&
			(c.Mode == backend.Exclusive || was.Holders[0].Mode != c.Mode):
			t.Fatalf("%+v was granted beside %+v", grant, was.Holders)
		case err == nil && c.Mode == backend.Permit && len(was.Holders) >= c.Limit:
			t.Fatalf("a permit of %d beside %+v", c.Limit, was.Holders)
		case err == nil && grant.Token <= was.Token:
			t.Fatalf("token %d after %d", grant.Token, was.Token)
		}
		if backend.Refused(err) && wasErr != nil && r.stored() != before {
			t.Fatalf("refused with %v, and changed", err)
		}
	})
}
