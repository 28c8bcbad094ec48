package etcdbackend

import (
	"encoding/json"
	"strconv"

	"github.com/holdfast-go/holdfast/backend"
)

// A record is an entry's value.
type record struct {
	Owner     string       `json:"owner"`
	Hold      string       `json:"hold,omitempty"` // of a re-entrant owner
	Reentrant bool         `json:"reentrant,omitempty"`
	Token     uint64       `json:"token,omitempty"` // if it is not the create revision's
	Held      bool         `json:"held,omitempty"`  // written by a claim that knew it held, with a lease for its TTL
	Lease     int64        `json:"lease,omitempty"` // length of the lease in seconds
	Meta      backend.Meta `json:"meta,omitzero"`
}

// encode is json.Marshal, but for what is in nearly every value: that is written without reflection.
func (b *Backend) encode(r record) ([]byte, error) {
	if r.Hold != "" || r.Reentrant || r.Token != 0 || !r.Held || !plain(r.Owner) {
		return json.Marshal(r)
	}
	meta, err := b.encodeMeta(r.Meta)
	if err != nil {
		return nil, err
	}
	value := make([]byte, 0, len(`{"owner":"","held":true,"lease":1234567890,"meta":}`)+len(r.Owner)+len(meta))
	value = append(append(value, `{"owner":"`...), r.Owner...)
	value = append(value, `","held":true`...)
	if r.Lease != 0 {
		value = strconv.AppendInt(append(value, `,"lease":`...), r.Lease, 10)
	}
	if meta != "" {
		value = append(append(value, `,"meta":`...), meta...)
	}
	return append(value, '}'), nil
}

// encodeMeta remembers its last result: most clients say the same of themselves in all claims. The zero Meta is left out.
func (b *Backend) encodeMeta(m backend.Meta) (string, error) {
	if m == (backend.Meta{}) {
		return "", nil
	}
	b.mu.Lock()
	text := b.metaText
	same := text != "" && b.meta == m
	b.mu.Unlock()
	if same {
		return text, nil
	}
	made, err := json.Marshal(m)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	b.meta, b.metaText = m, string(made)
	b.mu.Unlock()
	return string(made), nil
}

// plain reports whether JSON has s as it is.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
