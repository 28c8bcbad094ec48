package server

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

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// An Etcd is an etcd of our own, of one member. It does not wait for the disk, so that libraries
// are compared and not disks.
type Etcd struct {
	Addr string

	cmd *exec.Cmd
	dir string
}

// StartEtcd runs etcd on free ports of the loopback address, and returns when it answers.
func StartEtcd() (*Etcd, error) {
	path, err := testserver.EtcdProgram("etcd")
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "holdfast-bench-etcd-")
	if err != nil {
		return nil, err
	}
	s := &Etcd{dir: dir}
	peer, err := free()
	if err == nil {
		s.Addr, err = free()
	}
	if err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(context.Background(), path, "--data-dir",
		filepath.Join(dir, "data"), "--log-level", "error", "--unsafe-no-fsync",
		"--listen-client-urls", "http://"+s.Addr, "--advertise-client-urls", "http://"+s.Addr,
		"--listen-peer-urls", "http://"+peer, "--initial-advertise-peer-urls", "http://"+peer,
		"--initial-cluster", "default=http://"+peer)
	s.cmd.SysProcAttr = DieWithParent
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	if err := s.await(); err != nil {
		s.Stop()
		return nil, err
	}
	return s, nil
}

// Pid is the server's process.
func (s *Etcd) Pid() int { return s.cmd.Process.Pid }

// Address is where clients connect.
func (s *Etcd) Address() string { return s.Addr }

func (s *Etcd) await() error {
	c, err := clientv3.New(clientv3.Config{Endpoints: []string{s.Addr}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
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
func (s *Etcd) Stop() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // it was killed
	_ = os.RemoveAll(s.dir)
}

func free() (string, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
