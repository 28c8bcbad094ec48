//go:build !linux

package etcdd

import "syscall"

var dieWithParent *syscall.SysProcAttr
