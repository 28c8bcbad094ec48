package etcdd

import "syscall"

// dieWithParent ends the server also when the benchmark is killed.
var dieWithParent = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
