package testserver

import (
	"syscall"
	"unsafe"
)

// dieWithParent has the kernel kill the child when the thread that forks it ends, even by SIGKILL.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// awaitStopped blocks until SIGSTOP has taken effect in every thread of the child, or the child is
// dead. Until then the child may still be running on another core. It waits for the stop only, so
// it never reaps.
func awaitStopped(pid int) error {
	const pPID, wStopped = 1, 2
	var info [128]byte // siginfo_t, not looked at
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), uintptr(unsafe.Pointer(&info)), wStopped, 0, 0)
		switch errno {
		case 0, syscall.ECHILD:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}
