//go:build unix

package main_test

import (
	"bufio"
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// What is wrong with a store is told apart: one that nobody finds, one that is up and serves
// nobody, and one with which TLS does not work out.
func TestWhatIsWrongWithAStore(t *testing.T) {
	t.Parallel()
	plain, secure := testserver.Redis(t), testserver.Redis(t, testserver.WithTLS())
	full, lonely, replica := testserver.Redis(t), testserver.Redis(t), testserver.Redis(t)
	full.MustDo("CONFIG", "SET", "maxmemory", "1")
	lonely.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	replica.MustDo("REPLICAOF", "127.0.0.1", "1")
	dead := testserver.Redis(t)
	dead.Kill()
	for _, c := range []struct {
		scheme string
		srv    *testserver.Server
		says   string
	}{
		{"", dead, "cannot reach redis at HOST: dial tcp"},
		{"", full, "redis at HOST is up, and does not serve: OOM"},
		{"", lonely, "redis at HOST is up, and does not serve: NOREPLICAS"},
		{"", replica, "redis at HOST is up, and does not serve: "},
		{"", secure, "redis at HOST closes the connection: "},
		{"s", plain, "cannot speak TLS with redis at HOST: "},
		{"s", secure, "redis at HOST has a certificate that cannot be trusted: "},
	} {
		for _, client := range []string{"redis", "rueidis"} {
			t.Run(client+c.scheme+" "+c.says, func(t *testing.T) {
				t.Parallel()
				o := holdfast(t, "run", "k", "--no-wait", "--backend",
					client+c.scheme+"://"+c.srv.Addr(), "--", "echo", "in").want(t, 77)
				if says := strings.ReplaceAll(c.says, "HOST",
					c.srv.Addr()); !strings.HasPrefix(o.err, "holdfast run: "+says) || o.out != "" {
					t.Errorf("says %s%s\nwant %s", o.out, o.err, says)
				}
			})
		}
	}
}

// Each hold of a leader has its own trouble: what the one before was lost by does not keep it from
// being told.
func TestLeaderSaysItOfEachHold(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	cmd := command(t, t.TempDir(), "leader", "k", "--ttl", "6s", "--backend", srv.URL(), "--", "sh",
		"-c", "exec 2>/dev/null; "+works)
	out, err1 := cmd.StdoutPipe()
	errs, err2 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	lines, begins := bufio.NewScanner(errs), bufio.NewReader(out)
	until := func(part string, unless string) {
		t.Helper()
		for lines.Scan() && !strings.Contains(lines.Text(), part) {
			if strings.Contains(lines.Text(), unless) {
				t.Fatalf("says %q before %q", lines.Text(), part)
			}
		}
	}
	begun := func() {
		t.Helper()
		for line := "told to end\n"; line == "told to end\n"; { // else it is a pid
			var err error
			if line, err = begins.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
	}
	const lost = "waiting to lead again"
	begun()
	for range 2 {
		srv.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
		until("the lock is not confirmed", lost)
		until(lost, "confirmed again")
		srv.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")
		begun()
	}
	_ = cmd.Process.Signal(syscall.SIGTERM)
	_, _ = io.Copy(io.Discard, io.MultiReader(begins, errs))
	if err := cmd.Wait(); statusOf(cmd) != 9 {
		t.Errorf("%v, want status 9", err)
	}
}

// A run tells when its lock begins not to be confirmed, why, and when it is again; and at the end
// why it was lost.
func TestRunSaysWhyTheLockIsNotConfirmed(t *testing.T) {
	t.Parallel()
	srv := testserver.Redis(t)
	cmd := command(t, t.TempDir(), "run", "k", "--ttl", "9s", "--backend", srv.URL(), "--", "sh",
		"-c", "exec 2>/dev/null; "+works)
	out, err1 := cmd.StdoutPipe()
	errs, err2 := cmd.StderrPipe()
	if err := errors.Join(err1, err2, cmd.Start()); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil { // it has the lock
		t.Fatal(err)
	}
	lines := bufio.NewScanner(errs)
	next := func(parts ...string) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("nothing more is said: %v; want %q", lines.Err(), parts)
		}
		for _, part := range parts {
			if !strings.Contains(lines.Text(), part) {
				t.Errorf("says %q, want %q", lines.Text(), part)
			}
		}
	}
	srv.MustDo("CONFIG", "SET", "min-replicas-to-write", "1")
	next("holdfast: k: the lock is not confirmed: redis at " + srv.Addr() +
		" is up, and does not serve: NOREPLICAS")
	srv.MustDo("CONFIG", "SET", "min-replicas-to-write", "0")
	next("holdfast: k: the lock is confirmed again")
	srv.Kill()
	next("holdfast: k: the lock is not confirmed: cannot reach redis at " + srv.Addr() + ": ")
	next("holdfast run: k: lock lost: ", "connection refused", "; the command was ended")
	if lines.Scan() {
		t.Errorf("and then %s", lines.Text())
	}
	if err := cmd.Wait(); statusOf(cmd) != 76 {
		t.Errorf("%v, want status 76", err)
	}
}
