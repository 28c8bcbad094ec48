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
	backendtest.Run(t, redistest.Harness(testserver.Redis(t), "rueidis"))
}
