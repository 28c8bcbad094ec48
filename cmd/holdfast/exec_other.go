//go:build !unix

package main

import "os"

// terminate asks a command to end; here it ends it.
var terminate = os.Kill

// forwarded are the signals that are the command's to handle.
var forwarded = []os.Signal{os.Interrupt}

// A process is a command at work.
type process struct {
	process *os.Process
	ended   chan int
	stopped chan struct{} // never
}

func start(path string, argv, env []string, _ ...*os.File) (*process, error) {
	child, err := os.StartProcess(path, argv, &os.ProcAttr{Env: env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}})
	if err != nil {
		return nil, err
	}
	p := &process{process: child, ended: make(chan int, 1)}
	go func() {
		state, err := child.Wait()
		if err != nil {
			p.ended <- exitFailed
			return
		}
		p.ended <- state.ExitCode()
	}()
	return p, nil
}

// signal does nothing with an interrupt, which the console sends to the command itself.
func (p *process) signal(s os.Signal) {
	if s == os.Kill {
		p.kill()
	}
}

func (p *process) kill() { _ = p.process.Kill() }

func (p *process) pause() {}

func (p *process) resume() {}
