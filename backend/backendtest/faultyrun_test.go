package backendtest

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A Faulty backend without faults, or with slowness alone, is a backend like any other.
func TestFaultyIsABackend(t *testing.T) {
	for name, f := range map[string]Faults{"calm": {}, "slow": {Delay: 100 * time.Microsecond}} {
		t.Run(name, func(t *testing.T) {
			h := modelHarness(modelCaps, "")
			open := h.Open
			h.Open = func(t testing.TB) backend.Backend { return FaultyWith(open(t), 1, f) }
			s := suite{h: h, caps: modelCaps, name: t.Name()}
			chosen, _ := s.choose(slices.DeleteFunc(rules(true), func(r rule) bool {
				return r.slow
			}))
			s.runAll(t, chosen, runtime.GOMAXPROCS(0))
		})
	}
}
