//go:build !unix

package main

import (
	"context"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

// terminate asks a command to end; here it ends it.
var terminate = os.Kill

// stopped does nothing: there is no Ctrl-Z here that stops a program.
func stopped() {}

// A process is a command at work.
type process struct {
	process *os.Process
	signals chan os.Signal
	ended   chan ending
	stopped chan syscall.Signal // never
	release func()
}

func start(path string, argv, env []string, _ time.Duration, _ ...*os.File) (*process, error) {
	p := &process{signals: make(chan os.Signal, 8), ended: make(chan ending, 1)}
	var ok bool
	if p.release, ok = sent.forward(p.signals); !ok {
		return nil, context.Canceled
	}
	files := []*os.File{os.Stdin, os.Stdout, os.Stderr}
	child, err := os.StartProcess(path, argv, &os.ProcAttr{Env: env, Files: files})
	if err != nil {
		p.release()
		return nil, err
	}
	p.process = child
	go func() {
		state, err := child.Wait()
		if err != nil {
			p.ended <- ending{status: exitFailed}
			return
		}
		p.ended <- ending{status: state.ExitCode()}
	}()
	return p, nil
}

// signal does nothing with an interrupt, which the console sends to the command itself.
func (p *process) signal(s os.Signal) {
	if s == os.Kill {
		p.kill()
	}
}

func (p *process) heed(s os.Signal) { p.signal(s) }

func (p *process) kill() { _ = p.process.Kill() }

func (p *process) finish(ending) death {
	p.release()
	return death{}
}

var began = time.Now()

func bootClock() time.Duration { return time.Since(began) }

func (p *process) kills(time.Duration) error { return nil }

func (p *process) killRest(time.Duration) {}

func (p *process) lend(syscall.Signal) bool { return false }

func (p *process) suspend(syscall.Signal) bool { return false }

func (p *process) resume(syscall.Signal) {}

func (death) die() {}

func newDeadman() *cobra.Command { return &cobra.Command{Use: "deadman", Hidden: true} }
