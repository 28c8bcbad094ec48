//go:build !linux

package server

import "syscall"

// DieWithParent ends a process also when the benchmark is killed.
var DieWithParent *syscall.SysProcAttr
