package main

import (
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What waitid tells of a child, from <asm-generic/siginfo.h>.
const (
	childExited  = 1
	childStopped = 5
)

// A childInfo is a siginfo of SIGCHLD.
type childInfo struct {
	signo, errno, code int32
	_                  [0]uintptr // a union follows, which holds pointers
	pid                int32
	uid                uint32
	status             int32
	_                  [112]byte // more than the kernel writes
}

// awaitChange waits until the child pid has stopped, by a signal, or ended, and leaves it unreaped.
// The first process of a container reaps what others have left meanwhile.
func awaitChange(pid int) (by syscall.Signal, _ ending, _ error) {
	kind, id := unix.P_PID, pid
	if os.Getpid() == 1 {
		kind, id = unix.P_ALL, 0
	}
	for {
		var info childInfo
		err := unix.Waitid(kind, id, (*unix.Siginfo)(unsafe.Pointer(&info)),
			unix.WEXITED|unix.WSTOPPED|unix.WNOWAIT, nil)
		switch {
		case err == unix.EINTR:
		case err != nil:
			return 0, ending{}, err
		case int(info.pid) != pid:
			_, _ = unix.Wait4(int(info.pid), nil, unix.WUNTRACED|unix.WNOHANG, nil)
		case info.code == childStopped:
			_ = unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOHANG, nil)
			return syscall.Signal(info.status), ending{}, nil
		case info.code == childExited:
			return 0, ending{status: int(info.status)}, nil
		default:
			s := syscall.Signal(info.status)
			return 0, ending{status: 128 + int(s), signal: s}, nil
		}
	}
}

// byDefault has the kernel do with s what it does by default, as before [signal.Notify], and
// reports whether it will. Go would ignore the signals that stop a process, and print its stacks at
// SIGQUIT.
func byDefault(s syscall.Signal) bool {
	signal.Ignore(s)      // or Go would not know that its handler is not there, at the next Notify
	var action [16]uint64 // SIG_DFL, no flags, an empty mask, on every architecture
	const size = 8        // of the mask, in bytes, but for MIPS
	_, _, errno := unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(s),
		uintptr(unsafe.Pointer(&action)), 0, size, 0, 0)
	return errno == 0
}

// withoutTTOU calls f while SIGTTOU is blocked, in our thread alone: it may be for others in our
// group too.
func (p *process) withoutTTOU(f func()) {
	var old unix.Sigset_t
	set := unix.Sigset_t{}
	set.Val[0] = 1 << (unix.SIGTTOU - 1)
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &set, &old)
	f()
	_ = unix.PthreadSigmask(unix.SIG_SETMASK, &old, nil)
}

// parentOf is the process that has started pid, or looks after it since.
func parentOf(pid int) (int, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	// Behind a name of any characters: state, parent.
	f := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	if len(f) < 2 {
		return 0, os.ErrInvalid
	}
	return strconv.Atoi(f[1])
}

// ownPath is this program, also if its file was replaced; but not everybody has /proc.
func ownPath() (string, error) {
	const self = "/proc/self/exe"
	if _, err := os.Lstat(self); err == nil {
		return self, nil
	}
	path, err := exec.LookPath(os.Args[0])
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// bootClock is a clock that all processes share and nobody sets, and that goes on while the machine
// is suspended.
func bootClock() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return time.Duration(now.Nano())
}

// An alarm tells that it is some time by bootClock, which Go's timers do not follow.
type alarm struct {
	fd   int
	over chan struct{}
}

func newAlarm() (*alarm, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_BOOTTIME, unix.TFD_CLOEXEC)
	if err != nil {
		return nil, err
	}
	a := &alarm{fd, make(chan struct{})}
	go func() {
		var times [8]byte
		for _, err := unix.Read(fd, times[:]); err == unix.EINTR; _, err = unix.Read(fd, times[:]) {
		}
		close(a.over)
	}()
	return a, nil
}

// set is not after a.over.
func (a *alarm) set(at time.Duration) {
	_ = unix.TimerfdSettime(a.fd, unix.TFD_TIMER_ABSTIME,
		&unix.ItimerSpec{Value: unix.NsecToTimespec(max(int64(at), 1))}, nil)
}
