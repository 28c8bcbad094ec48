// Package server runs the servers of the benchmark, reads their counters, and delays what is sent
// to them.
package server

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// A Redis is a redis-server of our own: nobody else is on it, so its counters are about us.
type Redis struct {
	Addr    string
	Version string

	path  string
	cmd   *exec.Cmd
	admin *Conn
	dir   string
}

// StartRedis runs the redis-server at path, without persistence, on a free port of the loopback
// address.
func StartRedis(path string) (*Redis, error) {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	s := &Redis{dir: dir, path: path}
	for range 5 { // the port may be taken between the look and the start
		if err = s.start(); err == nil {
			return s, nil
		}
		s.Stop()
	}
	return nil, fmt.Errorf("%s (make deps installs redis-server): %w", path, err)
}

func (s *Redis) start() error {
	var err error
	if s.Addr, err = free(); err != nil {
		return err
	}
	_, port, _ := net.SplitHostPort(s.Addr)
	s.cmd = exec.CommandContext(context.Background(), s.path, "--bind", "127.0.0.1", "--port", port,
		"--save", "", "--appendonly", "no",
		"--dir", s.dir, "--maxclients", "10000", "--logfile", "")
	s.cmd.SysProcAttr = DieWithParent
	if err := s.cmd.Start(); err != nil {
		return err
	}
	return s.connect()
}

func (s *Redis) connect() (err error) {
	for range 100 {
		if s.admin, err = Dial(s.Addr); err == nil {
			break
		}
		time.Sleep(20 * time.Millisecond)
	}
	if err != nil {
		return err
	}
	info, err := s.admin.Do("INFO", "server")
	if err != nil {
		return err
	}
	fields := parse(info)
	s.Version = "Redis " + fields["redis_version"]
	if v := fields["valkey_version"]; v != "" {
		s.Version = "Valkey " + v
	}
	if fields["process_id"] != strconv.Itoa(s.Pid()) {
		return fmt.Errorf("the server at %s is somebody else's", s.Addr)
	}
	return nil
}

// Pid is the server's process.
func (s *Redis) Pid() int { return s.cmd.Process.Pid }

// Address is where clients connect.
func (s *Redis) Address() string { return s.Addr }

// Stop ends the server, by its pid.
func (s *Redis) Stop() {
	if s.admin != nil {
		_ = s.admin.Close()
		s.admin = nil
	}
	if s.cmd != nil && s.cmd.Process != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
		s.cmd = nil
	}
	_ = os.RemoveAll(s.dir)
}

// Flush drops all keys, so that what a client has left behind does not slow the next one down.
func (s *Redis) Flush() error {
	_, err := s.admin.Do("FLUSHALL")
	return err
}

// Counters are what the server has counted since it was started.
type Counters struct {
	Calls   map[string]float64 // by command in lower case, those inside of scripts too
	CPU     time.Duration
	Clients int
	Memory  float64 // bytes
}

// Counters reads the counters. The reading itself is not in them.
func (s *Redis) Counters() (Counters, error) {
	text, err := s.admin.Do("INFO", "everything")
	if err != nil {
		return Counters{}, err
	}
	fields := parse(text)
	c := Counters{Calls: map[string]float64{}, Memory: number(fields["used_memory"])}
	c.CPU = time.Duration((number(fields["used_cpu_user"]) + number(fields["used_cpu_sys"])) * 1e9)
	c.Clients = int(number(fields["connected_clients"])) - 1 // we are one
	for name, value := range fields {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok || command == "info" || command == "flushall" {
			continue
		}
		calls, _, _ := strings.Cut(strings.TrimPrefix(value, "calls="), ",")
		c.Calls[command] = number(calls)
	}
	return c, nil
}

// Since is what was counted after before.
func (c Counters) Since(before Counters) Counters {
	d := Counters{
		Calls: map[string]float64{}, CPU: c.CPU - before.CPU,
		Clients: c.Clients - before.Clients, Memory: c.Memory - before.Memory,
	}
	for name, n := range c.Calls {
		d.Calls[name] = n - before.Calls[name]
	}
	return d
}

// Total adds up the commands that are named, or all without names.
func (c Counters) Total(names ...string) (sum float64) {
	for _, name := range names {
		sum += c.Calls[name]
	}
	if len(names) == 0 {
		for _, n := range c.Calls {
			sum += n
		}
	}
	return sum
}

// TTL is how long a key that is there lives, 0 if there is none.
func (s *Redis) TTL() (time.Duration, error) {
	key, err := s.admin.Do("RANDOMKEY")
	if err != nil || key == "" {
		return 0, err
	}
	ms, err := s.admin.Do("PTTL", key)
	return time.Duration(number(ms)) * time.Millisecond, err
}

func parse(info string) map[string]string {
	fields := map[string]string{}
	for line := range strings.Lines(info) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[name] = value
		}
	}
	return fields
}

func number(s string) float64 {
	f, _ := strconv.ParseFloat(s, 64)
	return f
}
