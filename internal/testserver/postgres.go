package testserver

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// Postgres starts a PostgreSQL that keeps nothing, and returns its URL, for the user postgres
// without a password. It is up when Postgres returns, and ended when the test ends. Debian keeps
// the programs out of PATH, under /usr/lib/postgresql. They refuse to work for root: then they run
// as the user postgres, whom Debian's package makes.
func Postgres(t testing.TB) (url string) {
	t.Helper()
	bin, err := postgresPrograms()
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	dir := memoryDir(t)
	log, err := openLog(filepath.Join(dir, "postgres.log"))
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("postgres printed:\n%s", tail(log.read()))
		}
		_ = log.file.Close()
	})
	port, err := startPostgres(t, bin, dir, log)
	if err != nil {
		t.Fatalf("testserver: %v\n%s", err, tail(log.read()))
	}
	return "postgres://postgres@" + loopback(port) + "/postgres?sslmode=disable"
}

func startPostgres(t testing.TB, bin, dir string, log logFile) (port int, err error) {
	as, err := notRoot("postgres", dir)
	if err != nil {
		return 0, err
	}
	data := filepath.Join(dir, "data")
	initdb := exec.CommandContext(t.Context(), filepath.Join(bin, "initdb"),
		"-D", data, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
	initdb.Stdout, initdb.Stderr, initdb.SysProcAttr, initdb.Dir = log.file, log.file, as, "/"
	if err := initdb.Run(); err != nil {
		return 0, fmt.Errorf("initdb: %w", err)
	}
	for range attempts {
		if port, err = freePort(); err != nil {
			return 0, err
		}
		var proc *process
		proc, err = startProcessAs(as, log.file, filepath.Join(bin, "postgres"), "-D", data, "-h", "127.0.0.1",
			"-p", strconv.Itoa(port), "-c", "unix_socket_directories=", "-c", "fsync=off")
		if err != nil {
			return 0, err
		}
		err = poll(proc.dead, startLimit, func() error {
			ctx, cancel := context.WithTimeout(t.Context(), commandLimit)
			defer cancel()
			out, err := exec.CommandContext(ctx, filepath.Join(bin, "pg_isready"),
				"-h", "127.0.0.1", "-p", strconv.Itoa(port), "-U", "postgres").CombinedOutput()
			if err != nil {
				return fmt.Errorf("%w: %s", err, out)
			}
			return nil
		})
		if err == nil {
			t.Cleanup(proc.quit)
			return port, nil
		}
		proc.kill()
	}
	return 0, err
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
