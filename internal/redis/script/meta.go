package script

import (
	"encoding/json"
	"hash/maphash"
	"strings"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// encodeMeta returns m as JSON, and nothing for nothing.
func encodeMeta(m backend.Meta) string { return string(appendMeta(nil, &m)) }

// appendMeta appends m as JSON, and nothing for nothing. What differs from claim to claim, if they
// are traced, is put behind what was encoded last: one call of package json costs as much as a
// tenth of the round trip to a server nearby.
func appendMeta(b []byte, m *backend.Meta) []byte {
	known := lastMeta.Load()
	if known == nil || !known.fits(m) {
		if *m == (backend.Meta{}) {
			return b
		}
		same := *m
		same.Traceparent, same.Since, same.Quorum = "", time.Time{}, ""
		text, _ := json.Marshal(same) // strings and a number
		known = &encodedMeta{same, string(text)}
		lastMeta.Store(known)
	}
	if m.Traceparent == "" && m.Since.IsZero() && m.Quorum == "" {
		if known.text == "{}" {
			return b
		}
		return append(b, known.text...)
	}
	from := len(b)
	b = append(b, known.text[:len(known.text)-1]...)
	if m.Traceparent != "" {
		b = appendString(append(comma(b, from), `"traceparent":`...), m.Traceparent)
	}
	if text, err := m.Since.AppendText(make([]byte, 0, 40)); err == nil && !m.Since.IsZero() { // it has no digits for some years
		b = append(append(append(comma(b, from), `"since":"`...), text...), '"')
	}
	if m.Quorum != "" {
		b = appendString(append(comma(b, from), `"quorum":`...), m.Quorum)
	}
	return append(b, '}')
}

// comma ends a member of the object that begins at from, if there is one.
func comma(b []byte, from int) []byte {
	if len(b) > from+len("{") {
		b = append(b, ',')
	}
	return b
}

// appendString appends s as JSON.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(s)
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// lastMeta is the Meta that was encoded last, without what differs from claim to claim.
var lastMeta atomic.Pointer[encodedMeta]

// An encodedMeta is a Meta and its JSON.
type encodedMeta struct {
	meta backend.Meta
	text string
}

func (e *encodedMeta) fits(m *backend.Meta) bool {
	return e.meta.PID == m.PID && e.meta.Host == m.Host && e.meta.Service == m.Service
}

// decodeMeta returns what it can read: Meta decides nothing, so a damaged one is no error. It
// remembers a few, as those who are in the way of each other are the same few again and again, and
// every refusal has one.
func decodeMeta(text string) backend.Meta {
	if text == "" {
		return backend.Meta{}
	}
	slot := &decoded[maphash.String(decodedSeed, text)%uint64(len(decoded))]
	if known := slot.Load(); known != nil && known.text == text {
		return known.meta
	}
	var m backend.Meta
	if json.Unmarshal([]byte(text), &m) != nil {
		return backend.Meta{}
	}
	slot.Store(&encodedMeta{m, strings.Clone(text)}) // not a part of a reply, which would stay as well
	return m
}

var (
	decoded     [16]atomic.Pointer[encodedMeta]
	decodedSeed = maphash.MakeSeed()
)
