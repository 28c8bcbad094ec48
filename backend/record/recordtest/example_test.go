package recordtest_test

import (
	"sync"
	"testing"

	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/backend/record/recordtest"
)

// A store's own test: a client per call, of one store. That of a real store opens its server's, and
// leaves Bubble out.
func Example() {
	_ = func(t *testing.T) { // func TestStore(t *testing.T)
		var mu sync.Mutex
		stores := map[string]*recordtest.Memory{} // one for each bubble
		recordtest.Run(t, recordtest.Harness{
			Bubble: true,
			Open: func(t testing.TB) (record.Store, record.Config) {
				mu.Lock()
				defer mu.Unlock()
				m := stores[t.Name()]
				if m == nil {
					m = recordtest.NewMemory()
					stores[t.Name()] = m
				}
				return record.ByVersion(m), m.Config()
			},
		})
	}
}
