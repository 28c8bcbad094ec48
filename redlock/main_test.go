package redlock_test

import (
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/redlock"
)

func TestMain(m *testing.M) {
	backendtest.Main()
	goleak.VerifyTestMain(m)
}

// memURL names n stores in memory that belong to the test.
func memURL(t testing.TB, n int) string {
	var nodes []string
	for i := range n {
		nodes = append(nodes, "node="+
			url.QueryEscape(fmt.Sprintf("mem://%s.%d",
				strings.ReplaceAll(url.PathEscape(t.Name()), "/", "%2F"), i)))
	}
	return "redlock://?" + strings.Join(nodes, "&")
}

func dial(t testing.TB, url string) backend.Backend {
	t.Helper()
	b, err := backend.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// harness is for quorums of nodes in memory: a client has a connection of its own to each, as wrap
// makes it. Stores belong to a test, and go with it.
func harness(n int, wrap func(node, client int,
	b backend.Backend) backend.Backend,
) backendtest.Harness {
	var mu sync.Mutex
	stores, clients := map[string][]*membackend.Backend{}, 0
	of := func(t testing.TB) ([]*membackend.Backend, int) {
		mu.Lock()
		defer mu.Unlock()
		clients++
		if stores[t.Name()] == nil {
			for range n {
				stores[t.Name()] = append(stores[t.Name()], membackend.New())
			}
			t.Cleanup(func() { // the name is used again, in another bubble
				mu.Lock()
				defer mu.Unlock()
				delete(stores, t.Name())
			})
		}
		return stores[t.Name()], clients
	}
	return backendtest.Harness{Open: func(t testing.TB) backend.Backend {
		t.Helper()
		all, client := of(t)
		var nodes []backend.Backend
		for i, s := range all {
			var b backend.Backend = s.Client()
			if wrap != nil {
				b = wrap(i, client, b)
			}
			nodes = append(nodes, b)
		}
		r, err := redlock.New(nodes, redlock.Config{})
		if err != nil {
			t.Fatal(err)
		}
		return &owner{r, nodes}
	}}
}

// An owner closes the nodes with the quorum.
type owner struct {
	*redlock.Backend
	nodes []backend.Backend
}

func (o *owner) Close() error {
	err := o.Backend.Close()
	for _, n := range o.nodes {
		if e := n.Close(); err == nil {
			err = e
		}
	}
	return err
}
