package redistest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Dial opens a client of the server behind url.
func Dial(t testing.TB, url string) backend.Backend {
	t.Helper()
	b, err := backend.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func layout(t testing.TB) script.Layout {
	t.Helper()
	l, err := script.NewLayout("", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Guarded is a Harness on srv with the guard on, for leases of any length, after the grace. The
// suite does not restart srv.
func Guarded(t testing.TB, srv *testserver.Server, scheme string) backendtest.Harness {
	t.Helper()
	Mark(t, srv, backend.MaxTTL, 2*backend.MaxTTL)
	h := Harness(t, srv, scheme)
	url := scheme + "://" + srv.Addr() + "?max_ttl=" + backend.MaxTTL.String()
	h.Open = func(t testing.TB) backend.Backend { return Dial(t, url) }
	h.Leftovers = func(t testing.TB, prefix string) []string { return held(t, srv, url, prefix) }
	h.Restart = nil
	return h
}

// Mark makes srv one that guarded clients with this longest TTL have known for that long.
func Mark(t testing.TB, srv *testserver.Server, longest, known time.Duration) {
	t.Helper()
	_, id, _ := strings.Cut(srv.MustDo("INFO", "replication"), "master_replid:")
	id, _, _ = strings.Cut(id, "\r")
	l := layout(t).Guarded(longest, 0)
	srv.MustDo("SET", l.MarkKey(),
		fmt.Sprintf("h2 %s %d %s new", id, time.Now().Add(-known).UnixMilli(), l.Rule()))
}

// Dialect is a Harness for the string dialect.
func Dialect(_ testing.TB, srv *testserver.Server, scheme string) backendtest.Harness {
	const prefix = "d:"
	url := scheme + "://" + srv.Addr() + "?dialect=string&prefix=" + prefix
	return backendtest.Harness{
		Open: func(t testing.TB) backend.Backend { return Dial(t, url) },
		Drop: func(_ testing.TB, key string) { srv.MustDo("DEL", prefix+key) },
		PutForeign: func(_ testing.TB, key string) func() bool {
			srv.MustDo("RPUSH", prefix+key, "a web shop's")
			return func() bool { return srv.MustDo("LLEN", prefix+key) == "1" }
		},
		Leftovers: func(t testing.TB, begins string) (names []string) {
			reply, err := srv.Do("KEYS", prefix+begins+"*")
			if err != nil {
				t.Fatal(err)
			}
			//nolint:errcheck // what KEYS returns; a panic fails the test as well
			for _, k := range reply.([]any) {
				if name := fmt.Sprint(k); !strings.HasSuffix(name, "foreign") &&
					!strings.HasSuffix(name, ":holdfast") {
					names = append(names, name)
				}
			}
			return names
		},
		Restart: func(testing.TB) { srv.Restart() },
	}
}

// Harness is for the conformance suite on srv, which the suite restarts, through the backend of a
// plain scheme.
func Harness(_ testing.TB, srv *testserver.Server, scheme string) backendtest.Harness {
	url := scheme + "://" + srv.Addr()
	return backendtest.Harness{
		Open: func(t testing.TB) backend.Backend { return Dial(t, url) },
		Drop: func(t testing.TB, key string) { srv.MustDo("DEL", layout(t).Key(key)) },
		PutForeign: func(t testing.TB, key string) func() bool {
			name := layout(t).Key(key)
			srv.MustDo("SET", name, "a session of some web shop")
			return func() bool { return srv.MustDo("GET", name) == "a session of some web shop" }
		},
		Leftovers: func(t testing.TB, prefix string) []string { return held(t, srv, url, prefix) },
		Restart:   func(testing.TB) { srv.Restart() },
	}
}

// held lists the Redis keys of locks that are held, whose names begin with prefix.
func held(t testing.TB, srv *testserver.Server, url, prefix string) (names []string) {
	t.Helper()
	b := Dial(t, url)
	defer func() { _ = b.Close() }()
	reply, err := srv.Do("KEYS", script.DefaultPrefix+"{"+prefix+"*")
	if err != nil {
		t.Fatal(err)
	}
	//nolint:errcheck // what KEYS returns; a panic fails the test as well
	for _, k := range reply.([]any) {
		full := fmt.Sprint(k)
		name, ok := layout(t).UserKey(full)
		if !ok || strings.HasSuffix(name, "foreign") {
			continue
		}
		if state, err := b.Inspect(t.Context(), name); err != nil || len(state.Holders) > 0 {
			names = append(names, full)
		}
	}
	return names
}
