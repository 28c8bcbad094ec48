package fence_test

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Where the examples find their servers.
var redisAddr, etcdAddr string

func TestMain(m *testing.M) { goleak.VerifyTestMain(withServers{m}) }

// withServers runs servers for the examples, which have no test that could start one.
type withServers struct{ m *testing.M }

func (s withServers) Run() int {
	h := &host{}
	defer h.end()
	redisAddr, etcdAddr = testserver.Redis(h).Addr(), testserver.Etcd(h).Addr()
	return s.m.Run()
}

// A host is what testserver needs of a test.
type host struct {
	testing.TB // nil: what is not here must not be called
	cleanups   []func()
}

func (h *host) Helper()                        {}
func (h *host) Failed() bool                   { return false }
func (h *host) Cleanup(f func())               { h.cleanups = append(h.cleanups, f) }
func (h *host) Fatalf(format string, a ...any) { panic(fmt.Sprintf(format, a...)) }

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "fence")
	if err != nil {
		panic(err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (h *host) end() {
	for _, f := range slices.Backward(h.cleanups) {
		f()
	}
}
