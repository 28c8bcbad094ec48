package redistest

import (
	"fmt"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
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

func layout(t testing.TB) redisclaim.Layout {
	t.Helper()
	l, err := redisclaim.NewLayout("", 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Harness is for the conformance suite on srv, which the suite restarts, through the backend of a plain scheme.
func Harness(srv *testserver.Server, scheme string) backendtest.Harness {
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
	reply, err := srv.Do("KEYS", redisclaim.DefaultPrefix+"{"+prefix+"*")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range reply.([]any) { //nolint:errcheck // what KEYS returns; a panic fails the test as well
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
