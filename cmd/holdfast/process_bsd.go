//go:build unix && !linux

package main

import (
	"errors"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// awaitChange waits until the child pid has stopped, by a signal, or ended. It reaps it then.
func awaitChange(pid int) (by syscall.Signal, _ ending, _ error) {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			return 0, ending{}, err
		case status.Stopped():
			return status.StopSignal(), ending{}, nil
		case status.Signaled():
			return 0, ending{status: 128 + int(status.Signal()), signal: status.Signal()}, nil
		default:
			return 0, ending{status: status.ExitStatus()}, nil
		}
	}
}

// byDefault reports whether the kernel does with s what it does by default, from now on: where the
// system is reached through a library, Go does not let us ask for that.
func byDefault(s syscall.Signal) bool {
	if s == syscall.SIGINT || s == syscall.SIGTERM || s == syscall.SIGHUP {
		signal.Reset(s)
		return true
	}
	signal.Ignore(s)
	return false
}

// withoutTTOU calls f while SIGTTOU is ignored. One that comes meanwhile is missed.
func (p *process) withoutTTOU(f func()) {
	signal.Ignore(syscall.SIGTTOU)
	f()
	signal.Notify(p.signals, syscall.SIGTTOU)
}

func parentOf(int) (int, error) { return 0, errors.ErrUnsupported }

func ownPath() (string, error) { return os.Executable() }

// bootClock is a clock that all processes share and nobody sets.
func bootClock() time.Duration {
	var now unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &now)
	return time.Duration(now.Nano())
}

// An alarm tells that it is some time by bootClock.
type alarm struct {
	timer *time.Timer
	over  chan struct{}
}

func newAlarm() (*alarm, error) {
	a := &alarm{over: make(chan struct{})}
	a.timer = time.AfterFunc(time.Duration(1<<63-1), func() { close(a.over) })
	return a, nil
}

// set is not after a.over.
func (a *alarm) set(at time.Duration) { a.timer.Reset(at - bootClock()) }
