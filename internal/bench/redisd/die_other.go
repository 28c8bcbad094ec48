//go:build !linux

package redisd

import "syscall"

var dieWithParent *syscall.SysProcAttr
