package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
)

// A PostgresServer is a PostgreSQL that outlives no test. Its methods are the test's to call, from
// its goroutine.
type PostgresServer struct {
	tb        testing.TB
	bin, data string
	args      []string
	as        *syscall.SysProcAttr
	log       logFile
	port      int
	proc      *process
}

// Postgres starts a PostgreSQL for the user postgres without a password, which is up when Postgres
// returns, and ended when the test ends. It writes nothing through to a disk, unless args, as
// "-c", "fsync=on", say so. Debian keeps the programs out of PATH, under /usr/lib/postgresql. They
// refuse to work for root: then they run as the user postgres, whom Debian's package makes.
func Postgres(t testing.TB, args ...string) *PostgresServer {
	t.Helper()
	bin, err := postgresPrograms()
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	dir := memoryDir(t)
	s := &PostgresServer{tb: t, bin: bin, data: filepath.Join(dir, "data"), args: args}
	if s.log, err = openLog(filepath.Join(dir, "postgres.log")); err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("postgres printed:\n%s", tail(s.log.read()))
		}
		_ = s.log.file.Close()
	})
	t.Cleanup(s.Kill)
	if err = s.initialize(dir); err == nil {
		for range attempts {
			if s.port, err = freePort(); err != nil {
				break
			}
			if err = s.launch(); err == nil {
				return s
			}
			s.Kill()
		}
	}
	t.Fatalf("testserver: %v\n%s", err, tail(s.log.read()))
	return nil
}

// URL names the database postgres. It outlives Kill and Restart.
func (s *PostgresServer) URL() string {
	return "postgres://postgres@" + s.Addr() + "/postgres?sslmode=disable"
}

// Addr is 127.0.0.1:port.
func (s *PostgresServer) Addr() string { return loopback(s.port) }

// Kill ends the server as a crash would: nothing is written that was not, and the next start
// recovers. It returns when the server is gone. Killing a dead one does nothing.
func (s *PostgresServer) Kill() {
	if s.proc != nil {
		s.proc.quit()
	}
}

// Restart starts the server again with its data, after Kill if it runs, and returns when it serves.
func (s *PostgresServer) Restart() {
	s.tb.Helper()
	s.Kill()
	if err := s.launch(); err != nil {
		s.tb.Fatalf("testserver: %v\n%s", err, tail(s.log.read()))
	}
}

func (s *PostgresServer) initialize(dir string) (err error) {
	if s.as, err = notRoot("postgres", dir); err != nil {
		return err
	}
	initdb := exec.CommandContext(s.tb.Context(), filepath.Join(s.bin, "initdb"),
		"-D", s.data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Stdout, initdb.Stderr, initdb.SysProcAttr, initdb.Dir = s.log.file, s.log.file, s.as, "/"
	if err := initdb.Run(); err != nil {
		return fmt.Errorf("initdb: %w", err)
	}
	return nil
}

// launch starts the server and waits until it serves.
func (s *PostgresServer) launch() (err error) {
	s.proc, err = startProcessAs(s.as, s.log.file, filepath.Join(s.bin, "postgres"),
		append([]string{
			"-D", s.data, "-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-c",
			"unix_socket_directories=", "-c", "fsync=off",
		}, s.args...)...)
	if err != nil {
		return err
	}
	return poll(s.proc.dead, startLimit, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), commandLimit)
		defer cancel()
		out, err := exec.CommandContext(ctx, filepath.Join(s.bin, "pg_isready"),
			"-h", "127.0.0.1", "-p", strconv.Itoa(s.port), "-U", "postgres").CombinedOutput()
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		return nil
	})
}

// postgresPrograms returns the directory of initdb and postgres, of the newest version that is
// there.
func postgresPrograms() (string, error) {
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil {
		return "", err
	}
	newest, version := "", 0
	for _, path := range found {
		dir := filepath.Dir(path)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil && v > version {
			newest, version = dir, v
		}
	}
	if newest != "" {
		return newest, nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", fmt.Errorf("postgresql is not installed, run make deps: %w", err)
	}
	if path, err = filepath.EvalSymlinks(path); err != nil {
		return "", err
	}
	return filepath.Dir(path), nil
}

// quit has PostgreSQL end at once, and tidy up: its processes and its shared memory outlive a
// SIGKILL.
func (p *process) quit() {
	if p.interrupt() == nil {
		_ = poll(nil, commandLimit, p.ended)
	}
	p.kill()
}

// ownedBy gives dir to a user and lets it be reached.
func ownedBy(dir string, uid, gid int) error {
	if err := os.Chown(dir, uid, gid); err != nil {
		return err
	}
	return os.Chmod(dir, 0o700)
}
