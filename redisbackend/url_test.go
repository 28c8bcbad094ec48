package redisbackend

import (
	"context"
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
)

func TestParseURL(t *testing.T) {
	for raw, want := range map[string]target{
		"redis://h":         {Target: store.Target{Addrs: []string{"h:6379"}}},
		"redis://h:1/":      {Target: store.Target{Addrs: []string{"h:1"}}},
		"redis://h:1/3":     {Target: store.Target{Addrs: []string{"h:1"}, DB: 3}},
		"redis://[::1]":     {Target: store.Target{Addrs: []string{"[::1]:6379"}}},
		"redis://[::1]:7/0": {Target: store.Target{Addrs: []string{"[::1]:7"}}},
		"redis://:p%40ss%2F@h": {Target: store.Target{
			Addrs:    []string{"h:6379"},
			Password: "p@ss/",
		}},
		"redis://ann:pw@h": {Target: store.Target{
			Addrs: []string{"h:6379"},
			User:  "ann", Password: "pw",
		}},
		"redis://h?prefix=app:&pool_size": {}, // an empty number
		"redis://h?prefix=app%3A&pool_size=5&retention=2m&request_timeout=150ms" +
			"&allow_eviction=true": {poolSize: 5, Target: store.Target{
			Addrs: []string{"h:6379"},
			Config: store.Config{
				Prefix: "app:", Retention: 2 * time.Minute,
				RequestTimeout: 150 * time.Millisecond, AllowEviction: true,
			},
		}},
		"redis+sentinel://u:pw@h1,h2:5/mymaster": {Target: store.Target{
			Topology: store.Sentinel,
			Addrs:    []string{"h1:26379", "h2:5"}, User: "u", Password: "pw", Master: "mymaster",
		}},
		"redis+sentinel://h1/m/2": {Target: store.Target{
			Topology: store.Sentinel,
			Addrs:    []string{"h1:26379"}, Master: "m", DB: 2,
		}},
		"redis+sentinel://h/m?sentinel_password=s": {Target: store.Target{
			Topology: store.Sentinel,
			Addrs:    []string{"h:26379"}, Master: "m", SentinelPassword: "s",
		}},
		"redis+sentinel://h/m?sentinel_username=n&sentinel_password=s": {Target: store.Target{
			Topology: store.Sentinel, Addrs: []string{"h:26379"}, Master: "m", SentinelUser: "n",
			SentinelPassword: "s",
		}},
		"redis+unix:///run/redis.sock": {Target: store.Target{
			Addrs: []string{"/run/redis.sock"},
		}},
		"redis+unix://ann:pw@/run/r%20s.sock?db=3": {Target: store.Target{
			Addrs: []string{"/run/r s.sock"}, User: "ann", Password: "pw", DB: 3,
		}},
		"redis+unix:///run/redis.sock?db=x":      {},
		"redis+unix:///run/redis.sock?db=1&db=2": {},
		"redis+unix://run/redis.sock":            {},
		"redis+unix:///":                         {},
		"redis+unix:///run/":                     {},
		"redis://h?db=1":                         {},
		"redis+cluster://h1:1,h2": {Target: store.Target{
			Topology: store.Cluster,
			Addrs:    []string{"h1:1", "h2:6379"},
		}},
		"redis+cluster://h1:1,h2/0": {Target: store.Target{
			Topology: store.Cluster,
			Addrs:    []string{"h1:1", "h2:6379"},
		}},
	} {
		got, err := parse(t, raw)
		if want.Addrs == nil {
			if !errors.Is(err, backend.ErrInvalid) {
				t.Errorf("%s: %+v, %v; want ErrInvalid", raw, got, err)
			}
			continue
		}
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s:\n got %+v, %v\nwant %+v", raw, got, err, want)
		}
	}
}

// parse takes the URL through backend.Open, as that reads several hosts.
func parse(t *testing.T, raw string) (got target, err error) {
	t.Helper()
	scheme, rest, _ := strings.Cut(raw, "://")
	hosts := rest
	if i := strings.IndexAny(rest, "/?#"); i >= 0 {
		hosts, rest = rest[:i], rest[i:]
	} else {
		rest = ""
	}
	user := ""
	if i := strings.LastIndex(hosts, "@"); i >= 0 {
		user, hosts = hosts[:i+1], hosts[i+1:]
	}
	u, err := url.Parse(scheme + "://" + user + "h" + rest)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = hosts
	return parseURL(u)
}

func TestParseURLRefuses(t *testing.T) {
	for raw, why := range map[string]string{
		"redis://":                                 "empty host",
		"redis://:6379":                            "host:port",
		"redis://h:0":                              "host:port",
		"redis://h:70000":                          "host:port",
		"redis://h:x":                              "host:port",
		"redis://::1":                              "host:port",
		"redis://h1,h2":                            "redis+cluster://",
		"redis+cluster://h1,,h2":                   "empty host",
		"redis://h/x":                              "database",
		"redis://h/-1":                             "database",
		"redis://h/0/1":                            "database",
		"redis+cluster://h/1":                      "a cluster has only 0",
		"redis+sentinel://h":                       "/master",
		"redis+sentinel://h/":                      "/master",
		"redis+sentinel://h/m/":                    "/master",
		"redis+sentinel://h/m/x":                   "database",
		"redis://ann@h":                            "without a password",
		"redis://h#f":                              "fragment",
		"redis://h?poolsize=3":                     "not a known query parameter",
		"redis://h?prefix=a&prefix=b":              "more than once",
		"redis://h?pool_size=0":                    "not valid",
		"redis://h?pool_size=-1":                   "not valid",
		"redis://h?request_timeout=3":              "not valid",
		"redis://h?request_timeout=-3s":            "not valid",
		"redis://h?retention=0s":                   "not valid",
		"redis://h?allow_eviction=maybe":           "not valid",
		"redis://h?max_ttl=0s":                     "not valid",
		"redis+cluster://h?max_ttl=30s":            "cannot be had with a cluster",
		"redis://h?ca=x.pem":                       "needs a rediss scheme",
		"redis://h?sentinel_username=x":            "needs a sentinel scheme",
		"redis+sentinel://h/m?sentinel_username=x": "without a sentinel_password",
		"rediss://h?ca=/does/not/exist":            "cannot be read",
		"rediss://h?cert=/does/not/exist":          "go together",
		"rediss://h?cert=/no/c&key=/no/k":          "cannot be used",
	} {
		_, err := parse(t, raw)
		if !errors.Is(err, backend.ErrInvalid) || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v, want ErrInvalid with %q", raw, err, why)
		}
	}
	junk := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(junk, []byte("junk"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := parse(t, "rediss://h?ca="+junk); !errors.Is(err, backend.ErrInvalid) {
		t.Errorf("a CA without a certificate: %v", err)
	}
	// What New refuses, Open refuses too.
	for _, raw := range []string{"redis://h?prefix=a%7Bb", "redis://h?request_timeout=1us"} {
		if _, err := backend.Open(t.Context(), raw); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("%s: %v, want ErrInvalid", raw, err)
		}
	}
}

// TestUnknownParameter names those that there are, each of which is one.
func TestUnknownParameter(t *testing.T) {
	for raw, known := range map[string]string{
		"redis://h": "allow_eviction, dialect, max_ttl, pool_size, prefix, " +
			"replica_lag, replicas, request_timeout, retention",
		"redis+cluster://h": "allow_eviction, dialect, max_ttl, pool_size, prefix, " +
			"replica_lag, replicas, request_timeout, retention",
		"redis+unix:///s": "allow_eviction, db, dialect, max_ttl, pool_size, prefix, " +
			"replica_lag, replicas, request_timeout, retention",
		"rediss://h": "allow_eviction, ca, cert, dialect, key, max_ttl, pool_size, " +
			"prefix, replica_lag, replicas, request_timeout, retention, server_name",
		"redis+sentinel://h/m": "allow_eviction, dialect, max_ttl, pool_size, prefix, " +
			"replica_lag, replicas, request_timeout, retention, sentinel_password, " +
			"sentinel_username",
	} {
		_, err := parse(t, raw+"?nosuch=1")
		if want := "\"nosuch\": is not a known query parameter (known: " + known +
			")"; !errors.Is(err, backend.ErrInvalid) || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", raw, err, want)
		}
		for name := range strings.SplitSeq(known, ", ") {
			if _, err := parse(t, raw+"?"+name+"="); err != nil && !strings.Contains(err.Error(),
				"is not valid") && !strings.Contains(err.Error(), "is not a duration") &&
				!strings.Contains(err.Error(), "is not the number") {
				t.Errorf("%s of %s: %v", name, raw, err)
			}
		}
	}
}

func FuzzParseURL(f *testing.F) {
	f.Add("redis", "h:1,h2", "/0", "prefix=a")
	f.Add("rediss+sentinel", "[::1]", "/m/1", "server_name=x&pool_size=3")
	f.Add("redis+cluster", ",", "//", "x=%00")
	f.Fuzz(func(t *testing.T, scheme, host, path, query string) {
		if strings.Contains(query, "ca=") || strings.Contains(query, "cert=") ||
			strings.Contains(query, "key=") {
			return // reads files
		}
		u := &url.URL{
			Scheme: scheme, Host: host, Path: path, RawQuery: query,
			User: url.UserPassword("u", "s3cret-pw"),
		}
		got, err := parseURL(u)
		if err != nil && (!errors.Is(err, backend.ErrInvalid) ||
			strings.Contains(err.Error(), "s3cret-pw")) {
			t.Fatalf("%v: %v", u, err)
		}
		if err == nil && len(got.Addrs) == 0 {
			t.Fatalf("%v: no address", u)
		}
	})
}

// The password is in no error, whatever goes wrong on the way.
func TestNoPasswordInErrors(t *testing.T) {
	const secret = "s3cret-pw"
	if _, err := parse(t, "redis://:"+secret); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("a password without its @: %v", err)
	}
	for _, raw := range []string{
		"redis://:" + secret + "@h/x",
		"redis://:" + secret + "@h?nonsense=1",
		"redis://:" + secret + "@h:x",
		"redis://:" + secret + "@127.0.0.1:1",
		"redis://u:" + secret + "@127.0.0.1:1/0",
		"redis+cluster://u:" + secret + "@127.0.0.1:1,127.0.0.1:2",
		"redis+sentinel://u:" + secret + "@127.0.0.1:1/m?sentinel_password=" + secret,
		"redis+sentinel://h/m?sentinel_username=x&sentinel_passwort=" + secret,
		"rediss://:" + secret + "@127.0.0.1:1",
	} {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		b, err := backend.Open(ctx, raw)
		cancel()
		if err == nil {
			_ = b.Close()
			t.Errorf("%s was opened", raw)
		} else if strings.Contains(err.Error(), secret) {
			t.Errorf("password in %q", err)
		}
	}
}
