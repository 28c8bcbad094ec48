package fence_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Where the examples find their servers.
var redisAddr, etcdAddr string

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testserver.Around(m, func(t testing.TB) {
		redisAddr, etcdAddr = testserver.Redis(t).Addr(), testserver.Etcd(t).Addr()
	}))
}
