//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// terminate asks a command to end.
const terminate = syscall.SIGTERM

// forwarded are the signals that are the command's to handle.
var forwarded = []os.Signal{
	syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1, syscall.SIGUSR2,
}

// A process is a command at work, in a process group of its own.
type process struct {
	pid      int
	terminal bool          // it has the terminal, and we had it
	ended    chan int      // its status, or 128 and the signal that ended it
	stopped  chan struct{} // each time it stops
}

// start starts a command. If we have the terminal, the command gets it, so that it can read from it
// and Ctrl-C is its own.
//
// keep is for the command to inherit.
func start(path string, argv, env []string, keep ...*os.File) (*process, error) {
	p := &process{ended: make(chan int, 1), stopped: make(chan struct{}, 1)}
	group, err := unix.IoctlGetInt(0, unix.TIOCGPGRP)
	p.terminal = err == nil && group == unix.Getpgrp()
	if p.terminal {
		signal.Ignore(syscall.SIGTTOU) // so that we can take it back
	}
	attr := &syscall.SysProcAttr{Setpgid: true, Foreground: p.terminal}
	endWithParent(attr)
	child, err := os.StartProcess(path, argv, &os.ProcAttr{Env: env, Files: append([]*os.File{os.Stdin, os.Stdout, os.Stderr}, keep...), Sys: attr})
	if err != nil {
		return nil, err
	}
	p.pid = child.Pid
	go p.await()
	return p, nil
}

// await tells when the command stops and ends. It is over when the command is.
func (p *process) await() {
	for {
		var status syscall.WaitStatus
		_, err := syscall.Wait4(p.pid, &status, syscall.WUNTRACED, nil)
		switch {
		case err == syscall.EINTR:
		case err != nil:
			p.end(exitFailed)
			return
		case status.Stopped():
			select {
			case p.stopped <- struct{}{}:
			default:
			}
		case status.Signaled():
			p.end(128 + int(status.Signal()))
			return
		case status.Exited():
			p.end(status.ExitStatus())
			return
		}
	}
}

func (p *process) end(status int) {
	if p.terminal {
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
	}
	p.ended <- status
}

// signal sends s to the command's process group.
func (p *process) signal(s os.Signal) {
	if s, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-p.pid, s)
		if s == terminate {
			_ = syscall.Kill(-p.pid, syscall.SIGCONT) // one that is stopped could not heed it
		}
	}
}

// kill ends the command's process group.
func (p *process) kill() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) }

// pause stops us too if a command stops that has the terminal, as the shell expects of a job whose
// user types Ctrl-Z. It returns when the shell continues us. Nothing was renewed meanwhile.
func (p *process) pause() {
	if p.terminal {
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, unix.Getpgrp())
		_ = syscall.Kill(0, syscall.SIGSTOP)
	}
}

// resume lets a command that pause has stopped us for go on.
func (p *process) resume() {
	if p.terminal {
		_ = unix.IoctlSetPointerInt(0, unix.TIOCSPGRP, p.pid)
		_ = syscall.Kill(-p.pid, syscall.SIGCONT)
	}
}
