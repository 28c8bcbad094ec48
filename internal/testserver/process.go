package testserver

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// A process is one running server. It never outlives the test binary, see dieWithParent.
type process struct {
	cmd  *exec.Cmd
	dead chan struct{} // closed when the process has been reaped
}

// startProcess runs the program with its output appended to log. It says nothing about readiness.
func startProcess(log *os.File, program string, args ...string) (*process, error) {
	return startProcessAs(dieWithParent(), log, program, args...)
}

// startProcessAs is startProcess with attributes that contain those of dieWithParent.
func startProcessAs(attr *syscall.SysProcAttr, log *os.File, program string,
	args ...string,
) (*process, error) {
	return startCommand(attr, log, exec.Command(program, args...))
}

// startCommand is startProcessAs with a command whose output goes to log where it has no place yet.
func startCommand(attr *syscall.SysProcAttr, log *os.File, cmd *exec.Cmd) (*process, error) {
	if cmd.Err != nil {
		return nil, fmt.Errorf("%s is not installed, run make deps: %w", cmd.Path, cmd.Err)
	}
	if cmd.Stdout == nil && log != nil {
		cmd.Stdout = log // a file, so that exec needs no copying goroutine
	}
	if cmd.Stderr == nil && log != nil {
		cmd.Stderr = log
	}
	cmd.SysProcAttr = attr
	p := &process{cmd: cmd, dead: make(chan struct{})}
	started := make(chan error, 1)
	go p.keep(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// A Process is a program that a test starts beside its servers: it ends with the test, as they do.
type Process struct{ *process }

// Start starts a command, whose output goes to files or nowhere.
func Start(t testing.TB, cmd *exec.Cmd) Process {
	t.Helper()
	p, err := startCommand(dieWithParent(), nil, cmd)
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(p.kill)
	return Process{p}
}

// Kill ends the process with SIGKILL and returns when it is gone. It may be called twice.
func (p Process) Kill() { p.kill() }

// Stop freezes the process with SIGSTOP, which has taken effect when Stop returns.
func (p Process) Stop() error { return p.stop() }

// Cont lets a stopped process run on.
func (p Process) Cont() error { return p.cont() }

// Ended is closed when the process is gone. Then Err is why, nil if it ended well.
func (p Process) Ended() <-chan struct{} { return p.dead }

// Err is nil if the process has ended well. Call it once Ended is closed.
func (p Process) Err() error {
	if state := p.cmd.ProcessState; !state.Success() {
		return errors.New(state.String())
	}
	return nil
}

// keep starts the process, and stays on its thread until the process is dead: the parent-death
// signal is sent when the thread ends that forked, not when the program does.
func (p *process) keep(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	var err error
	favoured(func() { err = p.cmd.Start() })
	started <- err
	if err != nil {
		return
	}
	_ = p.cmd.Wait() // killed is the usual way to go
	close(p.dead)
}

// pid is the process's id. It stays valid after death.
func (p *process) pid() int { return p.cmd.Process.Pid }

// ended returns nil when the process has been reaped.
func (p *process) ended() error {
	select {
	case <-p.dead:
		return nil
	default:
		return errors.New("still running")
	}
}

// kill sends SIGKILL and returns when the process is reaped. It may be called twice.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only for a process that is dead
	<-p.dead
}

// poll asks ready again and again until it returns nil. It gives up with ready's last error when
// dead is closed (nil: never) or limit has passed.
func poll(dead <-chan struct{}, limit time.Duration, ready func() error) error {
	const pause = 3 * time.Millisecond
	deadline := time.Now().Add(limit)
	for {
		err := ready()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not ready after %v: %w", limit, err)
		}
		select {
		case <-dead:
			return fmt.Errorf("process ended: %w", err)
		case <-time.After(pause):
		}
	}
}

// A logFile collects what a server prints.
type logFile struct {
	file *os.File
	from int64 // where this test's part begins
}

// read returns the log from where this test's part begins.
func (l logFile) read() string {
	info, err := l.file.Stat()
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	b, err := io.ReadAll(io.NewSectionReader(l.file, l.from, info.Size()-l.from))
	if err != nil {
		return "(no log: " + err.Error() + ")"
	}
	return string(b)
}

// mark returns the same log, beginning at its present end.
func (l logFile) mark() logFile {
	if info, err := l.file.Stat(); err == nil {
		l.from = info.Size()
	}
	return l
}

// openLog opens a log at path for appending and reading.
func openLog(path string) (logFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	return logFile{file: f}, err
}
