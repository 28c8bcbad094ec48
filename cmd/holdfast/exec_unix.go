//go:build unix

package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// terminate asks a command to end.
const terminate = syscall.SIGTERM

// A process is a command at work, in a process group of its own, so that what it has started is
// told to end, and killed, with it. The group of the shell, ours, keeps the terminal until the
// command wants it: see terminal_unix.go.
//
// All but await is for the goroutine that started it, which is locked to its thread.
type process struct {
	pid       int
	signals   chan os.Signal      // to us: the command's, or about the terminal; see heed
	stopped   chan syscall.Signal // the command stopped, by this one
	ended     chan ending         // once
	continued chan os.Signal      // we were
	paused    bool                // the command stopped, and was not continued by us
	deadman   *deadman
	release   func() // of the signals
}

// start starts a command, which inherits keep beside what we inherited, and ends at the time latest
// by bootClock if we are stopped before kills is called. If a signal has told us to end, it does
// not, and returns [context.Canceled].
func start(path string, argv, env []string, latest time.Duration,
	keep ...*os.File,
) (*process, error) {
	p := &process{
		signals: make(chan os.Signal, 8), stopped: make(chan syscall.Signal, 1),
		ended: make(chan ending, 1), continued: make(chan os.Signal, 1),
	}
	stop, ok := sent.forward(p.signals)
	if !ok {
		return nil, context.Canceled
	}
	for _, s := range append(jobControl, syscall.SIGUSR1, syscall.SIGUSR2) {
		signal.Notify(p.signals, s)
	}
	signal.Notify(p.continued, syscall.SIGCONT)
	p.release = func() {
		signal.Stop(p.signals)
		signal.Stop(p.continued)
		for _, s := range jobControl {
			byDefault(s)
		}
		stop()
	}
	var err error
	if p.deadman, err = startDeadman(); err != nil {
		p.release()
		return nil, exit(exitFailed,
			"cannot start the process that ends the command if holdfast is stopped: %w", err)
	}
	attr := &syscall.SysProcAttr{Setpgid: true}
	if endWithParent(attr) {
		// If the deadman is not there, kills is told so. safeguard: run-stopped-at-start
		_ = p.deadman.tell(os.Getpid(), latest)
	}
	child, err := startWith(keep, path, argv, &os.ProcAttr{
		Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr,
	})
	if err != nil {
		p.deadman.disarm()
		p.release()
		return nil, err
	}
	p.pid = child.Pid
	p.front()
	go p.await()
	return p, nil
}

// firstKept is above the numbers that shells let a user choose for a command's files.
const firstKept = 10

// startWith is [os.StartProcess] of a process that inherits keep, too, under numbers that nothing
// of what we inherited has: that is for the command.
func startWith(
	keep []*os.File, path string, argv []string, attr *os.ProcAttr,
) (*os.Process, error) {
	if len(keep) == 0 {
		return os.StartProcess(path, argv, attr)
	}
	// safeguard: run-inherits
	kept, err := unix.FcntlInt(keep[0].Fd(), unix.F_DUPFD, firstKept)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(kept) }()
	return startWith(keep[1:], path, argv, attr)
}

// await tells when the command stops and ends. It is over when the command is.
func (p *process) await() {
	for {
		by, end, err := awaitChange(p.pid)
		switch {
		case err != nil:
			p.ended <- ending{status: exitFailed}
			return
		case by == 0:
			p.ended <- end
			return
		}
		select {
		case p.stopped <- by:
		default:
		}
	}
}

// kills says when the command is to be killed if we cannot do it. It fails if nobody will.
func (p *process) kills(at time.Duration) error { return p.deadman.tell(-p.pid, at) }

// signal sends s to the command's process group. What asks it to end reaches it even if it is
// stopped.
func (p *process) signal(s os.Signal) {
	if s, ok := s.(syscall.Signal); ok {
		_ = syscall.Kill(-p.pid, s)
	}
	switch s {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		p.goOn() // safeguard: run-told-stopped
	}
}

func (p *process) goOn() {
	p.paused = false
	_ = syscall.Kill(-p.pid, syscall.SIGCONT)
}

// kill ends the command's process group.
func (p *process) kill() { _ = syscall.Kill(-p.pid, syscall.SIGKILL) }

// finish is for a command that has ended. It returns how we are to end if a signal ended it.
func (p *process) finish(end ending) (of death) {
	had := p.takeBack()
	if s := end.signal; s == syscall.SIGINT || s == syscall.SIGQUIT {
		of = death{of: s, group: had} // safeguard: run-group
	}
	// In this order: until it is reaped, its number is no other process's, which could be killed.
	p.deadman.disarm()
	_, _ = syscall.Wait4(p.pid, nil, syscall.WNOHANG, nil)
	p.release()
	return of
}

// killRest has what a command that has ended has left in its group end within a time, and kills it
// then.
//
// The number of a group that still has a member is not given to another. Between two looks at it,
// all numbers would have to be used up. Who has ended is a member until somebody has reaped it: in
// a container that we are the first process of, that is us.
func (p *process) killRest(within time.Duration) {
	late, look := time.NewTimer(within), time.NewTicker(10*time.Millisecond)
	defer late.Stop()
	defer look.Stop()
	for {
		for reaped := 1; reaped > 0; { // safeguard: run-reap
			reaped, _ = syscall.Wait4(-p.pid, nil, syscall.WNOHANG, nil)
		}
		if syscall.Kill(-p.pid, 0) != nil {
			return
		}
		select {
		case <-look.C:
		case <-late.C:
			p.kill()
			return
		}
	}
}
