//go:build unix

package backendtest

import "syscall"

// freeze stops the process with SIGSTOP, and thaw lets it go on.
func (p *process) freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }
func (p *process) thaw() error   { return p.cmd.Process.Signal(syscall.SIGCONT) }
