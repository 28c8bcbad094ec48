// Package etcdd runs an etcd for the benchmark.
package etcdd

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/holdfast-go/holdfast/internal/etcdbin"
)

// A Server is an etcd of our own, of one member. It does not wait for the disk, so that libraries are compared and not disks.
type Server struct {
	Addr string

	cmd *exec.Cmd
	dir string
}

// Start runs etcd on free ports of the loopback address, and returns when it answers.
func Start() (*Server, error) {
	path, err := etcdbin.Path("etcd")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "holdfast-bench-etcd-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	peer, err := free()
	if err == nil {
		s.Addr, err = free()
	}
	if err != nil {
		return nil, err
	}
	s.cmd = exec.Command(path, "--data-dir", filepath.Join(dir, "data"), "--log-level", "error", "--unsafe-no-fsync",
		"--listen-client-urls", "http://"+s.Addr, "--advertise-client-urls", "http://"+s.Addr,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "default=http://"+peer)
	s.cmd.SysProcAttr = dieWithParent
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.await(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// PID is the id of its process.
func (s *Server) PID() int { return s.cmd.Process.Pid }

// Client returns a client that logs nothing.
func (s *Server) Client() (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: []string{s.Addr}, Logger: zap.NewNop()})
}

func (s *Server) await() error {
	c, err := s.Client()
	if err != nil {
		return err
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	for {
		if _, err = c.Get(ctx, "ready"); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("etcd: %w", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// Stop ends it and removes its data.
func (s *Server) Stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it was killed
	_ = os.RemoveAll(s.dir)
}

func free() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
