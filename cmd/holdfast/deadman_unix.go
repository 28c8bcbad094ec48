//go:build unix

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// A deadman kills a command in time if we cannot: it is a process that does nothing else, and that
// no terminal, shell or signal to our group reaches. It kills the command's process group before
// the lease ends, at the latest time that it was told, and at once when we have ended without
// disarming it.
//
// Safety: a command is never at work when its lease has ended, also if we are stopped or killed.
// Renewals end with us, and a lease ends no earlier than the deadline that we know of when we tell
// the deadman. That it kills nobody else: it is disarmed, and has ended, before the command is
// reaped, so until then the command's number is its own. If we are killed, somebody else reaps it,
// and the deadman is told of our end by the kernel as soon; all numbers would have to be used up in
// between.
//
// The number of a command is not known before it is started, and we may be stopped before we tell
// it. So until then the order is to kill us, with whom Linux kills the command
// (TestStoppedAtTheStart); also where starting it takes longer than the lease, which is renewed
// meanwhile. A first process of a container cannot be killed, nor stopped, from within.
//
// It is of no use if it is stopped or killed as well. Then Linux still kills the command, but not
// what that has started, when we are killed.
type deadman struct {
	process *os.Process
	to      *os.File
}

const deadmanName = "deadman"

func startDeadman() (*deadman, error) {
	path, err := ownPath()
	if err != nil {
		return nil, err
	}
	from, to, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = from.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		_ = to.Close()
		return nil, err
	}
	defer func() { _ = null.Close() }()
	process, err := os.StartProcess(path, []string{"holdfast", deadmanName}, &os.ProcAttr{
		Dir: "/", Env: []string{"GOMAXPROCS=1", "GOTRACEBACK=none"},
		Files: []*os.File{from, null, null}, // no pipe of ours, whose reader would wait for it
		Sys:   &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		_ = to.Close()
		return nil, err
	}
	return &deadman{process, to}, nil
}

// tell tells it to kill pid, which is as kill(2) has it, at a time by bootClock. It fails if the
// deadman is not there to hear it.
func (d *deadman) tell(pid int, at time.Duration) error {
	_ = d.to.SetWriteDeadline(time.Now().Add(time.Second / 10)) // as somebody may have stopped it
	_, err := fmt.Fprintln(d.to, pid, int64(at))
	return err
}

// disarm returns when it can kill nobody any more.
func (d *deadman) disarm() {
	_ = d.process.Kill() // which also ends one that is stopped
	_, _ = d.process.Wait()
	_ = d.to.Close()
}

func newDeadman() *cobra.Command {
	return &cobra.Command{
		Use:    deadmanName,
		Short:  `Kills the command of a "holdfast run" that is stopped or killed`,
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return watchOver(os.Stdin) },
	}
}

// watchOver is the deadman.
func watchOver(from *os.File) error {
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT)
	alarm, err := newAlarm()
	if err != nil {
		return err
	}
	type order struct {
		pid int
		at  int64
	}
	orders := make(chan order)
	go func() {
		defer close(orders)
		for lines := bufio.NewScanner(from); lines.Scan(); {
			var o order
			_, err := fmt.Sscan(lines.Text(), &o.pid, &o.at)
			if err == nil && (o.pid > 1 || o.pid < -1) { // the others are many processes
				orders <- o
			}
		}
	}()
	var last order
	for open := true; open; {
		var o order
		select {
		case o, open = <-orders:
			if open {
				last = o
				alarm.set(time.Duration(o.at)) // safeguard: run-deadman-time
			}
		case <-alarm.over:
			open = false
		}
	}
	if last.pid == 0 {
		return nil // there is nothing to kill yet
	}
	return syscall.Kill(last.pid, syscall.SIGKILL) // safeguard: run-deadman
}
