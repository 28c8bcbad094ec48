package testserver_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// TestServersOutliveTheThreadThatAskedForThem: the kernel's signal follows the thread that forked,
// and Go ends a thread whose goroutine ends while it is locked to it. A server that was forked
// there would be killed in the middle of its test.
func TestServersOutliveTheThreadThatAskedForThem(t *testing.T) {
	t.Parallel()
	var s *testserver.Server
	task := fmt.Sprintf("/proc/self/task/%d", onDyingThread(func() { s = testserver.Redis(t) }))
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(task); errors.Is(err, fs.ErrNotExist) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("the runtime kept the thread: the test shows nothing")
		}
	}
	s.MustDo("PING")
}

// onDyingThread calls fn on a thread that ends soon after, and returns the thread's id.
func onDyingThread(fn func()) int {
	thread := make(chan int)
	go func() {
		runtime.LockOSThread() // and not unlocked: the thread ends with the goroutine
		if syscall.Gettid() != os.Getpid() {
			fn()
			thread <- syscall.Gettid()
			return
		}
		// The main thread never ends. While it is locked here, another goroutine runs elsewhere.
		id := onDyingThread(fn)
		runtime.UnlockOSThread()
		thread <- id
	}()
	return <-thread
}
