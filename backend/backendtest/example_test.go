package backendtest_test

import (
	"net/url"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	_ "github.com/holdfast-go/holdfast/backend/membackend"
)

// A backend's own test: a client per call, of one store. The store of mem:// lives in this process,
// so that the rules may run in bubbles, each with a store of its own; a backend on a server leaves
// Bubble out and opens its server's URL.
func Example() {
	_ = func(t *testing.T) { // func TestConformance(t *testing.T)
		backendtest.Run(t, backendtest.Harness{
			Bubble: true,
			Open: func(t testing.TB) backend.Backend {
				b, err := backend.Open(t.Context(), "mem://"+url.PathEscape(t.Name()))
				if err != nil {
					t.Fatal(err)
				}
				return b
			},
		})
	}
}
