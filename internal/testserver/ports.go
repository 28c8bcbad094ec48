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

// ports is a cursor over the ports of this process, so that it gives one again only after all
// others.
var ports atomic.Uint32

func init() { ports.Store(rand.Uint32N(blockSize)) } // for those who have to share a block

// portBlock returns the first of the ports of this process, of which there are blockSize, and what
// keeps them its own: who listens there has the block, until it ends. Test binaries run side by
// side, and a port that one gives up for a moment, as Restart and Refuse do, must not be another's
// meanwhile.
var portBlock = sync.OnceValues(func() (first int, ours net.Listener) {
	const blocks = portCount / blockSize
	random := rand.IntN(blocks)
	for i := range blocks {
		first = lowestPort + (random+i)%blocks*blockSize
		if ours, err := net.Listen("tcp", loopback(first)); err == nil {
			return first, ours
		}
	}
	return first, nil // they are all taken: it is shared with another process
})

// nextPort returns a candidate. Whoever binds it decides whether it is free; on failure ask for the
// next.
func nextPort() int {
	first, _ := portBlock()
	return first + 1 + int(ports.Add(1)%(blockSize-1))
}

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
	return 0, fmt.Errorf("none of %d ports is free: %w", blockSize, last)
}

func bindable(port int) error {
	l, err := net.Listen("tcp", loopback(port))
	if err != nil {
		return err
	}
	return unlisten(l)
}

func loopback(port int) string { return "127.0.0.1:" + strconv.Itoa(port) }
