package fence_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testserver.StopAfter(m)) }
