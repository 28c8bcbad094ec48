package script

import (
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

// The short string of a lock (see doc.go) is made and read here, and in scripts by lib/short.lua.
// One table of vectors holds the two to the same, see short_test.go.

// version is what it begins with, and what the field v of a long form is.
const version = "h2"

// Free is what a key holds whose lock nobody has, and which nobody waits for.
func Free(last uint64) string { return string(appendFree(make([]byte, 0, 32), last)) }

// Held is what a key holds that a plain claim was granted; tail is the third argument of
// an Acquire.
func Held(last uint64, tail string) string {
	return string(append(append(appendFree(make([]byte, 0, 256), last), ' '), tail...)) // most fit
}

func appendFree(b []byte, last uint64) []byte {
	return strconv.AppendUint(append(b, version+" "...), last, 10)
}

// tailOf is what the string has of a claim.
func tailOf(margin, id string, count int, m *backend.Meta) string {
	b := append(make([]byte, 0, 256), margin...) // most fit
	b = append(append(append(b, ' '), id...), ' ')
	b = append(strconv.AppendInt(b, int64(count), 10), ' ')
	return string(appendMeta(b, m))
}

// A short is what the string says.
type short struct {
	counter, margin int64
	id              string // of who holds; empty if nobody does
	count, meta     string
}

// parseShort reads the string; ok is false for what is none, as it is for scripts.
func parseShort(value string) (s short, ok bool) {
	fields := strings.SplitN(value, " ", 6)
	if fields[0] != version || len(fields) != 2 && len(fields) != 6 {
		return s, false
	}
	if s.counter, ok = number(fields[1]); !ok || len(fields) == 2 {
		return s, ok
	}
	s.margin, ok = number(fields[2])
	s.id, s.count, s.meta = fields[3], fields[4], fields[5]
	return s, ok && s.id != "" && s.count != "" && strings.Trim(s.count, "0123456789") == ""
}
