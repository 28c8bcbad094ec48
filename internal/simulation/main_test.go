package simulation

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/internal/jitter/virtual"
)

func TestMain(m *testing.M) {
	jitter.Use(virtual.Draw)
	goleak.VerifyTestMain(m)
}
