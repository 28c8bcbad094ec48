package scenario

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/redisd"
)

// nodes is of how many servers a quorum is.
const nodes = 5

// lingering is how long releases may be on their way to the nodes that were not needed.
const lingering = 300 * time.Millisecond

// A fault befalls one node of five when a cell begins to be measured, and lasts until its end.
type fault int

const (
	healthy fault = iota
	killed
	hung
)

var (
	quorumHealthy = quorumScenario("S5", "five servers, n goroutines, a key each, Lock and Unlock", healthy)
	quorumKilled  = quorumScenario("S5-killed", "the same, one of the five is killed as it begins", killed)
	quorumHung    = quorumScenario("S5-hung", "the same, one of the five is stopped (SIGSTOP) as it begins", hung)
)

func quorumScenario(name, title string, f fault) Scenario {
	return Scenario{
		Name: name, Title: title, Limit: "raw-redlock", Impls: impl.Quorums,
		Note: "keys left: locks that the answering nodes still hold 0.3 s after the end; a Lock or Unlock that does not return until then is one",
		Columns: []Column{
			{"rate", "pairs/s", Number},
			{"ratio", "× raw-redlock", Ratio},
			{"p50", "Lock p50", Micros},
			{"p99", "Lock p99", Micros},
			{"max", "Lock max", Micros},
			{"pairp50", "pair p50", Micros},
			{"ccpu", "client CPU/pair", Micros},
			{"scpu", "servers' CPU/pair", Micros},
			{"left", "keys left", Number},
			{"errors", "errors", Number},
			{"faults", "faults", Number},
		},
		Cases: func(quick bool) []int {
			if quick {
				return []int{16}
			}
			return []int{1, 16}
		},
		Length: lengths(400*time.Millisecond, time.Second),
		Run: func(ctx context.Context, env *Env, im impl.Impl, n int) (Metrics, error) {
			return runQuorum(ctx, env, im, n, f)
		},
	}
}

// A quorum is the servers of all cells; the last one is the one that suffers.
type quorum [nodes]*redisd.Server

var runningQuorum quorum

// StopQuorum ends the servers, if there are any.
func StopQuorum() {
	for i, s := range runningQuorum {
		if s != nil {
			s.Stop()
			runningQuorum[i] = nil
		}
	}
}

// quorumServers starts what is not running. All share one CPU with the other server, where that can be done.
func quorumServers() (*quorum, error) {
	for i, s := range runningQuorum {
		if s != nil {
			continue
		}
		s, err := redisd.Start()
		if err != nil {
			return nil, err
		}
		_ = pin.To(s.Pid(), 1)
		runningQuorum[i] = s
	}
	return &runningQuorum, nil
}

func (q *quorum) addrs() string {
	var all []string
	for _, s := range q {
		all = append(all, s.Addr)
	}
	return strings.Join(all, ",")
}

// strike makes the fault, and returns what undoes it. A killed server is started again for the next cell.
func (q *quorum) strike(f fault) (heal func() error, err error) {
	switch last := q[nodes-1]; f {
	case killed:
		last.Stop()
		q[nodes-1] = nil
	case hung:
		return last.Continue, last.Suspend()
	}
	return func() error { return nil }, nil
}

// cpu is what the servers have used that run.
func (q *quorum) cpu(f fault) (sum time.Duration) {
	for i, s := range q {
		if i == nodes-1 && f != healthy {
			continue // it cannot be asked at the end, and does next to nothing
		}
		if c, err := s.Counters(); err == nil {
			sum += c.CPU
		}
	}
	return sum
}

func runQuorum(ctx context.Context, env *Env, im impl.Impl, n int, f fault) (m Metrics, err error) {
	q, err := quorumServers()
	if err != nil {
		return nil, err
	}
	client, err := open(ctx, im, q.addrs())
	if err != nil {
		return nil, err
	}
	defer closing(im, client)
	all, unmap, err := judges("", n)
	if err != nil {
		return nil, err
	}
	defer unmap()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = "bench-" + strconv.Itoa(i)
	}
	before := q.cpu(f)
	l := startLoad(ctx, client, n, func(i int) string { return keys[i] }, func(i int) *judge { return &all[i] })
	time.Sleep(env.warm())
	heal, err := q.strike(f)
	if err != nil {
		l.end()
		return nil, err
	}
	begun := q.cpu(f)
	l.begin()
	time.Sleep(env.Length)
	l.stop()
	used := q.cpu(f) - begun
	left, err := q.left(ctx, im, keys, f)
	err = errors.Join(err, heal())
	r := l.end()
	if err != nil {
		return nil, err
	}
	m, ops := metrics(r)
	m["left"], m["ccpu"], m["scpu"] = float64(left), micros(r.CPU)/max(ops, 1), micros(used)/max(ops, 1)
	violations, disorder := faults(all)
	m["faults"] = violations + disorder
	m[serverCPU] = (q.cpu(f) - before).Seconds()
	return m, q.flush()
}

// left is how many locks are held on the nodes that answer, once what is on its way is there.
func (q *quorum) left(ctx context.Context, im impl.Impl, keys []string, f fault) (sum int, err error) {
	for deadline := time.Now().Add(lingering); ; time.Sleep(lingering / 10) {
		late := time.Now().After(deadline)
		sum = 0
		for i, s := range q {
			if i == nodes-1 && f != healthy {
				continue
			}
			n, err := im.Holds(ctx, s.Addr, keys)
			if err != nil {
				return 0, err
			}
			sum += n
		}
		if sum == 0 || late {
			return sum, nil
		}
	}
}

// flush readies the servers for the next cell.
func (q *quorum) flush() error {
	var errs []error
	for _, s := range q {
		if s != nil {
			errs = append(errs, s.Flush())
		}
	}
	return errors.Join(errs...)
}
