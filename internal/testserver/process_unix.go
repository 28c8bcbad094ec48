//go:build unix

package testserver

import (
	"net"
	"os"
	"os/user"
	"strconv"
	"syscall"
)

// stop freezes the process with SIGSTOP. It has taken effect when stop returns.
func (p *process) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		return err
	}
	return awaitStopped(p.pid())
}

// cont lets a stopped process run on.
func (p *process) cont() error { return p.cmd.Process.Signal(syscall.SIGCONT) }

// interrupt sends SIGQUIT.
func (p *process) interrupt() error { return p.cmd.Process.Signal(syscall.SIGQUIT) }

// notRoot returns how to start a process that does not work for root: as the named user, who is
// given dir, if this is root, and as it is otherwise.
func notRoot(name, dir string) (*syscall.SysProcAttr, error) {
	attr := dieWithParent()
	if os.Getuid() != 0 {
		return attr, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	if attr == nil {
		attr = &syscall.SysProcAttr{}
	}
	attr.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
	return attr, ownedBy(dir, int(uid), int(gid))
}

// unlisten ends a TCP listener, also for a child process that is being started just now: until its
// exec the child has the socket as well, and Close alone would leave it listening for that long.
func unlisten(l net.Listener) error {
	if raw, err := l.(*net.TCPListener).SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = syscall.Shutdown(int(fd), syscall.SHUT_RDWR) })
	}
	return l.Close()
}
