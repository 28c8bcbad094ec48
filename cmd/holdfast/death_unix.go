//go:build unix

package main

import (
	"os"
	"syscall"
	"time"
)

// die ends the process by the signal, if there is one. It returns if it cannot: the first process
// of a container is not killed by its own signals.
func (d death) die() {
	if d.of == 0 {
		return
	}
	whom := os.Getpid()
	if d.group {
		whom = 0
	}
	// The command has left its core, if any.
	_ = syscall.Setrlimit(syscall.RLIMIT_CORE, &syscall.Rlimit{})
	if byDefault(d.of) && syscall.Kill(whom, d.of) == nil && os.Getpid() != 1 {
		time.Sleep(time.Second) // of which nothing is left as a rule
	}
}
