package script

import (
	"encoding/json"
	"strconv"

	"github.com/holdfast-go/holdfast/backend"
)

// appendMeta appends m as JSON, and nothing for nothing. It is written by hand as each lock that
// asks the store does it, and package json allocates four times for it.
func appendMeta(b []byte, m *backend.Meta) []byte {
	from := len(b)
	b = appendMember(b, "service", m.Service)
	b = appendMember(b, "host", m.Host)
	if m.PID != 0 {
		b = strconv.AppendInt(append(b, `,"pid":`...), int64(m.PID), 10)
	}
	b = appendMember(b, "traceparent", m.Traceparent)
	if !m.Since.IsZero() {
		var text [40]byte
		// Some years have no digits.
		if since, err := m.Since.AppendText(text[:0]); err == nil {
			b = appendMember(b, "since", string(since))
		}
	}
	b = appendMember(b, "note", m.Note)
	b = appendMember(b, "waits", m.Waits)
	b = appendMember(b, "quorum", m.Quorum)
	if len(b) > from {
		b[from] = '{' // for the first comma
		b = append(b, '}')
	}
	return b
}

// appendMember appends a comma, a name and a string as JSON, and nothing for "".
func appendMember(b []byte, name, value string) []byte {
	if value == "" {
		return b
	}
	b = append(append(append(b, `,"`...), name...), `":`...)
	for i := range len(value) {
		if c := value[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			text, _ := json.Marshal(value)
			return append(b, text...)
		}
	}
	return append(append(append(b, '"'), value...), '"')
}

// decodeMeta returns what it can read: Meta decides nothing, so a damaged one is no error.
func decodeMeta(text string) backend.Meta {
	var m backend.Meta
	if text == "" || json.Unmarshal([]byte(text), &m) != nil {
		return backend.Meta{}
	}
	return m
}
