package testserver_test

import (
	"bufio"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

func TestRedisAnswers(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	if got := s.MustDo("SET", "k", "v w\r\n"); got != "OK" {
		t.Errorf("SET = %q", got)
	}
	if got, err := s.Do("GET", "k"); got != "v w\r\n" || err != nil {
		t.Errorf("GET = %q, %v", got, err)
	}
	if got, err := s.Do("GET", "none"); got != nil || err != nil {
		t.Errorf("GET none = %v, %v; want nil", got, err)
	}
	if got, err := s.Do("EVAL", "return {1, 'a', {}}", "0"); fmt.Sprint(got) != "[1 a []]" ||
		err != nil {
		t.Errorf("EVAL = %v, %v", got, err)
	}
	var refusal testserver.ReplyError
	if _, err := s.Do("LPUSH", "k", "x"); !errors.As(err, &refusal) ||
		!strings.HasPrefix(refusal.Error(), "WRONGTYPE") {
		t.Errorf("LPUSH = %v", err)
	}
	if want := "redis://" + s.Addr(); s.URL() != want {
		t.Errorf("URL = %s, want %s", s.URL(), want)
	}
	if !strings.Contains(s.Logs(), "Ready to accept connections") {
		t.Errorf("Logs = %s", s.Logs())
	}
}

func TestRedisKillAndRestart(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.MustDo("SET", "k", "v")
	addr, pid := s.Addr(), s.PID()
	s.Kill()
	if alive(pid) {
		t.Error("after Kill the process is there")
	}
	if _, err := s.Do("PING"); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("after Kill PING = %v", err)
	}
	s.Kill()
	s.Restart()
	if s.Addr() != addr || s.PID() == pid {
		t.Errorf("restarted as %s, %d; was %s, %d", s.Addr(), s.PID(), addr, pid)
	}
	if got, err := s.Do("GET", "k"); got != nil || err != nil {
		t.Errorf("after Restart GET = %v, %v; want amnesia", got, err)
	}
}

func TestRedisKeepsItsDirectoryOverRestart(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.WithArgs("--appendonly", "yes", "--appendfsync", "always"))
	s.MustDo("SET", "k", "v")
	s.Restart()
	if got := s.MustDo("GET", "k"); got != "v" {
		t.Errorf("after Restart GET = %q", got)
	}
}

func TestRedisStopAndCont(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t)
	s.Stop()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.PID()))
	if err == nil && !strings.Contains(string(stat), ") T ") {
		t.Errorf("after Stop the process is %s", stat)
	}
	conn, err := net.Dial("tcp", s.Addr()) // the kernel accepts for it
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	fmt.Fprint(conn, "PING\r\n")
	_ = conn.SetReadDeadline(time.Now().Add(50 * time.Millisecond))
	if n, err := conn.Read(make([]byte, 16)); err == nil {
		t.Errorf("stopped server sent %d bytes", n)
	}
	s.Cont()
	_ = conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	if line, err := bufio.NewReader(conn).ReadString('\n'); line != "+PONG\r\n" {
		t.Errorf("after Cont it said %q, %v", line, err)
	}
	s.Stop()
	s.Kill() // a stopped process can be killed
}

func TestRedisOptions(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.WithPassword("p@ss/word"),
		testserver.WithArgs("--maxmemory", "7mb"))
	if got := s.MustDo("CONFIG", "GET", "maxmemory"); got != "[maxmemory 7340032]" {
		t.Errorf("maxmemory = %s", got)
	}
	if want := "redis://:p%40ss%2Fword@" + s.Addr(); s.URL() != want {
		t.Errorf("URL = %s, want %s", s.URL(), want)
	}
	again := testserver.Redis(t, testserver.WithPort(freeOf(t, s)))
	if again.Addr() != s.Addr() || !strings.HasPrefix(again.MustDo("INFO"), "# Server") {
		t.Errorf("WithPort gave %s", again.Addr())
	}
}

// freeOf kills a server and returns its port, which is free then.
func freeOf(t *testing.T, s *testserver.Server) int {
	t.Helper()
	s.Kill()
	return s.Port()
}

func TestRedisTLS(t *testing.T) {
	t.Parallel()
	s := testserver.Redis(t, testserver.WithTLS())
	if got := s.MustDo("PING"); got != "PONG" || !strings.HasPrefix(s.URL(), "rediss://") {
		t.Errorf("PING = %q at %s", got, s.URL())
	}
	plain, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	fmt.Fprint(plain, "PING\r\n")
	if line, _ := bufio.NewReader(plain).ReadString('\n'); strings.HasPrefix(line, "+PONG") {
		t.Error("a server WithTLS answered in the clear")
	}
	for _, file := range []string{s.TLS.CAFile, s.TLS.CertFile, s.TLS.KeyFile} {
		if _, err := os.Stat(file); err != nil {
			t.Error(err)
		}
	}
}

func TestRedises(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, s := range testserver.Redises(t, 3) {
		seen[s.Addr()] = true
		s.MustDo("SET", "k", "v")
	}
	if len(seen) != 3 {
		t.Errorf("addresses: %v", seen)
	}
}

func TestSharedRedisIsOneAndCannotBeBroken(t *testing.T) {
	t.Parallel()
	a, b := testserver.SharedRedis(t), testserver.SharedRedis(t)
	if a.PID() != b.PID() {
		t.Errorf("two shared servers: %d, %d", a.PID(), b.PID())
	}
	for name, break_ := range map[string]func(*testserver.Server){
		"Kill": (*testserver.Server).Kill, "Restart": (*testserver.Server).Restart,
		"Stop": (*testserver.Server).Stop,
	} {
		f := failing(t, func(t testing.TB) { break_(testserver.SharedRedis(t)) })
		if !strings.Contains(f, name+" on the shared server") {
			t.Errorf("%s failed with %q", name, f)
		}
	}
	a.MustDo("PING")
}

func TestFailuresAreFatalAndSayWhy(t *testing.T) {
	wrong := failing(t, func(t testing.TB) {
		testserver.Redis(t, testserver.WithArgs("--no-such-setting", "1"))
	})
	if !strings.Contains(wrong, "no-such-setting") {
		t.Errorf("a wrong setting failed with %q: the server's own words are missing", wrong)
	}
	taken := failing(t, func(tb testing.TB) {
		testserver.Redis(tb, testserver.WithPort(testserver.SharedRedis(t).Port()))
	})
	if !strings.Contains(taken, "in use") {
		t.Errorf("a taken port failed with %q", taken)
	}
	t.Setenv("HOLDFAST_REDIS_SERVER", "/no/such/server")
	wrongServer := failing(t, func(t testing.TB) { testserver.Redis(t) })
	if !strings.Contains(wrongServer, "/no/such/server") {
		t.Errorf("a wrong HOLDFAST_REDIS_SERVER failed with %q", wrongServer)
	}
	t.Setenv("HOLDFAST_REDIS_SERVER", "")
	t.Setenv("PATH", t.TempDir())
	missing := failing(t, func(t testing.TB) { testserver.Redis(t) })
	if !strings.Contains(missing, "redis-server") || !strings.Contains(missing, "make deps") {
		t.Errorf("a missing program failed with %q", missing)
	}
}

const orphanEnv = "HOLDFAST_TESTSERVER_ORPHAN"

// TestOrphan is the body of the binary that TestServersDieWithTheTestBinary kills.
func TestOrphan(t *testing.T) {
	if os.Getenv(orphanEnv) == "" {
		return
	}
	fmt.Printf("\nservers %d %d\n", testserver.Redis(t).PID(), testserver.SharedRedis(t).PID())
	select {}
}

func TestServersDieWithTheTestBinary(t *testing.T) {
	t.Parallel()
	cmd := exec.Command(os.Args[0], "-test.run=^TestOrphan$")
	cmd.Env = append(os.Environ(), orphanEnv+"=1", "TMPDIR="+t.TempDir())
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	pids := orphans(t, bufio.NewScanner(out))
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	for _, pid := range pids {
		awaitDeath(t, pid)
	}
}

// awaitDeath fails the test, and ends the process itself, if the process lives for long.
func awaitDeath(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(10 * time.Second); alive(pid); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Errorf("process %d outlived the test binary", pid)
			if p, err := os.FindProcess(pid); err == nil {
				_ = p.Kill()
			}
			return
		}
	}
}

func orphans(t *testing.T, lines *bufio.Scanner) []int {
	t.Helper()
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) == 3 && f[0] == "servers" {
			a, _ := strconv.Atoi(f[1])
			b, _ := strconv.Atoi(f[2])
			return []int{a, b}
		}
	}
	t.Fatal("the other process did not start its servers")
	return nil
}

// alive reports whether the process runs. One that nobody reaps yet is dead.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !strings.Contains(string(stat), ") Z ")
}
