package testserver

import "time"

// LimitAwait changes how long Await waits. It is for a test that lets Await give up.
func (p *Proxy) LimitAwait(d time.Duration) { p.limit = d }

// BlockAddr is where this process listens, so that its ports are no other's.
func BlockAddr() string {
	first, _ := portBlock()
	return loopback(first)
}
