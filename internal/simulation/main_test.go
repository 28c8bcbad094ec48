package simulation

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/chance"
)

func TestMain(m *testing.M) {
	chance.Use(jitter)
	goleak.VerifyTestMain(m)
}
