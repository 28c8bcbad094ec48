package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/server"
)

// The CPUs: servers have one, and clients the other.
const (
	clientCPU = 0
	serverCPU = 1
)

// A fleet is the servers that run. Each is started when a cell needs it first.
type fleet struct {
	redis8 string // the path of a Redis that has SET IFEQ; "" if there is none
	pinned bool
	nodes  map[string][]*node // by kind and how many there are
}

// A node is a server, and the proxy that is in front of it if one was asked for.
type node struct {
	process interface {
		Pid() int
		Address() string
		Stop()
	}
	redis *server.Redis // nil if it is none
	delay *server.Delay
}

// get returns n servers of a kind. One that was killed is started anew.
func (f *fleet) get(kind string, n int) ([]*node, error) {
	id := fmt.Sprint(kind, n)
	if f.nodes[id] == nil {
		f.nodes[id] = make([]*node, n)
	}
	for i, have := range f.nodes[id] {
		if have != nil {
			continue
		}
		fresh, err := f.start(kind)
		if err != nil {
			return nil, err
		}
		if f.pinned {
			if err := pin.To(fresh.process.Pid(), serverCPU); err != nil {
				return nil, err
			}
		}
		f.nodes[id][i] = fresh
	}
	return f.nodes[id], nil
}

func (f *fleet) start(kind string) (*node, error) {
	if kind == etcd {
		s, err := server.StartEtcd()
		return &node{process: s}, err
	}
	path := redis7Path()
	if kind == redis8 {
		path = f.redis8
	}
	s, err := server.StartRedis(path)
	return &node{process: s, redis: s}, err
}

// redis7Path is the server that the tests use, too.
func redis7Path() string {
	if path := os.Getenv("HOLDFAST_REDIS_SERVER"); path != "" {
		return path
	}
	return "redis-server"
}

// unpackRedis8 returns the path of a Redis that has SET IFEQ.
func unpackRedis8(root string) (string, error) {
	cmd := exec.CommandContext(context.Background(), filepath.Join(root, ".ci", "redis-versions"),
		"redis8")
	cmd.Stderr = os.Stderr
	path, err := cmd.Output()
	return strings.TrimSpace(string(path)), err
}

// stop ends all of them.
func (f *fleet) stop() {
	for _, nodes := range f.nodes {
		for _, n := range nodes {
			if n != nil {
				n.stop()
			}
		}
	}
}

// cpu is what the servers that run have used since they were started.
func (f *fleet) cpu() (sum time.Duration) {
	for _, nodes := range f.nodes {
		for _, n := range nodes {
			if n != nil {
				sum += pin.Of(n.process.Pid())
			}
		}
	}
	return sum
}

func (n *node) stop() {
	if n.delay != nil {
		n.delay.Close()
	}
	n.process.Stop()
}

// addr is where clients connect.
func (n *node) addr(roundTrip time.Duration) (string, error) {
	if roundTrip == 0 {
		return n.process.Address(), nil
	}
	if n.delay == nil {
		d, err := server.NewDelay(n.process.Address(), roundTrip)
		if err != nil {
			return "", err
		}
		n.delay = d
	}
	return n.delay.Addr, nil
}

func addrs(nodes []*node, roundTrip time.Duration) (string, error) {
	var all []string
	for _, n := range nodes {
		addr, err := n.addr(roundTrip)
		if err != nil {
			return "", err
		}
		all = append(all, addr)
	}
	return strings.Join(all, ","), nil
}

func (n *node) signal(s syscall.Signal) error { return syscall.Kill(n.process.Pid(), s) }

// strike makes the fault, and returns what undoes it. A killed server is started again for the
// next cell.
func strike(f fault, nodes []*node) (heal func() error, err error) {
	last := nodes[len(nodes)-1]
	switch f {
	case killed:
		nodes[len(nodes)-1] = nil
		last.stop()
	case hung:
		return func() error { return last.signal(syscall.SIGCONT) }, last.signal(syscall.SIGSTOP)
	case none, paused:
	}
	return func() error { return nil }, nil
}

// alive are the nodes that can be asked while the fault lasts.
func alive(f fault, nodes []*node) []*node {
	if f == killed || f == hung {
		return nodes[:len(nodes)-1]
	}
	return nodes
}

// counters add up those of several servers. Of etcd there is only the CPU.
func counters(nodes []*node) (sum server.Counters, err error) {
	sum.Calls = map[string]float64{}
	for _, n := range nodes {
		if n.redis == nil {
			sum.CPU += pin.Of(n.process.Pid())
			continue
		}
		c, err := n.redis.Counters()
		if err != nil {
			return sum, err
		}
		sum.CPU += c.CPU
		sum.Memory += c.Memory
		sum.Clients += c.Clients
		for name, calls := range c.Calls {
			sum.Calls[name] += calls
		}
	}
	return sum, nil
}

// flush drops all keys, so that what a client has left behind does not slow the next one down.
func flush(nodes []*node) error {
	var errs []error
	for _, n := range nodes {
		if n != nil && n.redis != nil {
			errs = append(errs, n.redis.Flush())
		}
	}
	return errors.Join(errs...)
}
