package record_test

import (
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/backend/record/recordtest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memories returns a store for each test's name: clients of one name share it.
func memories() func(t testing.TB) *recordtest.Memory {
	var mu sync.Mutex
	all := map[string]*recordtest.Memory{}
	return func(t testing.TB) *recordtest.Memory {
		mu.Lock()
		defer mu.Unlock()
		if all[t.Name()] == nil {
			all[t.Name()] = recordtest.NewMemory()
		}
		return all[t.Name()]
	}
}

// TestConformance runs the whole suite on records that are compared and swapped.
func TestConformance(t *testing.T) {
	memory := memories()
	recordtest.Run(t, recordtest.Harness{
		Bubble: true,
		Open: func(t testing.TB) (record.Store, record.Config) {
			m := memory(t)
			return record.ByVersion(m), m.Config()
		},
	})
}

// TestConformancePolled runs it on a store that gives no notice of changes.
func TestConformancePolled(t *testing.T) {
	testserver.OnlyInAll(t, "the suite without notices")
	memory := memories()
	recordtest.Run(t, recordtest.Harness{
		Bubble: true, Brief: true,
		Open: func(t testing.TB) (record.Store, record.Config) {
			m := memory(t)
			cfg := m.Config()
			cfg.Watch = nil
			return record.ByVersion(m), cfg
		},
	})
}
