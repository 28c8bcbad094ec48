package config

import (
	"fmt"
	"io"
	"strconv"

	"github.com/holdfast-go/holdfast/backend"
)

// A URL is one that may hold secrets. However it is printed, logged or marshalled, user information
// and query are left out; [URL.Reveal] has them. The zero URL is none.
type URL struct {
	// A pointer, so that fmt has no more than an address to print where it cannot call methods: in
	// unexported fields.
	raw *string
}

// ParseURL returns rawURL as a URL, for programs that take one from a flag or a secret store and
// put it into [File.Backend]. What is not a URL of the form that [backend.Open] takes is an
// *[backend.InvalidError], which does not quote it. Whether the scheme is known is found out when
// it is opened.
func ParseURL(rawURL string) (URL, error) {
	if _, err := backend.ParseURL(rawURL); err != nil {
		return URL{}, err
	}
	return URL{&rawURL}, nil
}

// Reveal returns the whole URL, secrets included. It is for the client that connects, and for
// nothing that is kept.
func (u URL) Reveal() string {
	if u.raw == nil {
		return ""
	}
	return *u.raw
}

// IsZero reports whether u is no URL.
func (u URL) IsZero() bool { return u.raw == nil }

// String returns u as [backend.Redact] shows it; empty for the zero URL.
func (u URL) String() string {
	if u.IsZero() {
		return ""
	}
	return backend.Redact(*u.raw)
}

// GoString returns u redacted, as [URL.String] does.
func (u URL) GoString() string { return "config.URL(" + strconv.Quote(u.String()) + ")" }

// Format prints u redacted, whatever the verb: %#v as Go, %q quoted, every other as text. The verbs
// for numbers would print fields otherwise.
func (u URL) Format(s fmt.State, verb rune) {
	text := u.String()
	switch {
	case verb == 'v' && s.Flag('#'):
		text = u.GoString()
	case verb == 'q':
		text = strconv.Quote(text)
	}
	_, _ = io.WriteString(s, text)
}

// MarshalText returns u redacted, for JSON, YAML and XML alike. It does not fail.
func (u URL) MarshalText() ([]byte, error) { return []byte(u.String()), nil }
