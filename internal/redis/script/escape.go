package script

import "strings"

const hexDigits = "0123456789ABCDEF"

// A special is which bytes cannot stand for themselves: '%', control characters, and some more.
type special [256]bool

func newSpecial(more string) *special {
	var s special
	for c := range s {
		s[c] = c < 0x20 || c == 0x7f || c == '%' || strings.IndexByte(more, byte(c)) >= 0
	}
	return &s
}

// escape percent-encodes what is special, byte by byte. It is injective: what it writes for '%' no
// other input gives.
func (special *special) escape(s string) string {
	n := 0
	for i := range len(s) {
		if special[s[i]] {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*n)
	for i := range len(s) {
		if c := s[i]; special[c] {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

// unescape undoes escape; ok is false if s has a '%' that escape did not write.
func unescape(s string) (string, bool) {
	if strings.IndexByte(s, '%') < 0 {
		return s, true
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", false
		}
		hi, lo := strings.IndexByte(hexDigits, s[i+1]), strings.IndexByte(hexDigits, s[i+2])
		if hi < 0 || lo < 0 {
			return "", false
		}
		b.WriteByte(byte(hi<<4 | lo))
		i += 2
	}
	return b.String(), true
}
