package redistest

import (
	"testing"

	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Conformance is a test: the suite of the contract on each set-up, through the backend of a plain
// scheme. Each has a server of its own, as the suite restarts it.
//
// covers: R20
func Conformance(t *testing.T, scheme string) {
	t.Parallel()
	for _, setUp := range []struct {
		name    string
		testAll string // why it is for make test-all; empty for what is not
		short   string // why it is not for -short
		on      func(t testing.TB, srv *testserver.Server, scheme string) backendtest.Harness
	}{
		{name: "plain", on: Harness},
		{"guarded", "the same suite behind the guard", "the same rules behind the guard", Guarded},
		// For a user who may do what the package's documentation says, and no more.
		{
			"least privileges", "the same suite with fewer permissions",
			"the same rules with fewer permissions", LeastPrivileges,
		},
		{name: "dialect", testAll: "the same suite in the string dialect", on: Dialect},
	} {
		t.Run(setUp.name, func(t *testing.T) {
			if setUp.testAll != "" {
				testserver.OnlyInAll(t, setUp.testAll)
			}
			if setUp.short != "" && testing.Short() {
				t.Skip(setUp.short)
			}
			t.Parallel()
			backendtest.Run(t, setUp.on(t, testserver.Redis(t), scheme))
		})
	}
}
