//go:build linux

package chaos

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/linear"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// processes is how many worker processes there are.
const processes = 3

// A stage is one run of a scenario.
type stage struct {
	t        *testing.T
	scenario scenario
	seed     uint64
	ttl      time.Duration
	dir      string // of histories
	removed  string // the safeguard that workers do without

	urls     []string // of each worker
	servers  []*testserver.Server
	control  []func(args ...string) // of each server, on a connection that it has let in before
	clocks   []*clock
	proxies  []*testserver.Proxy
	sentinel *testserver.SentinelSet
	cluster  *testserver.ClusterSet
	etcd     *testserver.EtcdSet

	workers []*process
	rec     *history.Recorder // of kills
	passed  map[string]int    // faults

	mu    sync.Mutex // guards the rest
	found []string
	holds int
}

// A process is a worker process.
type process struct {
	testserver.Process
	name  string
	stdin io.WriteCloser
	heard sync.WaitGroup // until all that it says is heard
	calm  chan struct{}  // of each goroutine that got every key
}

// perform runs a scenario: the faults of the seed, the time after them, and the judges.
func perform(t *testing.T, sc scenario, seed uint64, length time.Duration, removed string) *stage {
	t.Helper()
	s := &stage{
		t: t, scenario: sc, seed: seed, ttl: sc.ttl, removed: removed,
		passed: map[string]int{},
	}
	if s.ttl == 0 {
		s.ttl = time.Second
	}
	var err error
	//nolint:usetesting // it stays, if the run fails
	s.dir, err = os.MkdirTemp("", fmt.Sprintf("holdfast-chaos-%s-%d-", sc.name, seed))
	s.must(err)
	s.rec, err = history.NewRecorder(filepath.Join(s.dir, "parent"), "parent")
	s.must(err)
	sc.setUp(s)
	for i := range processes {
		s.workers = append(s.workers, nil)
		s.start(i)
	}
	count := map[string]int{
		onWorker: processes, onServer: len(s.servers), onProxy: len(s.proxies),
		onSet: 1,
	}
	var events []event
	for i, group := range sc.faults { // side by side
		events = append(events, plan(seed+uint64(i)<<32, group, count, s.ttl, length)...)
	}
	slices.SortStableFunc(events, func(a, b event) int { return int(a.at - b.at) })
	s.write("plan", fmt.Sprintf("seed %d\n%s\n", seed, join(events)))
	s.inflict(events)
	for _, p := range s.proxies {
		p.Pass()
	}
	s.settle()
	s.last()
	s.must(s.rec.Close())
	s.judge()
	s.write("found", strings.Join(s.found, "\n")+"\n")
	return s
}

func join(events []event) string {
	var lines []string
	for _, e := range events {
		if e.name != "" {
			lines = append(lines, e.String())
		}
	}
	return strings.Join(lines, "\n")
}

func (s *stage) must(err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("%s, seed %d: %v", s.scenario.name, s.seed, err)
	}
}

func (s *stage) write(name, text string) {
	s.must(os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600))
}

// start starts the worker of that number, again if it was killed. One that is beyond all looks for
// what is left.
func (s *stage) start(i int) {
	s.t.Helper()
	o := orders{
		Name: fmt.Sprint("w", i), URL: s.urls[i%processes], Dir: s.dir, TTL: s.ttl,
		Seed: s.seed<<8 + uint64(i), Keys: s.scenario.keys,
		Own: fmt.Sprint("n", i%processes), Lengthy: cmp.Or(s.scenario.lengthy[i%processes], 70),
		Scripts: i == 2, Data: s.scenario.promised&data != 0, Removed: s.removed,
		Last: i >= processes,
	}
	text, err := json.Marshal(o)
	s.must(err)
	binary, err := os.Executable()
	s.must(err)
	in, stdin, err := os.Pipe()
	s.must(err)
	stdout, out, err := os.Pipe()
	s.must(err)
	stderr, err := os.OpenFile(filepath.Join(s.dir, "stderr"), os.O_CREATE|os.O_APPEND|os.O_WRONLY,
		0o600)
	s.must(err)
	p := &process{name: o.Name, stdin: stdin, calm: make(chan struct{}, crew)}
	cmd := exec.Command(binary, "-test.run=^$")
	cmd.Env = append(os.Environ(), workerEnv+"="+string(text),
		"GORACE=halt_on_error=1 atexit_sleep_ms=10")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, stderr
	p.Process = testserver.Start(s.t, cmd)
	_, _, _ = in.Close(), out.Close(), stderr.Close() // the worker has them
	p.heard.Go(func() { s.listen(p, stdout) })
	s.t.Cleanup(func() {
		p.Kill()
		_ = stdin.Close()
		p.heard.Wait()
	})
	if i < processes {
		s.workers[i] = p
	} else {
		s.workers = append(s.workers, p)
	}
}

// listen takes what a worker says, until it is gone.
func (s *stage) listen(p *process, stdout io.ReadCloser) {
	defer stdout.Close()
	for in := bufio.NewScanner(stdout); in.Scan(); {
		line := in.Text()
		switch {
		case line == sayCalm:
			p.calm <- struct{}{}
		case strings.HasPrefix(line, sayFound):
			s.find("%s: %s", p.name, line)
		case strings.HasPrefix(line, sayRefused) && s.scenario.promised&belief != 0:
			s.find("%s: the fence %s", p.name, line)
		}
	}
}

func (s *stage) find(format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.found = append(s.found, fmt.Sprintf(format, args...))
}

// kill ends a worker, whose beliefs end before it does.
func (s *stage) kill(i int) {
	p := s.workers[i]
	s.must(s.rec.Killed(p.name))
	p.Kill()
	_ = p.stdin.Close()
}

// inflict has everything happen when it is due, and be over at the end. What takes long makes what
// follows late; what has struck a server or process is over before it is struck again.
func (s *stage) inflict(events []event) {
	type end struct {
		at   time.Duration
		lane string
		do   func()
	}
	var ends []end
	began := time.Now()
	finish := func(i int) {
		do := ends[i].do
		ends = slices.Delete(ends, i, i+1)
		do()
	}
	for len(events)+len(ends) > 0 {
		slices.SortStableFunc(ends, func(a, b end) int { return int(a.at - b.at) })
		if len(events) == 0 || len(ends) > 0 && ends[0].at <= events[0].at {
			time.Sleep(ends[0].at - time.Since(began))
			finish(0)
			continue
		}
		e := events[0]
		events = events[1:]
		time.Sleep(e.at - time.Since(began))
		if i := slices.IndexFunc(ends, func(o end) bool { return o.lane == e.lane() }); i >= 0 {
			finish(i)
		}
		if do := e.begin(s, e.index, rand.New(rand.NewPCG(e.seed, 0))); do != nil {
			ends = append(ends, end{time.Since(began) + e.length, e.lane(), do})
		}
		if e.name != "" {
			s.passed[e.name]++
		}
	}
}

// settle has everybody get every key, and then end.
func (s *stage) settle() {
	limit := time.After(patience * 2)
	for _, p := range s.workers {
		_, err := io.WriteString(p.stdin, sayCalm+"\n")
		s.must(err)
	}
	for _, p := range s.workers {
		for range crew {
			select {
			case <-p.calm:
			case <-p.Ended():
				p.heard.Wait()
				s.find("%s ended: %v; see stderr", p.name, p.Err())
			case <-limit:
				s.find("%s did not get every key within %v after the faults", p.name, patience*2)
				limit = time.After(0)
			}
		}
	}
	s.end(s.workers)
}

func (s *stage) end(workers []*process) {
	for _, p := range workers {
		_ = p.stdin.Close()
	}
	for _, p := range workers {
		select {
		case <-p.Ended():
			if err := p.Err(); err != nil {
				s.find("%s ended: %v; see stderr", p.name, err)
			}
		case <-time.After(patience):
			s.find("%s does not end", p.name)
			p.Kill()
		}
		p.heard.Wait()
	}
}

// last looks for what is left in the store.
func (s *stage) last() {
	s.start(processes)
	p := s.workers[processes]
	select {
	case <-p.Ended(): // it is done
	case <-time.After(2 * patience):
		s.find("nobody can look for what is left in the store")
	}
	s.end(s.workers[processes:])
	for _, server := range s.servers {
		s.lasting(server)
	}
}

// lasting reports what a Redis server keeps for ever, but for stored values and marks.
func (s *stage) lasting(server *testserver.Server) {
	reply, err := server.Do("KEYS", "holdfast:{*")
	s.must(err)
	keys, _ := reply.([]any)
	for _, k := range keys {
		key := fmt.Sprint(k)
		if strings.HasPrefix(key, "holdfast:{v") || strings.HasSuffix(key, "register") {
			continue
		}
		if ttl, err := server.Do("PTTL", key); err == nil && ttl == int64(-1) {
			s.find("%s stays in the store for ever", key)
		}
	}
}

// judge looks at what everybody recorded.
func (s *stage) judge() {
	names := []string{filepath.Join(s.dir, "parent")}
	var journals []string
	for _, p := range s.workers {
		name := filepath.Join(s.dir, p.name)
		if _, err := os.Stat(name + callsFile); err == nil {
			names, journals = append(names, name), append(journals, name+callsFile)
		}
	}
	events, err := history.Read(names...)
	s.must(err)
	calls, err := readCalls(journals...)
	s.must(err)
	s.holds = len(events)
	for _, key := range s.scenario.keys {
		mine := slices.DeleteFunc(slices.Clone(events), func(e history.Event) bool {
			return e.Key != key
		})
		violations := slices.DeleteFunc(history.CheckCapacity(mine, capacity(key)),
			s.scenario.unpromised)
		if err := history.Join(violations); err != nil {
			s.find("%v", err)
		}
		if s.scenario.promised&(belief|tokens) == belief|tokens {
			s.explain(linear.LockModel(capacity(key)), linear.Holds(mine))
		}
		if s.scenario.promised&data != 0 {
			s.explain(linear.RegisterModel(),
				slices.DeleteFunc(slices.Clone(calls), func(c linear.Call) bool {
					return c.Key != key
				}))
		}
		if key[0] == 'x' {
			f, err := withRegister(filepath.Join(s.dir, "fence-"+key), func(*register) {})
			if err = errors.Join(err, f.wrong()); err != nil {
				s.find("fence of %s: %v", key, err)
			}
		}
	}
	if s.holds < processes*crew*len(s.scenario.keys)/2 {
		s.find("only %d holds: that shows nothing", s.holds)
	}
}

func (s *stage) explain(m linear.Model, calls []linear.Call) {
	for _, err := range linear.Check(m, calls) {
		s.find("porcupine: %v", err)
	}
}
