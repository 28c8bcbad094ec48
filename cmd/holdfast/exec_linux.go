package main

import "syscall"

// endWithParent has the kernel kill the command when we end.
func endWithParent(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
