// Package redisd runs a redis-server for the benchmark and reads its counters.
package redisd

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A Server is a redis-server of our own: nobody else is on it, so its counters are about us.
type Server struct {
	Addr    string
	Version string

	cmd   *exec.Cmd
	admin *Conn
	dir   string
}

// Start runs a redis-server, without persistence, on a free port of the loopback address.
func Start() (*Server, error) {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	s := &Server{dir: dir}
	for range 5 { // the port may be taken between the look and the start
		if err = s.start(); err == nil {
			return s, nil
		}
		s.Stop()
	}
	_ = os.RemoveAll(dir)
	return nil, fmt.Errorf("redis-server (make deps installs it): %w", err)
}

func (s *Server) start() error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	s.Addr = l.Addr().String()
	_ = l.Close()
	_, port, _ := net.SplitHostPort(s.Addr)
	s.cmd = exec.Command("redis-server", "--bind", "127.0.0.1", "--port", port, "--save", "", "--appendonly", "no",
		"--dir", s.dir, "--maxclients", "10000", "--logfile", "")
	s.cmd.SysProcAttr = dieWithParent
	if err := s.cmd.Start(); err != nil {
		return err
	}
	return s.connect()
}

func (s *Server) connect() (err error) {
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
	s.Version = fields["redis_version"]
	if fields["process_id"] != strconv.Itoa(s.Pid()) {
		return fmt.Errorf("the server at %s is somebody else's", s.Addr)
	}
	return nil
}

// Pid is the server's process.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Suspend makes the server hang: connections stay, and nothing is answered.
func (s *Server) Suspend() error { return s.cmd.Process.Signal(syscall.SIGSTOP) }

// Continue ends that.
func (s *Server) Continue() error { return s.cmd.Process.Signal(syscall.SIGCONT) }

// Stop ends the server, by its pid.
func (s *Server) Stop() {
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
func (s *Server) Flush() error {
	_, err := s.admin.Do("FLUSHALL")
	return err
}

// A Count is what one command has cost.
type Count struct{ Calls, Usec float64 }

// Counters are what the server has counted since it was started.
type Counters struct {
	Commands map[string]Count // by name in lower case, commands inside of scripts too
	CPU      time.Duration
	Clients  int
	Memory   float64 // bytes
}

// Counters reads the counters. The reading itself is not in them.
func (s *Server) Counters() (Counters, error) {
	text, err := s.admin.Do("INFO", "everything")
	if err != nil {
		return Counters{}, err
	}
	fields := parse(text)
	c := Counters{Commands: map[string]Count{}, Memory: number(fields["used_memory"])}
	c.CPU = time.Duration((number(fields["used_cpu_user"]) + number(fields["used_cpu_sys"])) * 1e9)
	c.Clients = int(number(fields["connected_clients"])) - 1 // we are one
	for name, value := range fields {
		command, ok := strings.CutPrefix(name, "cmdstat_")
		if !ok || command == "info" || command == "flushall" {
			continue
		}
		var n Count
		for part := range strings.SplitSeq(value, ",") {
			switch k, v, _ := strings.Cut(part, "="); k {
			case "calls":
				n.Calls = number(v)
			case "usec":
				n.Usec = number(v)
			}
		}
		c.Commands[command] = n
	}
	return c, nil
}

// Since is what was counted after before.
func (c Counters) Since(before Counters) Counters {
	d := Counters{Commands: map[string]Count{}, CPU: c.CPU - before.CPU, Clients: c.Clients, Memory: c.Memory - before.Memory}
	for name, n := range c.Commands {
		b := before.Commands[name]
		if n.Calls > b.Calls {
			d.Commands[name] = Count{n.Calls - b.Calls, n.Usec - b.Usec}
		}
	}
	return d
}

// Total adds up the commands that are named, or all without names.
func (c Counters) Total(names ...string) (sum Count) {
	add := func(n Count) { sum.Calls, sum.Usec = sum.Calls+n.Calls, sum.Usec+n.Usec }
	for _, name := range names {
		add(c.Commands[name])
	}
	if len(names) == 0 {
		for _, n := range c.Commands {
			add(n)
		}
	}
	return sum
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
