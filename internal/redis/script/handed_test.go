package script

import (
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

func TestDecodeHanded(t *testing.T) {
	l := layout(t)
	topic, w, ok := DecodeHanded("17 3 1500 a%20b holdfast:{k with blanks}")
	c := backend.Claim{Key: "k with blanks", Owner: "a b"}
	want := backend.Grant{Token: 17, Reserved: 3, TTL: 1500 * time.Millisecond}
	if !ok || topic != l.Topic(c) || !w.Granted || w.Grant.Token != want.Token ||
		w.Grant.Reserved != 3 || w.Grant.TTL != want.TTL {
		t.Errorf("%q, %+v, %v", topic, w, ok)
	}
	many := "[" + strings.Repeat("{},", backend.MaxBefore) + "{}]"
	for text, n := range map[string]int{`[{"for":1},{"for":2}]`: 2, "[{": 0, "[": 0, many: 0} {
		topic, w, ok := DecodeHanded("17 3 1500 a%20b holdfast:{k with blanks}\xff" + text)
		if !ok || topic != l.Topic(c) || len(w.Grant.Before) != n {
			t.Errorf("with %s: %q, %+v, %v", text, topic, w, ok)
		}
	}
	for _, bad := range []string{
		"", "free", "17", "17 1 1500", "17 1 1500 a", "0 1 1500 a k", "17 0 1500 a k", "17 1 0 a k",
		"-1 1 1500 a k",
		"17 1025 1500 a k", "17 1 99999999999 a k", "99999999999999999999 1 1500 a k",
		"x 1 1500 a k", " 17 1 1500 a k",
	} {
		if _, w, ok := DecodeHanded(bad); ok {
			t.Errorf("%q is read as %+v", bad, w)
		}
	}
}
