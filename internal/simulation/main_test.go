package simulation

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/jitter"
)

func TestMain(m *testing.M) {
	jitter.Use(draw)
	goleak.VerifyTestMain(m)
}
