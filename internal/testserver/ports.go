package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
)

// Ports lie below 32768, where ephemeral ports begin on Linux, and leave room for a cluster bus
// port 10000 above.
const (
	lowestPort  = 12000
	portCount   = 10000
	busDistance = portCount
)

// ports is a cursor that begins at a random place, so that test binaries that run side by side
// seldom meet, and that gives a port again only after all others.
var ports atomic.Uint32

func init() { ports.Store(rand.Uint32N(portCount)) }

// nextPort returns a candidate. Whoever binds it decides whether it is free; on failure ask for the
// next.
func nextPort() int { return lowestPort + int(ports.Add(1)%portCount) }

// freePort returns a port that is free now, as is its cluster bus port.
func freePort() (int, error) {
	var last error
	for range portCount {
		port := nextPort()
		if last = bindable(port); last == nil {
			last = bindable(port + busDistance)
		}
		if last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port from %d on: %w", lowestPort, last)
}

func bindable(port int) error {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
