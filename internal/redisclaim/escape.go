package redisclaim

import "strings"

const hexDigits = "0123456789ABCDEF"

// escape percent-encodes '%', control characters and the characters of special, byte by byte. It is injective: what it
// writes for '%' no other input gives.
func escape(s, special string) string {
	n := 0
	for i := range len(s) {
		if mustEscape(s[i], special) {
			n++
		}
	}
	if n == 0 {
		return s
	}
	var b strings.Builder
	b.Grow(len(s) + 2*n)
	for i := range len(s) {
		if c := s[i]; mustEscape(c, special) {
			b.Write([]byte{'%', hexDigits[c>>4], hexDigits[c&15]})
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func mustEscape(c byte, special string) bool {
	return c < 0x20 || c == 0x7f || c == '%' || strings.IndexByte(special, c) >= 0
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
