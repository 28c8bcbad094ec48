package testserver

import (
	"os"
	"sync"
	"testing"
)

var shared struct {
	sync.Mutex // guards the start, so that one test starts and others wait
	server     *Server
}

// SharedRedis returns the one server that all tests of this binary share, started by the first that
// asks. Tests keep apart by key prefix, must not FLUSHALL, and cannot Kill, Restart or Stop it. It
// ends with the binary, or with m.Run under [StopAfter].
func SharedRedis(t testing.TB) *Server {
	t.Helper()
	shared.Lock()
	defer shared.Unlock()
	if shared.server == nil {
		s, err := launchShared(t)
		if err != nil {
			t.Fatalf("testserver: %v", err)
		}
		shared.server = s
	}
	// Each test has a view of its own, so that its failures are its own and print its own part of
	// the log.
	all := shared.server
	s := &Server{
		TLS: all.TLS, tb: t, cfg: all.cfg, log: all.log.mark(), shared: true,
		proc: all.current(),
	}
	t.Cleanup(func() { s.printIfFailed(t) })
	return s
}

// launchShared leaves nothing on disk even if the binary is killed: the log has no name, and the
// directory is used for nothing, as the server does not persist.
func launchShared(t testing.TB) (*Server, error) {
	dir, err := os.MkdirTemp("", "testserver")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	log, err := openLog(dir + "/server.log")
	if err != nil {
		return nil, err
	}
	s, err := launch(t, config{dir: os.TempDir()}, log)
	if err != nil {
		_ = log.file.Close()
	}
	return s, err
}

// StopAfter wraps a test binary's *testing.M: Run runs the tests, and then stops the shared server.
// It is made for goleak.VerifyTestMain, which looks for goroutines when Run has returned.
func StopAfter(m interface{ Run() int }) interface{ Run() int } { return stopper{m} }

type stopper struct{ m interface{ Run() int } }

func (s stopper) Run() int {
	defer func() {
		shared.Lock()
		defer shared.Unlock()
		if shared.server != nil {
			shared.server.current().kill()
			_ = shared.server.log.file.Close()
			shared.server = nil
		}
	}()
	return s.m.Run()
}
