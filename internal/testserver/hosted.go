package testserver

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
)

// Hosted calls run with what the functions of this package need of a test, where there is no test:
// in TestMain, for examples, and in a program. What run starts is stopped when Hosted returns. Its
// error is run's, or why a server could not be started.
func Hosted(run func(t testing.TB) error) (err error) {
	h := &host{}
	defer func() {
		for _, f := range slices.Backward(h.cleanups) {
			f()
		}
	}()
	defer func() {
		switch why := recover().(type) {
		case nil:
		case fatal:
			err = why.err
		default:
			panic(why)
		}
	}()
	return run(h)
}

// CanStartRedis returns nil if there is a redis-server to start.
func CanStartRedis() error {
	_, err := exec.LookPath(redisServer())
	return err
}

// Around wraps a test binary's *testing.M like [StopAfter]: start may start servers, which run
// until all tests are done. It is for examples, which have no test that could start one.
func Around(m interface{ Run() int }, start func(t testing.TB)) interface{ Run() int } {
	return around{m, start}
}

type around struct {
	m     interface{ Run() int }
	start func(t testing.TB)
}

func (a around) Run() (code int) {
	if err := Hosted(func(t testing.TB) error {
		a.start(t)
		code = a.m.Run()
		return nil
	}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return code
}

// A fatal is a Fatalf that ends run.
type fatal struct{ err error }

// A host is what this package needs of a test.
type host struct {
	testing.TB // nil: what is not here must not be called
	cleanups   []func()
}

func (h *host) Helper()                        {}
func (h *host) Failed() bool                   { return false }
func (h *host) Name() string                   { return "hosted" }
func (h *host) Cleanup(f func())               { h.cleanups = append(h.cleanups, f) }
func (h *host) Fatalf(format string, a ...any) { panic(fatal{fmt.Errorf(format, a...)}) }

func (h *host) Setenv(key, value string) {
	was, there := os.LookupEnv(key)
	if err := os.Setenv(key, value); err != nil {
		h.Fatalf("testserver: %w", err)
	}
	h.Cleanup(func() {
		if _ = os.Unsetenv(key); there {
			_ = os.Setenv(key, was)
		}
	})
}

func (h *host) TempDir() string {
	dir, err := os.MkdirTemp("", "testserver")
	if err != nil {
		h.Fatalf("testserver: %w", err)
	}
	h.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}
