package backend_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

var errOpening = errors.New("opening failed")

// opened notes the last URL that was opened under one of the schemes of this test.
var opened *url.URL

func init() {
	backend.Register("good", func(_ context.Context, u *url.URL) (backend.Backend, error) {
		opened = u
		return struct{ backend.Backend }{}, nil
	})
	backend.Register("bad", func(context.Context, *url.URL) (backend.Backend, error) {
		return nil, errOpening
	})
}

func TestOpen(t *testing.T) {
	for raw, want := range map[string]string{
		"good://":                         "|||",
		"good://name":                     "name|||",
		"good://h1:1,h2:2,h3":             "h1:1,h2:2,h3|||",
		"good://[::1]:6379/0":             "[::1]:6379|/0||",
		"good://u:p@h:1/db?a=b&c=d":       "h:1|/db|a=b&c=d|u:p",
		"good://u:p%40%2F%3Fq@h1,h2/m/0":  "h1,h2|/m/0||u:p%40%2F%3Fq",
		"good://:secret@h":                "h|||:secret",
		"good://h?node=redis://x:1&z=%2B": "h||node=redis://x:1&z=%2B|",
	} {
		if _, err := backend.Open(t.Context(), raw); err != nil {
			t.Errorf("Open(%q) = %v", raw, err)
			continue
		}
		user := ""
		if opened.User != nil {
			user = opened.User.String()
		}
		if got := fmt.Sprintf("%s|%s|%s|%s", opened.Host, opened.Path, opened.RawQuery,
			user); got != want {
			t.Errorf("Open(%q) gives %q, want %q", raw, got, want)
		}
	}
}

func TestOpenRefuses(t *testing.T) {
	for _, raw := range []string{
		"", "name", "good:", "good:/x", "://h", "nobody://h", "good://h/%zz", "good://h?a=%zz",
		"good://h?a;b", "good://a b",
		"good://h\n", "good://u:pass/word@h", "good://u:pa?ss@h", "good://u:pa#ss@h", "1good://h",
		"go od://h",
	} {
		_, err := backend.Open(t.Context(), raw)
		is(t, fmt.Sprintf("Open(%q)", raw), err, backend.ErrInvalid)
	}
	_, err := backend.Open(t.Context(), "nobody://u:secret@h")
	if text := fmt.Sprint(err); !strings.Contains(text, "known: bad, good") ||
		strings.Contains(text, "secret") {
		t.Errorf("Open of an unknown scheme = %v; want what is known", err)
	}
	_, err = backend.Open(t.Context(), "bad://u:secret@h/path?token=secret")
	is(t, "Open", err, errOpening)
	if strings.Contains(fmt.Sprint(err), "secret") ||
		!strings.Contains(fmt.Sprint(err), "bad://h/path") {
		t.Errorf("Open = %v; want the URL without its secrets", err)
	}
}

func TestRegisterRefuses(t *testing.T) {
	open := func(context.Context, *url.URL) (backend.Backend, error) { return nil, errOpening }
	for what, register := range map[string]func(){
		"twice": func() { backend.Register("good", open) },
		"nil":   func() { backend.Register("none", nil) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("Register %s did not panic", what)
				}
			}()
			register()
		}()
	}
}

func TestRedact(t *testing.T) {
	for raw, want := range map[string]string{
		"redis://u:p@h:1/0?password=p": "redis://h:1/0",
		"redis://h1,h2":                "redis://h1,h2",
		"redis://u:p@ss@h:1/0":         "redis://h:1/0",
		"redis://u:p/w@h":              "(malformed URL)",
		"redis://:hunter2":             "(malformed URL)", // a password without its @
		"redis://[::1]:1,h2:2":         "redis://[::1]:1,h2:2",
		"secret":                       "(malformed URL)",
		"redis://h/a%2Fb":              "redis://h/a%2Fb",
	} {
		if got := backend.Redact(raw); got != want {
			t.Errorf("Redact(%q) = %q, want %q", raw, got, want)
		}
	}
}

// Whatever is wrong with a URL, its secret is in no error and no log.
func FuzzNoSecretsInErrors(f *testing.F) {
	for _, s := range []string{
		"%s", "/%s", "%s@", "u:%s", "?%s", "a b%s", "\x00%s", "%zz%s", "#%s",
		"[%s", "@@%s",
	} {
		f.Add(s, "/")
	}
	f.Add("p@%s", "") // a password that has an @
	f.Fuzz(func(t *testing.T, before, after string) {
		const secret = "hunter2-xyzzy"
		raw := "bad://user:" + strings.ReplaceAll(before, "%s", "") + secret + after + "@h:1/p"
		_, err := backend.Open(t.Context(), raw)
		if strings.Contains(fmt.Sprint(err), secret) {
			t.Errorf("Open(%q) = %v", raw, err)
		}
		if strings.Contains(backend.Redact(raw), secret) {
			t.Errorf("Redact(%q) = %q", raw, backend.Redact(raw))
		}
	})
}
