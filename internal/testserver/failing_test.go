package testserver_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
)

// failing runs fn with a testing.TB that does not fail t, and returns what it failed with.
func failing(t *testing.T, fn func(t testing.TB)) string {
	t.Helper()
	r := &recordingTB{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			for i := range r.cleanups {
				r.cleanups[len(r.cleanups)-1-i]()
			}
		}()
		fn(r)
	}()
	<-done
	if !r.failed {
		t.Errorf("did not fail")
	}
	return r.text.String()
}

// recordingTB fails without failing the test that it stands for.
type recordingTB struct {
	testing.TB
	text     strings.Builder
	failed   bool
	cleanups []func()
}

func (r *recordingTB) Errorf(format string, args ...any) {
	r.failed = true
	fmt.Fprintf(&r.text, format+"\n", args...)
}

func (r *recordingTB) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recordingTB) Logf(format string, args ...any) {
	fmt.Fprintf(&r.text, format+"\n", args...)
}
func (r *recordingTB) Failed() bool      { return r.failed }
func (r *recordingTB) Cleanup(fn func()) { r.cleanups = append(r.cleanups, fn) }
