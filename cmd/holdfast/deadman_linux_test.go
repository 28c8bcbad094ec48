package main

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

const stoppedAtStart = "stopped-at-start"

// The binary of the tests is also a holdfast that is stopped as soon as its command is started, and
// the deadman of that.
func init() {
	if len(os.Args) < 2 || os.Args[1] != deadmanName && os.Args[1] != stoppedAtStart {
		return
	}
	if os.Args[1] == stoppedAtStart {
		runtime.LockOSThread() // as exec does
		command := []string{"sh", "-c", "echo $$ >new; mv new begun; exec sleep 1000"}
		if _, err := start("/bin/sh", command, os.Environ(), bootClock()+time.Second); err != nil {
			panic(err)
		}
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	} else if err := watchOver(os.Stdin); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// A holdfast that is stopped before the deadman knows of its command does not keep that at work.
//
// covers: G6
func TestStoppedAtTheStart(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	holdfast := exec.CommandContext(t.Context(), self, stoppedAtStart)
	holdfast.Dir = t.TempDir()
	if err := holdfast.Start(); err != nil {
		t.Fatal(err)
	}
	over := time.AfterFunc(time.Minute, func() { _ = holdfast.Process.Kill() })
	var killed *exec.ExitError
	err = holdfast.Wait()
	if !over.Stop() {
		t.Fatal("it was not killed")
	}
	status, ok := syscall.WaitStatus(0), errors.As(err, &killed)
	if ok {
		status, ok = killed.Sys().(syscall.WaitStatus)
	}
	if !ok || status.Signal() != syscall.SIGKILL {
		t.Fatalf("it ended with %v, want that it was killed", err)
	}
	pid, err := os.ReadFile(filepath.Join(holdfast.Dir, "begun"))
	if err != nil {
		t.Fatal(err)
	}
	stat := "/proc/" + strings.TrimSpace(string(pid)) + "/stat"
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, err := os.ReadFile(stat)
		if err != nil || strings.Contains(string(text), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("its command is at work")
		}
	}
}
