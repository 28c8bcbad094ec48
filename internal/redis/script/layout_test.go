package script

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

func layout(t testing.TB) Layout {
	t.Helper()
	l, err := NewLayout("", 0, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// covers: I3, I4, I6
func TestKey(t *testing.T) {
	l := layout(t)
	for key, want := range map[string]string{
		"sku-1":           "holdfast:{sku-1}",
		"shop~sku:1/2 ,;": "holdfast:{shop~sku:1/2 ,;}",
		"a{b}c":           "holdfast:{a%7Bb%7Dc}",
		"{}":              "holdfast:{%7B%7D}",
		"100%":            "holdfast:{100%25}",
		"%7B":             "holdfast:{%257B}",
		"\x00🐉汉字\b\r\n\\": "holdfast:{%00🐉汉字%08%0D%0A\\}",
		"\x7f":            "holdfast:{%7F}",
		"Straße":          "holdfast:{Straße}",
		"strasse":         "holdfast:{strasse}",
	} {
		if got := l.Key(key); got != want {
			t.Errorf("Key(%q) = %q, want %q", key, got, want)
		}
		if back, ok := l.UserKey(want); !ok || back != key {
			t.Errorf("UserKey(%q) = %q, %v", want, back, ok)
		}
	}
	for _, foreign := range []string{
		"", "holdfast:", "holdfast:sku", "holdfast:{sku", "other:{sku}", "holdfast:{a{b}",
		"holdfast:{%7b}", "holdfast:{%4}",
		"holdfast:{%41}", "holdfast:{a}b", "holdfast:{a}}", "holdfast:{a\n}", l.ProbeKey(),
		l.Channel("a"),
	} {
		if key, ok := l.UserKey(foreign); ok {
			t.Errorf("UserKey(%q) = %q, but no lock has that key", foreign, key)
		}
	}
}

// covers: I3
func TestNewLayout(t *testing.T) {
	for _, prefix := range []string{"", "app:", "app:v2/%", strings.Repeat("p", backend.MaxKey)} {
		if _, err := NewLayout(prefix, 0, time.Second); err != nil {
			t.Errorf("prefix %q: %v", prefix, err)
		}
	}
	for _, prefix := range []string{
		"a{b", "a}b", "{a}", "a\nb", "\x00",
		strings.Repeat("p", backend.MaxKey+1),
	} {
		if _, err := NewLayout(prefix, 0, time.Second); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("prefix %q: %v, want ErrInvalid", prefix, err)
		}
	}
	for _, retention := range []time.Duration{-1, 101 * backend.MaxTTL} {
		if _, err := NewLayout("", retention, time.Second); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("retention %v: %v, want ErrInvalid", retention, err)
		}
	}
}

// FuzzKey: no two keys share a Redis key, and key and channel of a lock hash to the slot of its
// tag.
//
// covers: I3, I4, R11, R13
func FuzzKey(f *testing.F) {
	for _, s := range []string{
		"a", "{a}", "}{", "%", "%7B", "{", "a{b}c", "\x00", "a\nb", "a:free",
		"🐉",
	} {
		f.Add(s, "app:")
	}
	f.Fuzz(func(t *testing.T, key, prefix string) {
		l, err := NewLayout(prefix, 0, time.Second)
		if err != nil || key == "" {
			return
		}
		full := l.Key(key)
		if back, ok := l.UserKey(full); !ok || back != key {
			t.Fatalf("UserKey(Key(%q)) = %q, %v", key, back, ok)
		}
		tag := strings.TrimSuffix(full[strings.IndexByte(full, '{')+1:], "}")
		for _, name := range []string{full, l.Channel(key)} {
			if slot(name) != crc16(tag)%16384 {
				t.Fatalf("%q is in slot %d, its tag %q in %d", name, slot(name), tag,
					crc16(tag)%16384)
			}
			if strings.ContainsFunc(name[len(l.prefix):], func(r rune) bool {
				return r < 0x20 || r == 0x7f
			}) {
				t.Fatalf("%q has control characters", name)
			}
		}
	})
}

// slot is Redis Cluster's: of what stands between the first '{' and the next '}', if that is
// anything.
func slot(key string) uint16 {
	if _, rest, ok := strings.Cut(key, "{"); ok {
		if tag, _, ok := strings.Cut(rest, "}"); ok && tag != "" {
			key = tag
		}
	}
	return crc16(key) % 16384
}

// crc16 is CRC-16/XMODEM, bit by bit.
func crc16(s string) (crc uint16) {
	for i := range len(s) {
		crc ^= uint16(s[i]) << 8
		for range 8 {
			carry := crc&0x8000 != 0
			crc <<= 1
			if carry {
				crc ^= 0x1021
			}
		}
	}
	return crc
}

func TestSlot(t *testing.T) { // the check value of the CRC, and examples from Redis' documentation
	if got := crc16("123456789"); got != 0x31C3 {
		t.Fatalf("crc16 = %#x", got)
	}
	if slot("{user1000}.following") != slot("user1000") ||
		slot("foo{}{bar}") != crc16("foo{}{bar}")%16384 {
		t.Fatal("hash tags are wrong")
	}
}

// covers: I1
func TestArguments(t *testing.T) {
	l := layout(t)
	c := backend.Claim{Key: "k", Owner: "o w;n%", TTL: 10*time.Millisecond + 1}
	check := func(name string, got, want []string) {
		t.Helper()
		if strings.Join(got, "|") != strings.Join(want, "|") {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	const owner = "o%20w%3Bn%25"
	check("acquire", l.Acquire(c).Args, []string{owner, "15012", "15000 " + owner + " 1 "})
	in := c
	in.Queue, in.WaiterTTL, in.Mode, in.Limit = true, time.Second+1, backend.Permit, 3
	check("in the queue", l.For("me").Acquire(in).Args,
		[]string{owner, "15012", "15000 " + owner + " 1 ", "11 me 1001", "1", "p,3,"})
	in.Weight = 1
	check("light", l.For("me").Acquire(in).Args[5:6], []string{"p,3,"})
	in.Weight = 2
	check("heavy", l.For("me").Acquire(in).Args[5:6], []string{"p,3*2,"})
	in = backend.Claim{Key: "k", Owner: "w", Hold: "h h", Reentrant: true, TTL: time.Second}
	check("re-entrant", l.For("me").Acquire(in).Args,
		[]string{"h%20h", "16001", "15000 h%20h 1 ", "", "1", "r,0,w"})
	if got := l.Release(in).Args[0]; got != "h%20h" {
		t.Errorf("a re-entrant hold is released as %q", got)
	}
	check("renew", l.Renew(c).Args, []string{"o%20w%3Bn%25", "11", "15000"})
	check("release", l.Release(c).Args, []string{"o%20w%3Bn%25", "15000", "3021"})
	minToken := c
	minToken.MinToken = 7
	check("minToken", l.Acquire(minToken).Args,
		[]string{owner, "15012", "15000 " + owner + " 1 ", "", "1", "x", "7", "2750"})
	check("guarded", l.Guarded(time.Minute, 0).Acquire(c).Args,
		[]string{
			owner, "15012", "15000 " + owner + " 1 ", "", "1", "x", "0", "2750",
			"60000 62200",
		})
	c.NoneInFlight = true
	check("guarded none in flight", l.Guarded(time.Minute, 0).Release(c).Args,
		[]string{owner, "15000", "0", "", "0", "", "60000 62200"})
	told := c
	told.Before = []backend.Past{{Token: 7, For: 3}}
	check("telling", l.Release(told).Args,
		[]string{owner, "15000", "0", "\xff" + `[{"token":7,"for":3}]`})
	check("none in flight", l.Release(c).Args, []string{"o%20w%3Bn%25", "15000"})
	c.TTL, c.NoneInFlight = time.Hour, false
	check("long", l.Release(c).Args, []string{"o%20w%3Bn%25", "1800000", "7203000"})
	// A release is not validated, and still must not overflow.
	for _, ttl := range []time.Duration{0, -1, 1<<63 - 1} {
		c.TTL = ttl
		for _, arg := range l.Release(c).Args[1:3] {
			if strings.Contains(arg, "-") || len(arg) > 10 {
				t.Errorf("release with TTL %v has %q", ttl, arg)
			}
		}
	}
}
