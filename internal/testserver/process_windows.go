package testserver

import "errors"

func (p *process) stop() error { return errors.ErrUnsupported }
func (p *process) cont() error { return errors.ErrUnsupported }
