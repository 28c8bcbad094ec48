package testserver

import (
	"errors"
	"net"
	"syscall"
)

func (p *process) stop() error      { return errors.ErrUnsupported }
func (p *process) cont() error      { return errors.ErrUnsupported }
func (p *process) interrupt() error { return errors.ErrUnsupported }

func notRoot(string, string) (*syscall.SysProcAttr, error) { return nil, nil }

func unlisten(l net.Listener) error { return l.Close() }
