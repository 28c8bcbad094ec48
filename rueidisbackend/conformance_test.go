package rueidisbackend_test

import (
	"testing"

	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/redistest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	_ "github.com/holdfast-go/holdfast/rueidisbackend"
)

// TestConformance runs the suite on a server of its own, as the suite restarts it.
func TestConformance(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, redistest.Harness(testserver.Redis(t), "rueidis"))
}

// TestConformanceGuarded runs it with the guard against servers that forget.
func TestConformanceGuarded(t *testing.T) {
	if testing.Short() {
		t.Skip("the same rules behind the guard")
	}
	t.Parallel()
	srv := testserver.Redis(t)
	backendtest.Run(t, redistest.Guarded(t, srv, "rueidis"))
}

// TestConformanceLeastPrivileges runs it for a user who may do what the package's documentation
// says, and no more.
//
// covers: R20
func TestConformanceLeastPrivileges(t *testing.T) {
	if testing.Short() {
		t.Skip("the same rules with fewer permissions")
	}
	t.Parallel()
	backendtest.Run(t, redistest.LeastPrivileges(t, testserver.Redis(t), "rueidis"))
}

// TestConformanceDialect runs what is there of the string dialect.
func TestConformanceDialect(t *testing.T) {
	t.Parallel()
	backendtest.Run(t, redistest.Dialect(testserver.Redis(t), "rueidis"))
}

func TestRestarts(t *testing.T) {
	t.Parallel()
	redistest.Restarts(t, "rueidis")
}

func TestIdentity(t *testing.T) {
	t.Parallel()
	redistest.SameServer(t, "rueidis")
}

func TestPermissions(t *testing.T) { redistest.EachPermission(t, "rueidis") }

func TestUnguarded(t *testing.T) { redistest.Unguarded(t, "rueidis") }

func TestReplicas(t *testing.T) {
	t.Parallel()
	redistest.Replicas(t, "rueidis")
}

func TestRefusals(t *testing.T) { redistest.Refusals(t, "rueidis") }
