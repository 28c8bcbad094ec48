//go:build unix

package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"
)

// A terminal sends what is typed to one process group of a session, the foreground one, and the
// signals of its keys as well; a shell chooses it. A process of another group that reads from it,
// or changes its settings, is stopped with all of its group, by SIGTTIN or SIGTTOU.
//
// The command has a group of its own, and ours may have others in it: a pager that we print to, a
// script that we are part of. So ours stays the foreground one, as the shell has it, and Ctrl-C
// reaches all of them; we pass it on. When the command is stopped because it wants the terminal, it
// becomes the foreground group, and goes on. When somebody in our group wants it then, the signal
// reaches us too, and we take it back. So nobody is stopped for longer than that, and whoever asks
// at last has it. Where there can be nobody else in our group, the command has the terminal from
// the start, for programs that ask whether they are in the foreground.
//
// Ctrl-Z stops a job to its last process, or the shell would not take it for stopped. So we stop
// when the command has, and by the same signal: the next one above us may be another holdfast,
// which has to know why.

// jobControl are the signals by which a terminal or a shell stops a job.
var jobControl = []syscall.Signal{syscall.SIGTSTP, syscall.SIGTTIN, syscall.SIGTTOU}

// onTerminal calls f with the terminal of our session, whatever our files are, if it has one.
func onTerminal(f func(tty int) error) error {
	tty, err := unix.Open("/dev/tty", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer func() { _ = unix.Close(tty) }()
	return f(tty)
}

// inFront reports whether group is the terminal's foreground group.
func inFront(group int) bool {
	return nil == onTerminal(func(tty int) error { return isFront(tty, group) })
}

func isFront(tty, group int) error {
	switch now, err := unix.IoctlGetInt(tty, unix.TIOCGPGRP); {
	case err != nil:
		return err
	case now != group:
		return unix.EPERM
	}
	return nil
}

// hand makes the group to the terminal's foreground group if from is that, and reports whether it
// did. A background group that does so is stopped by SIGTTOU, unless that is blocked.
func (p *process) hand(from, to int) (done bool) {
	p.withoutTTOU(func() {
		done = nil == onTerminal(func(tty int) error {
			if err := isFront(tty, from); err != nil {
				return err
			}
			return unix.IoctlSetPointerInt(tty, unix.TIOCSPGRP, to)
		})
	})
	return done
}

// alone reports whether we are a job of a shell that is not a script, with nobody at the other end
// of a pipe.
func alone() bool {
	if os.Getpid() != unix.Getpgrp() {
		return false
	}
	for fd := range 3 {
		if !term.IsTerminal(fd) {
			return false
		}
	}
	return true
}

// lend gives the terminal to a command that was stopped by s, if it was for the want of it and we
// have it to give, and lets it go on.
func (p *process) lend(s syscall.Signal) bool {
	wants := s == syscall.SIGTTIN || s == syscall.SIGTTOU
	if !wants || !p.hand(unix.Getpgrp(), p.pid) && !inFront(p.pid) { // safeguard: run-lend
		return false
	}
	p.goOn()
	return true
}

// takeBack makes our group the foreground one if the command's is, and reports whether it was.
func (p *process) takeBack() bool { return p.hand(p.pid, unix.Getpgrp()) }

// heed does what a signal to us asks for.
func (p *process) heed(s os.Signal) {
	switch s {
	case syscall.SIGTTIN, syscall.SIGTTOU: // to all of our group, as one of it wants the terminal
		if p.takeBack() || inFront(unix.Getpgrp()) { // safeguard: run-take-back
			_ = syscall.Kill(0, syscall.SIGCONT)
			return
		}
		fallthrough
	case syscall.SIGTSTP:
		if !lookedAfter() {
			return
		}
		_ = syscall.Kill(-p.pid, syscall.SIGTSTP)
		if p.paused { // so it does not stop once more
			select {
			case p.stopped <- syscall.SIGTSTP:
			default:
			}
		}
	default:
		p.signal(s)
	}
}

// suspend stops us, with all of our group, if the command has stopped by s and that is what it
// means, and returns true when we are continued.
//
// A group that no shell looks after is not stopped: nobody would continue it. Its command goes on,
// and is told before that it has no terminal if it waits for one, as the kernel does with such a
// group.
func (p *process) suspend(s syscall.Signal) bool {
	p.paused = true
	had := p.takeBack()
	if s == syscall.SIGSTOP && !had { // by somebody who means the command alone
		return false
	}
	if !lookedAfter() {
		if s != syscall.SIGTSTP && s != syscall.SIGSTOP {
			p.signal(syscall.SIGHUP)
		}
		p.goOn()
		return false
	}
	select {
	case <-p.continued: // earlier
	default:
	}
	if s == syscall.SIGSTOP { // by itself, as the "suspend" of a shell does
		s = syscall.SIGTSTP // which the others may handle
	}
	stops := byDefault(s)
	_ = syscall.Kill(0, s)
	if !stops {
		_ = syscall.Kill(os.Getpid(), syscall.SIGSTOP)
	}
	select {
	case <-p.continued:
	case end := <-p.ended: // or the shell was gone before we had stopped
		p.ended <- end
	}
	signal.Notify(p.signals, s)
	return true
}

// stopped stops us, with all of our group, as Ctrl-Z does where a program leaves that to the
// terminal, and returns when we are continued. It does nothing where nobody would continue us.
func stopped() {
	if !lookedAfter() {
		return
	}
	continued := make(chan os.Signal, 1)
	signal.Notify(continued, syscall.SIGCONT)
	defer signal.Stop(continued)
	_ = syscall.Kill(0, syscall.SIGTSTP)
	select {
	case <-continued:
	case <-time.After(time.Second): // or the signal is ignored
	}
}

// resume lets the command go on that had stopped by s.
func (p *process) resume(s syscall.Signal) {
	if p.lend(s) {
		return
	}
	p.front()
	p.goOn()
}

// front gives the command the terminal before it asks, if nobody else can.
func (p *process) front() {
	if alone() {
		p.hand(unix.Getpgrp(), p.pid)
	}
}

// lookedAfter reports whether there is a shell that would continue our group if it stopped: whether
// the nearest process above us that is not in our group is in our session.
func lookedAfter() bool {
	for pid := os.Getppid(); pid > 0; {
		group, err := unix.Getpgid(pid)
		if err != nil {
			return false
		}
		if group != unix.Getpgrp() {
			theirs, err := unix.Getsid(pid)
			ours, _ := unix.Getsid(0)
			return err == nil && theirs == ours
		}
		if pid, err = parentOf(pid); err != nil {
			return true // we cannot tell, and most are
		}
	}
	return false
}
