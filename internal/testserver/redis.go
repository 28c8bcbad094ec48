package testserver

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	startLimit   = 20 * time.Second // for a server to answer; the machine may be busy
	commandLimit = 10 * time.Second // for a command of Do
	attempts     = 5                // at finding a port that nobody takes first
)

// A Server is one redis-server process (or sentinel) on 127.0.0.1. Its methods may be called
// concurrently; those that fail the test must be called from the test's goroutine.
type Server struct {
	// TLS has the certificates of a server started WithTLS, and is nil otherwise.
	TLS *TLS

	tb     testing.TB
	cfg    config
	log    logFile
	shared bool

	mu   sync.Mutex // serialises Kill and Restart; guards proc
	proc *process
}

// Redis starts a redis-server that keeps nothing on disk. It is up when Redis returns, and killed
// when the test ends.
func Redis(t testing.TB, opts ...Option) *Server {
	t.Helper()
	cfg := newConfig(opts)
	cfg.dir = t.TempDir()
	return run(t, cfg)
}

// Redises starts n independent servers, as a quorum needs them.
func Redises(t testing.TB, n int, opts ...Option) []*Server {
	t.Helper()
	servers := make([]*Server, n)
	each := newConfig(opts).each
	for i := range servers {
		own := opts
		if each != nil {
			own = append(slices.Clone(opts), each())
		}
		servers[i] = Redis(t, own...)
	}
	return servers
}

func newConfig(opts []Option) config {
	var cfg config
	for _, o := range opts {
		o(&cfg)
	}
	return cfg
}

// run launches a server for the length of the test.
func run(t testing.TB, cfg config) *Server {
	t.Helper()
	log, err := openLog(filepath.Join(cfg.dir, "server.log"))
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	s, err := launch(t, cfg, log)
	if err != nil {
		_ = log.file.Close()
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(func() {
		s.current().kill()
		s.printIfFailed(t)
		_ = log.file.Close()
	})
	return s
}

// launch starts a server and waits until it answers. A port that was not asked for is tried again
// if somebody was faster.
func launch(t testing.TB, cfg config, log logFile) (*Server, error) {
	s := &Server{tb: t, cfg: cfg, log: log}
	if cfg.tls {
		var err error
		if s.TLS, err = newTLS(cfg.dir); err != nil {
			return nil, err
		}
	}
	var err error
	for range attempts {
		if s.cfg.port = cfg.port; cfg.port == 0 {
			if s.cfg.port, err = freePort(); err != nil {
				return nil, err
			}
		}
		if err = s.start(); err == nil {
			return s, nil
		}
		if cfg.port != 0 || !strings.Contains(log.read(), "Address already in use") {
			break
		}
	}
	return nil, fmt.Errorf("%w\n%s", err, tail(log.read()))
}

// start makes one attempt, and leaves no process behind if it fails.
func (s *Server) start() error {
	program := cmp.Or(s.cfg.program, redisServer())
	cmd := exec.CommandContext(context.Background(), program, s.args()...)
	cmd.Env = append(os.Environ(), s.cfg.env...)
	proc, err := startCommand(dieWithParent(), s.log.file, cmd)
	if err != nil {
		return err
	}
	if err := poll(proc.dead, startLimit, func() error { return s.answers(proc) }); err != nil {
		proc.kill()
		return fmt.Errorf("%s on port %d: %w", program, s.cfg.port, err)
	}
	s.proc = proc
	return nil
}

// answers returns nil when the process itself serves: on a port lost to a race, somebody else's
// server would answer.
func (s *Server) answers(proc *process) error {
	if _, err := s.Do("PING"); err != nil {
		return err
	}
	info, err := s.Do("INFO", "server")
	if err == nil && !strings.Contains(fmt.Sprint(info),
		fmt.Sprintf("\r\nprocess_id:%d\r\n", proc.pid())) {
		err = fmt.Errorf("port %d belongs to another server", s.cfg.port)
	}
	return err
}

func (s *Server) args() []string {
	if s.cfg.sentinel != "" {
		return []string{
			s.cfg.sentinel, "--sentinel", "--bind", "127.0.0.1", "--port",
			fmt.Sprint(s.cfg.port), "--dir", s.cfg.dir,
		}
	}
	args := []string{"--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", s.cfg.dir}
	if s.TLS == nil {
		args = append(args, "--port", fmt.Sprint(s.cfg.port))
	} else {
		args = append(args, s.TLS.serverArgs(s.cfg.port)...)
	}
	if s.cfg.password != "" {
		args = append(args, "--requirepass", s.cfg.password, "--masterauth", s.cfg.password)
	}
	return append(args, s.cfg.args...)
}

// Addr is the server's address, 127.0.0.1:port. It outlives Kill and Restart.
func (s *Server) Addr() string { return loopback(s.cfg.port) }

// Port is the server's port.
func (s *Server) Port() int { return s.cfg.port }

// PID is the id of the running process, or of the last one.
func (s *Server) PID() int { return s.current().pid() }

// URL is redis://127.0.0.1:port, or rediss:// with TLS, with the password if there is one. It does
// not name the CA.
func (s *Server) URL() string {
	scheme := "redis"
	if s.TLS != nil {
		scheme = "rediss"
	}
	return scheme + "://" + userinfo(s) + s.Addr()
}

// userinfo is what stands before the host in a URL, with its @, or nothing.
func userinfo(s *Server) string {
	if s.cfg.password == "" {
		return ""
	}
	return url.UserPassword("", s.cfg.password).String() + "@"
}

// Logs returns what the server printed, over all its restarts.
func (s *Server) Logs() string { return s.log.read() }

// Do sends one command on a connection of its own and returns the reply: string, int64, nil or
// []any. An error that the server answered is a [ReplyError]. It gives up after ten seconds.
func (s *Server) Do(args ...string) (any, error) {
	deadline := time.Now().Add(commandLimit)
	conn, err := s.dial(deadline)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	_ = conn.SetDeadline(deadline)
	r := respReader{br: bufio.NewReader(conn)}
	if s.cfg.password != "" {
		if _, err := ask(conn, &r, "AUTH", s.cfg.password); err != nil {
			return nil, err
		}
	}
	return ask(conn, &r, args...)
}

// Connect returns what is like Do on one connection, which is kept until the test ends: for a
// server that lets nobody in. It is not for concurrent use.
func (s *Server) Connect() (do func(args ...string) (any, error)) {
	s.tb.Helper()
	conn, err := s.dial(time.Now().Add(commandLimit))
	if err != nil {
		s.tb.Fatalf("testserver: %v", err)
	}
	s.tb.Cleanup(func() { _ = conn.Close() })
	r := respReader{br: bufio.NewReader(conn)}
	do = func(args ...string) (any, error) {
		_ = conn.SetDeadline(time.Now().Add(commandLimit))
		return ask(conn, &r, args...)
	}
	if s.cfg.password != "" {
		if _, err := do("AUTH", s.cfg.password); err != nil {
			s.tb.Fatalf("testserver: %v", err)
		}
	}
	return do
}

// MustDo is Do for a command that must succeed. It returns the reply as text.
func (s *Server) MustDo(args ...string) string {
	s.tb.Helper()
	reply, err := s.Do(args...)
	if err != nil {
		s.tb.Fatalf("testserver: %s: %v", strings.Join(args, " "), err)
	}
	return fmt.Sprint(reply)
}

func (s *Server) dial(deadline time.Time) (net.Conn, error) {
	d := net.Dialer{Deadline: deadline}
	if s.TLS != nil {
		return tls.DialWithDialer(&d, "tcp", s.Addr(), s.TLS.Config)
	}
	return d.Dial("tcp", s.Addr())
}

func ask(conn net.Conn, r *respReader, args ...string) (any, error) {
	if _, err := conn.Write(request(args)); err != nil {
		return nil, err
	}
	reply, _, err := r.next()
	if refusal, ok := reply.(ReplyError); ok {
		return nil, cmp.Or(err, error(refusal))
	}
	return reply, err
}

func (s *Server) current() *process {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.proc
}

func (s *Server) printIfFailed(t testing.TB) {
	if t.Failed() {
		t.Logf("server on port %d, pid %d, printed:\n%s", s.cfg.port, s.PID(), tail(s.log.read()))
	}
}

// tail is the last part of a log, as much as a test's output bears.
func tail(log string) string {
	const most = 16 << 10
	if len(log) > most {
		return "…" + log[len(log)-most:]
	}
	return log
}
