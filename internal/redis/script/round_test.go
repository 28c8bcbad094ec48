package script

import (
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// What a key outlives its lease by is a whole number of milliseconds: the script takes it from the end of
// the key, and a part of one would be taken from the lease. Of a lease nothing more is told than was asked
// for, as that is what the holder believes in.
func TestPartsOfAMillisecond(t *testing.T) {
	for _, retention := range []time.Duration{1, 1500 * time.Microsecond, time.Second + 1} {
		l, err := NewLayout("", retention, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, ttl := range []time.Duration{100*time.Millisecond + 900*time.Microsecond, time.Second + 400*time.Microsecond, time.Minute + 1} {
			c := backend.Claim{Key: "k", Owner: "o", TTL: ttl}
			if keep := l.Keep(c); keep%time.Millisecond != 0 || keep < max(retention, ttl/2) {
				t.Errorf("a lease of %v with a retention of %v is kept for %v", ttl, retention, keep)
			}
			if g := Granted(1, c); g.TTL != ttl {
				t.Errorf("granted %v of %v", g.TTL, ttl)
			}
		}
	}
}
