package testserver

import (
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
)

// Ports lie below 32768, where ephemeral ports begin on Linux, and leave room for a cluster bus
// port 10000 above.
const (
	lowestPort  = 12000
	portCount   = 10000
	busDistance = portCount
	blockSize   = 500
)

var (
	// ports is a cursor over the ports of this process, so that it gives one again only after all
	// others.
	ports atomic.Uint32

	// block has the ports of this process for it; see firstPort.
	block net.Listener
)

// firstPort returns the first of the ports of this process, a block of blockSize. Test binaries run
// side by side, and a port that one gives up for a moment, as Restart and Refuse do, must not be
// another's meanwhile. Who listens on the port before the first has the block, until it ends.
var firstPort = sync.OnceValue(func() int {
	const blocks = portCount / blockSize
	random := rand.IntN(blocks)
	for i := range blocks {
		port := lowestPort + (random+i)%blocks*blockSize
		var err error
		if block, err = net.Listen("tcp", loopback(port)); err == nil {
			return port + 1
		}
	}
	return lowestPort + random*blockSize + 1 // they are all taken: it is shared with another process
})

// nextPort returns a candidate. Whoever binds it decides whether it is free; on failure ask for the
// next.
func nextPort() int { return firstPort() + int(ports.Add(1)%(blockSize-1)) }

// freePort returns a port that is free now, as is its cluster bus port.
func freePort() (int, error) {
	var last error
	for range blockSize {
		port := nextPort()
		if last = bindable(port); last == nil {
			last = bindable(port + busDistance)
		}
		if last == nil {
			return port, nil
		}
	}
	return 0, fmt.Errorf("no free port from %d on: %w", firstPort(), last)
}

func bindable(port int) error {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	return l.Close()
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
