//go:build !linux

package testserver

import "syscall"

// dieWithParent cannot be had here: a test binary that is SIGKILLed leaves its servers behind.
func dieWithParent() *syscall.SysProcAttr { return nil }

// awaitStopped returns at once: the stop takes effect soon.
func awaitStopped(int) error { return nil }

// favoured starts what it is to start.
func favoured(start func()) { start() }
