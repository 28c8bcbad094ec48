//go:build unix

package testserver

import "syscall"

// stop freezes the process with SIGSTOP. It has taken effect when stop returns.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p.pid())
}

// cont lets a stopped process run on.
func (p *process) cont() error { return p.cmd.Process.Signal(syscall.SIGCONT) }
