package backendtest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
)

// slackAfterDeath is how much longer than its lease the lock of a killed process may stay: the
// waiter's fallback, and a machine that is busy.
func slackAfterDeath() time.Duration { return slower(time.Second) }

// Processes lets two processes of eight workers each compete for one lock of the store at url, and
// kills one of them with SIGKILL while it holds. No two beliefs may overlap, tokens must rise from
// hold to hold over both processes, and the lock must be free again within a TTL and a second.
//
// The processes are this test binary, started again: its package calls [Main], and imports what
// opens url. They end with the test, and also when the test binary dies.
//
// covers: G6, B11, K1, C10, A1
func Processes(t *testing.T, url string) {
	t.Helper()
	processes(t, url, false)
}

// ProcessesSeen is [Processes] for a store that sees for itself that a process has ended: the lock
// must be free long before the end of the lease.
//
// covers: G6, B11, K1, C10, A1
func ProcessesSeen(t *testing.T, url string) {
	t.Helper()
	processes(t, url, true)
}

func processes(t *testing.T, url string, seen bool) {
	t.Helper()
	calibrate()
	ttl, fencing := leaseFor(t, url, time.Second)
	if seen {
		ttl *= 30
	}
	dir := t.TempDir()
	key := "processes-" + rand.Text()
	start := func(name string) *process {
		return startWorker(t, orders{
			URL: url, Key: key, TTL: ttl, Name: name,
			History: filepath.Join(dir, name),
		})
	}
	victim, survivor := start("victim"), start("survivor")
	const enough = 10 // holds of each, so that both are in full swing
	for _, p := range []*process{victim, survivor} {
		p.await(t, "to lock", 3*patience, func() bool { return p.locked >= enough })
	}
	victim.tell(t, sayHold)
	victim.await(t, "to hold", 3*patience, func() bool { return victim.holding })

	rec, err := history.NewRecorder(filepath.Join(dir, "parent"), "parent")
	if err != nil {
		t.Fatal(err)
	}
	// Before the signal: from now on it believes nothing.
	if err := rec.Killed("victim"); err != nil {
		t.Fatal(err)
	}
	if err := rec.Close(); err != nil {
		t.Fatal(err)
	}
	killed := history.Now()
	victim.kill()
	before := survivor.count()
	survivor.await(t, "to lock after the other was killed", ttl+slackAfterDeath()+patience,
		func() bool {
			return survivor.locked > before+enough
		})
	survivor.stop(t)

	events, err := history.Read(filepath.Join(dir, "victim"), filepath.Join(dir, "survivor"),
		filepath.Join(dir, "parent"))
	if err != nil {
		t.Fatal(err)
	}
	freed := judgeProcesses(t, events, killed, fencing)
	t.Logf("free %v after the kill, with a TTL of %v", freed, ttl)
	switch {
	case seen && freed > ttl/3:
		t.Errorf("the lock of a killed process was free %v after the kill, which the store is to "+
			"see; its TTL is %v", freed, ttl)
	case freed > ttl+time.Second+slackAfterDeath(): // a store may round a lease up to whole seconds
		t.Errorf("the lock of a killed process was free %v after the kill, with a TTL of %v", freed,
			ttl)
	case !seen && freed < ttl/10:
		t.Errorf("the lock was granted %v after its holder was killed: it was not held", freed)
	}
}

// judgeProcesses looks at what both processes believed. It returns how long after the kill the lock
// was free.
func judgeProcesses(t *testing.T, events []history.Event, killed time.Duration,
	fencing bool,
) time.Duration {
	t.Helper()
	if err := history.Join(history.Check(events)); err != nil {
		t.Error(err)
	}
	holds := map[string]int{}
	freed := time.Duration(0)
	for _, e := range events {
		holds[e.Process]++
		if fencing && e.Token == 0 {
			t.Errorf("%v, though the backend claims Fencing", e)
		}
		if e.Process == "survivor" && e.Start > killed && (freed == 0 || e.Start < freed) {
			freed = e.Start
		}
	}
	t.Logf("%v holds", holds)
	return freed - killed
}

// leaseFor returns a TTL of least, or of what the backend takes, and whether it has tokens.
func leaseFor(t *testing.T, url string, least time.Duration) (ttl time.Duration, fencing bool) {
	t.Helper()
	b, err := backend.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	caps := b.Capabilities()
	return slower(max(least, caps.MinTTL)), caps.Fencing
}

// A process is a worker process, and what it has said.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when it has been reaped
	err   error         // of Wait; set before ended is closed

	mu      sync.Mutex
	said    *sync.Cond
	locked  int
	holding bool
	ticket  func(line string) // takes the tickets, if there are any
	stderr  bytes.Buffer
}

// startWorker starts this test binary as a worker.
func startWorker(t *testing.T, o orders) *process {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{name: o.Name, ended: make(chan struct{})}
	p.said = sync.NewCond(&p.mu)
	// It runs no tests, should the package forget to call Main.
	p.cmd = exec.CommandContext(context.Background(), binary, "-test.run=^$")
	// A race ends the process with a status of its own. Without one it need not wait for a second
	// before it exits.
	p.cmd.Env = append(os.Environ(), workerEnv+"="+string(text),
		"GORACE=halt_on_error=1 atexit_sleep_ms=10")
	p.cmd.Stderr = &p.stderr
	p.stdin, err = p.cmd.StdinPipe() // its end, also by our death, ends the worker
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go p.listen(stdout)
	t.Cleanup(p.kill)
	return p
}

// listen takes what the worker says, until it is gone.
func (p *process) listen(stdout io.Reader) {
	for in := bufio.NewScanner(stdout); in.Scan(); {
		p.mu.Lock()
		switch in.Text() {
		case sayLocked:
			p.locked++
		case sayHolding:
			p.holding = true
		}
		p.said.Broadcast()
		ticket := p.ticket
		p.mu.Unlock()
		if ticket != nil && strings.HasPrefix(in.Text(), sayTicket) {
			ticket(in.Text())
		}
	}
	p.err = p.cmd.Wait()
	close(p.ended)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.said.Broadcast()
}

// await blocks until what the worker said makes ok true.
func (p *process) await(t *testing.T, what string, limit time.Duration, ok func() bool) {
	t.Helper()
	late := false
	timer := time.AfterFunc(limit, func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		late = true
		p.said.Broadcast()
	})
	defer timer.Stop()
	p.mu.Lock()
	defer p.mu.Unlock()
	for !ok() {
		select {
		case <-p.ended:
			t.Fatalf("waiting for process %s %s: it ended: %v\n%s(Does the package's TestMain "+
				"call backendtest.Main?)",
				p.name, what, p.err, p.stderr.String())
		default:
		}
		if late {
			t.Fatalf("waited %v for process %s %s; it locked %d times", limit, p.name, what,
				p.locked)
		}
		p.said.Wait()
	}
}

func (p *process) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.locked
}

func (p *process) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(p.stdin, line+"\n"); err != nil {
		t.Fatalf("process %s: %v", p.name, err)
	}
}

// kill ends the process with SIGKILL and returns when it is gone. It may be called twice.
func (p *process) kill() {
	_ = p.cmd.Process.Kill() // fails only for a process that is gone
	<-p.ended
	_ = p.stdin.Close()
}

// stop lets the process end by itself.
func (p *process) stop(t *testing.T) {
	t.Helper()
	if err := p.stdin.Close(); err != nil {
		t.Errorf("process %s: %v", p.name, err)
	}
	select {
	case <-p.ended:
	case <-time.After(3 * patience):
		p.kill()
		t.Fatalf("process %s did not end", p.name)
	}
	if p.err != nil {
		t.Errorf("process %s: %v\n%s", p.name, p.err, p.stderr.String())
	}
}
