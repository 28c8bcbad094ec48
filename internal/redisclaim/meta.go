package redisclaim

import (
	"encoding/json"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// encodeMeta returns m as JSON, and nothing for nothing. What differs from claim to claim, if they are traced, is appended to
// what was encoded last: one call of package json costs as much as a tenth of the round trip to a server nearby.
func encodeMeta(m backend.Meta) string {
	if m == (backend.Meta{}) {
		return ""
	}
	traceparent, since := m.Traceparent, m.Since
	m.Traceparent, m.Since = "", time.Time{}
	known := lastMeta.Load()
	if known == nil || known.meta != m {
		text, _ := json.Marshal(m) // strings and a number
		known = &encodedMeta{m, string(text)}
		lastMeta.Store(known)
	}
	if traceparent == "" && since.IsZero() {
		return known.text
	}
	b := make([]byte, 0, len(known.text)+len(traceparent)+64) // with names, quotes and a time
	b = append(b, known.text[:len(known.text)-1]...)
	if traceparent != "" {
		b = appendString(append(comma(b), `"traceparent":`...), traceparent)
	}
	if text, err := since.AppendText(make([]byte, 0, 40)); err == nil && !since.IsZero() { // it has no digits for some years
		b = append(append(append(comma(b), `"since":"`...), text...), '"')
	}
	return string(append(b, '}'))
}

// comma ends a member of an object, if there is one.
func comma(b []byte) []byte {
	if len(b) > len("{") {
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

type encodedMeta struct {
	meta backend.Meta
	text string
}

// decodeMeta returns what it can read: Meta decides nothing, so a damaged one is no error.
func decodeMeta(text string) backend.Meta {
	var m backend.Meta
	if text == "" || json.Unmarshal([]byte(text), &m) != nil {
		return backend.Meta{}
	}
	return m
}
