package backend

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync"
)

// An Opener opens the backend that a URL names. It returns an *[InvalidError] for a URL it cannot
// serve, unknown query parameters included, and says nothing secret in any error.
type Opener func(ctx context.Context, u *url.URL) (Backend, error)

var registry struct {
	sync.RWMutex
	openers map[string]Opener
}

// Register makes a URL scheme known to [Open]. Backends call it in an init function; it panics if
// the scheme is taken, as two packages that claim one scheme is a mistake in the program.
func Register(scheme string, open func(ctx context.Context, u *url.URL) (Backend, error)) {
	registry.Lock()
	defer registry.Unlock()
	if open == nil {
		panic("backend: Register with a nil opener for " + scheme)
	}
	if _, taken := registry.openers[scheme]; taken {
		panic("backend: scheme " + scheme + " is registered twice")
	}
	if registry.openers == nil {
		registry.openers = map[string]Opener{}
	}
	registry.openers[scheme] = open
}

// Open opens the backend that rawURL names, such as mem://, redis://host:6379/0 or
// etcd://h1:2379,h2:2379. Import the backend's package to make its schemes known, as with
// database/sql. ctx bounds the opening only. The store is asked once, so that wrong credentials, an
// unreachable server and an unsafe setting are errors here and not at the first lock.
//
// The caller closes the backend. Errors never contain the URL's password or query.
func Open(ctx context.Context, rawURL string) (Backend, error) {
	u, err := ParseURL(rawURL)
	if err != nil {
		return nil, fmt.Errorf("backend: open: %w", err)
	}
	registry.RLock()
	open, ok := registry.openers[u.Scheme]
	registry.RUnlock()
	if !ok {
		return nil, fmt.Errorf("backend: open: %w",
			invalid("url", u.Scheme+"://", unregistered(u.Scheme)))
	}
	if ctx == nil { // openers start goroutines, whose panic nobody could catch
		return nil, fmt.Errorf("backend: open %s: %w", Redact(rawURL), invalid("ctx", "", "is nil"))
	}
	b, err := open(ctx, u)
	if err != nil {
		return nil, fmt.Errorf("backend: open %s: %w", Redact(rawURL), err)
	}
	return b, nil
}

// homes are where this module's schemes live, by how they begin.
var homes = []struct{ scheme, pkg string }{
	{"mem", "backend/membackend"},
	{"file", "backend/filebackend"},
	{"postgres", "backend/pgbackend"},
	{"redis", "redisbackend"},
	{"rueidis", "rueidisbackend"},
	{"etcd", "etcdbackend"},
	{"redlock", "redlock"},
}

// unregistered says why a scheme is not known, and what to do.
func unregistered(scheme string) string {
	registry.RLock()
	known := slices.Sorted(maps.Keys(registry.openers))
	registry.RUnlock()
	list := strings.Join(known, ", ")
	if known == nil {
		list = "none"
	}
	for _, home := range homes {
		if strings.HasPrefix(scheme, home.scheme) && !slices.Contains(known, home.scheme) {
			return fmt.Sprintf("scheme is not registered (known: %s); import _ %q", list,
				"github.com/holdfast-go/holdfast/"+home.pkg)
		}
	}
	return fmt.Sprintf("scheme is not registered (known: %s)", list)
}

// ParseURL is url.Parse for backends' URLs, which may name several hosts, h1:1,h2:2 (url.Parse
// takes that for a bad port); u.Host then holds them all. The error is an *[InvalidError] and never
// quotes the input: url.Parse's own does, password included.
func ParseURL(rawURL string) (*url.URL, error) {
	scheme, rest, ok := strings.Cut(rawURL, "://")
	switch {
	case !ok:
		return nil, invalid("url", "", "is not a URL, such as redis://host:6379/0")
	case strings.ContainsAny(rawURL, "\r\n"): // safeguard: url-line-break
		return nil, invalid("url", "",
			"has a line break in it, as a secret that is read from a file may; remove it, or "+
				"percent-encode it")
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	userinfo, hosts := "", authority
	if authority != "" && strings.Contains(tail, "@") {
		// Very likely a password with a bare '/', '?' or '#': what looks like the host is a part of
		// the secret.
		return nil, invalid("url", "",
			"has an @ behind its host; percent-encode special characters in user and password")
	}
	if i := strings.LastIndex(authority, "@"); i >= 0 { // safeguard: password-with-at
		userinfo, hosts = authority[:i+1], authority[i+1:]
	}
	u, err := url.Parse(scheme + "://" + userinfo + "h" + tail)
	if err != nil {
		return nil, invalid("url", "",
			"cannot be parsed; percent-encode special characters in user, password and path")
	}
	if _, err := url.ParseQuery(u.RawQuery); err != nil {
		return nil, invalid("url", "", "has a malformed query")
	}
	if strings.ContainsAny(hosts, " \t\r\n\x00") {
		return nil, invalid("url", "", "has white space in its hosts")
	}
	// This is likely a password that has lost its @, and no host to be shown to anybody.
	if !numericPorts(hosts) {
		return nil, invalid("url", "", "has a port that is not a number")
	}
	u.Host = hosts
	return u, nil
}

// numericPorts reports whether what follows the last colon of each host, outside of the brackets of
// an IPv6 address, is a number or nothing.
func numericPorts(hosts string) bool {
	for host := range strings.SplitSeq(hosts, ",") {
		_, port, _ := strings.Cut(host[strings.LastIndex(host, "]")+1:], ":")
		if strings.Trim(port, "0123456789") != "" {
			return false
		}
	}
	return true
}

// Redact returns rawURL without what may be secret: user information and query. It is for logs,
// errors and spans, and never fails.
func Redact(rawURL string) string {
	u, err := ParseURL(rawURL)
	if err != nil {
		return "(malformed URL)"
	}
	return u.Scheme + "://" + u.Host + u.EscapedPath()
}
