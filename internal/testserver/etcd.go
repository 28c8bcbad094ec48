package testserver

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// An EtcdMember is one etcd process on 127.0.0.1. Its methods may be called concurrently; those
// that fail the test must be called from the test's goroutine.
type EtcdMember struct {
	// TLS has the certificates of a member started WithTLS, and is nil otherwise.
	TLS *TLS

	tb       testing.TB
	name     string
	cfg      config
	dir      string
	peerPort int
	log      logFile
	initial  string // --initial-cluster
	state    string // --initial-cluster-state

	users atomic.Bool  // it asks for users
	token atomic.Value // of root, when it last logged in; a string

	mu   sync.Mutex // serialises Kill and Restart; guards proc
	proc *process
}

// Etcd starts a cluster of one member, of the version in internal/etcdd. It is up when Etcd
// returns, and killed when the test ends. Its ticks are short, so that leases of a second are to be
// had.
func Etcd(t testing.TB, opts ...Option) *EtcdMember {
	t.Helper()
	return EtcdCluster(t, 1, opts...).Members[0]
}

// WithDebianEtcd runs the etcd in PATH, which Debian's package etcd-server puts there, and not our
// own.
func WithDebianEtcd() Option { return func(c *config) { c.program = "etcd" } }

// prepare finds the program, ports and certificates of a member that is not started yet.
func prepareEtcd(t testing.TB, name string, cfg config) *EtcdMember {
	t.Helper()
	m := &EtcdMember{tb: t, name: name, cfg: cfg, dir: memoryDir(t), state: "new"}
	var err error
	if m.cfg.program == "" {
		if m.cfg.program, err = EtcdProgram("etcd"); err != nil {
			t.Fatal(err)
		}
		// A killed process loses nothing by it.
		m.cfg.args = append([]string{"--unsafe-no-fsync"}, m.cfg.args...)
	}
	if m.cfg.port == 0 {
		m.cfg.port, err = freePort()
	}
	if err == nil {
		m.peerPort, err = freePort()
	}
	if err == nil && cfg.tls {
		m.TLS, err = newTLS(m.dir)
	}
	if err == nil {
		m.log, err = openLog(filepath.Join(m.dir, "etcd.log"))
	}
	if err != nil {
		t.Fatalf("testserver: %v", err)
	}
	t.Cleanup(func() {
		if proc := m.current(); proc != nil {
			proc.kill()
		}
		if t.Failed() {
			t.Logf("etcd %s on port %d printed:\n%s", m.name, m.cfg.port, tail(m.log.read()))
		}
		_ = m.log.file.Close()
	})
	return m
}

// memoryDir returns a directory in memory where the system has one, for data that is not to outlive
// the test: a member syncs each write, and a disk that others use may take longer than a lease for
// that.
func memoryDir(t testing.TB) string {
	const shared = "/dev/shm"
	if info, err := os.Stat(shared); err != nil || !info.IsDir() {
		return t.TempDir()
	}
	dir, err := os.MkdirTemp(shared, "holdfast-etcd-") //nolint:usetesting // t.TempDir is on a disk
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// launch starts the process, and does not wait until it answers.
func (m *EtcdMember) launch() error {
	proc, err := startProcess(m.log.file, m.cfg.program, m.args()...)
	if err == nil {
		m.proc = proc
	}
	return err
}

func (m *EtcdMember) args() []string {
	args := []string{
		"--name", m.name, "--data-dir", filepath.Join(m.dir, "data"), "--log-level", "error",
		"--logger", "zap",
		"--listen-client-urls", m.URL(), "--advertise-client-urls", m.URL(),
		"--listen-peer-urls", m.peerURL(), "--initial-advertise-peer-urls", m.peerURL(),
		"--initial-cluster", m.initial, "--initial-cluster-state", m.state,
		// the shortest lease is one and a half of it, rounded up
		"--heartbeat-interval", "50", "--election-timeout", "500",
	}
	if m.TLS != nil {
		// With a trusted CA it would demand client certificates.
		args = append(args, "--cert-file", m.TLS.serverCert, "--key-file", m.TLS.serverKey)
	}
	return append(args, m.cfg.args...)
}

// Addr is the member's address for clients, 127.0.0.1:port. It outlives Kill and Restart.
func (m *EtcdMember) Addr() string { return loopback(m.cfg.port) }

// URL is http://127.0.0.1:port, or https:// with TLS.
func (m *EtcdMember) URL() string {
	if m.TLS != nil {
		return "https://" + m.Addr()
	}
	return "http://" + m.Addr()
}

func (m *EtcdMember) peerURL() string { return "http://" + loopback(m.peerPort) }

// Post calls a method of etcd's HTTP gateway, such as /v3/maintenance/status, and decodes its
// answer, if into is not nil. With users it does so as root.
func (m *EtcdMember) Post(path string, request, into any) error {
	if !m.users.Load() {
		return m.post(path, request, into, "")
	}
	if token, ok := m.token.Load().(string); ok { // which serves without a majority, too
		if err := m.post(path, request, into, token); err == nil {
			return nil
		}
	}
	token, err := m.login()
	if err != nil {
		return err
	}
	return m.post(path, request, into, token)
}

// post is Post with a token, if that is not empty.
func (m *EtcdMember) post(path string, request, into any, token string) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	if m.TLS != nil {
		transport.TLSClientConfig = m.TLS.Config
	}
	client := &http.Client{Transport: transport, Timeout: 2 * time.Second}
	r, err := http.NewRequestWithContext(context.Background(), http.MethodPost, m.URL()+path,
		bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	if token != "" {
		r.Header.Set("Authorization", token)
	}
	reply, err := client.Do(r)
	if err != nil {
		return err
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		return err
	}
	if reply.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s", path, strings.TrimSpace(string(text)))
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(text, into)
}

// EtcdStatus is what a member says of itself. Numbers are texts, as in the gateway.
type EtcdStatus struct {
	Header struct {
		MemberID string `json:"member_id"`
		Revision string `json:"revision"`
	} `json:"header"`
	Version string `json:"version"`
	Leader  string `json:"leader"`
}

// Status asks the member. It answers from its own memory, also without a majority.
func (m *EtcdMember) Status() (s EtcdStatus, err error) {
	err = m.Post("/v3/maintenance/status", struct{}{}, &s)
	return s, err
}

// serves returns nil when the member takes requests, which needs a leader.
func (m *EtcdMember) serves() error {
	return m.Post("/v3/kv/range", map[string]string{"key": "AA=="}, nil)
}

// Kill ends the member with SIGKILL and returns when it is gone. Killing a dead member does
// nothing.
func (m *EtcdMember) Kill() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proc.kill()
}

// Start starts a killed member again with its data. It does not wait until it answers, which needs
// a majority.
func (m *EtcdMember) Start() {
	m.tb.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.proc.kill()
	if err := m.launch(); err != nil {
		m.tb.Fatalf("testserver: %v", err)
	}
}

// Restart starts the member again with its data, after Kill if it runs, and returns when it serves.
func (m *EtcdMember) Restart() {
	m.tb.Helper()
	m.Start()
	await(m.tb, "etcd member", m.serves)
}

// Stop freezes the member with SIGSTOP: connections stay, nothing answers. It has taken effect when
// Stop returns.
func (m *EtcdMember) Stop() {
	m.tb.Helper()
	if err := m.current().stop(); err != nil {
		m.tb.Fatalf("testserver: stop: %v", err)
	}
}

// Cont lets a stopped member run on.
func (m *EtcdMember) Cont() {
	m.tb.Helper()
	if err := m.current().cont(); err != nil {
		m.tb.Fatalf("testserver: cont: %v", err)
	}
}

func (m *EtcdMember) current() *process {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.proc
}

// wipe removes the member's data.
func (m *EtcdMember) wipe() error { return os.RemoveAll(filepath.Join(m.dir, "data")) }
