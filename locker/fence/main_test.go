package fence_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Where the examples find their server.
var redisAddr string

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testserver.Around(m, func(t testing.TB) {
		redisAddr = testserver.Redis(t).Addr()
	}))
}
