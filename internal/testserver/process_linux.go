package testserver

import (
	"syscall"
	"testing"
	"unsafe"
)

// dieWithParent has the kernel kill the child when the thread that forks it ends, even by SIGKILL.
func dieWithParent() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}

// favoured has what start starts go before the tests where both want to run, if we may: a server
// that waits for the CPU behind the tests of other packages shows nothing of what it is to show,
// and leases of a second end meanwhile. Figures are measured without. The goroutine has its thread
// to itself.
func favoured(start func()) {
	before, err := syscall.Getpriority(syscall.PRIO_PROCESS, 0)
	if err != nil || !testing.Testing() {
		start()
		return
	}
	const raw = 20 // the system call returns 20 less the nice value
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, raw-before-5)
	start()
	_ = syscall.Setpriority(syscall.PRIO_PROCESS, 0, raw-before)
}

// awaitStopped blocks until SIGSTOP has taken effect in every thread of the child, or the child is
// dead. Until then the child may still be running on another core. It waits for the stop only, so
// it never reaps.
func awaitStopped(pid int) error {
	const pPID, wStopped = 1, 2
	var info [128]byte // siginfo_t, not looked at
	for {
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid),
			uintptr(unsafe.Pointer(&info)), wStopped, 0, 0)
		switch errno {
		case 0, syscall.ECHILD:
			return nil
		case syscall.EINTR:
		default:
			return errno
		}
	}
}
