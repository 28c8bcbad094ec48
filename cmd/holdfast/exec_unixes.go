//go:build unix && !linux

package main

import "syscall"

// endWithParent does nothing here: the command outlives a holdfast that is killed.
func endWithParent(*syscall.SysProcAttr) {}
