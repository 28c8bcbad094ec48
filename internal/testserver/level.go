package testserver

import (
	"os"
	"testing"
)

// What make test sets, so that it leaves out what only make test-all runs.
const (
	testsVar  = "HOLDFAST_TESTS"
	testsMain = "main"
)

// OnlyInAll ends the test here under make test and make check: make test-all runs the rest. It is
// for what make test need not show once more, such as another set-up of a suite that it runs, and
// for what takes long or needs a program that it does not install. A run says how many tests it has
// left out so (internal/repo/skips); go test by itself leaves out none. what is what would follow.
func OnlyInAll(t testing.TB, what string) {
	t.Helper()
	if os.Getenv(testsVar) == testsMain {
		t.Skip("left to make test-all: " + what)
	}
}
