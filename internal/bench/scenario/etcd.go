package scenario

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/holdfast-go/holdfast/etcdbackend"
	"github.com/holdfast-go/holdfast/internal/bench/etcdd"
	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
	"github.com/holdfast-go/holdfast/locker"
)

const peer = "concurrency.Mutex"

// What is measured on etcd: ourselves beside etcd's own package, on one server. Nothing of Redis is in these.
var (
	etcdPairs = Scenario{
		Name: "E1", Title: "etcd: lock and unlock a free key, one client, one after the other",
		Limit:   peer,
		Note:    "one Session for all of the peer's; etcd does not wait for the disk",
		Columns: []Column{{"rate", "pairs/s", Number}, {"turns", "× peer, taking turns", Ratio}, {"p50", "p50", Micros}, {"p99", "p99", Micros}, {"writes", "Raft entries/pair", Ratio}},
		Cases:   func(bool) []int { return []int{1} },
		Length:  lengths(600*time.Millisecond, 2*time.Second),
		Extras:  etcdParticipants(runEtcdPairs),
	}
	etcdHandOff = Scenario{
		Name: "E4", Title: "etcd: hand-off among clients that wait in turn, each holds 20 ms",
		Limit: peer, Inverse: true,
		Note:    "n clients, each with connections (and a Session) of its own; from the call of Unlock to the next one's return of Lock",
		Columns: []Column{{"p50", "hand-off p50", Micros}, {"ratio", "× peer", Ratio}, {"p99", "p99", Micros}, {"max", "max", Micros}, {"samples", "samples", Number}, {"faults", "faults", Number}},
		Cases:   func(bool) []int { return []int{2, 8} },
		Length:  lengths(1500*time.Millisecond, 4*time.Second),
		Extras:  etcdParticipants(runEtcdHandOff),
	}
)

func etcdParticipants(run func(context.Context, *Env, int, openEtcd) (Metrics, error)) (all []Extra) {
	for _, p := range []struct {
		name, settings string
		open           openEtcd
	}{
		{peer, "NewSession(WithTTL(8)), a new Mutex for each lock", openPeer},
		{"holdfast+etcd", "locker.Config{TTL: 8s}, everything else at its default", openOurs},
	} {
		all = append(all, Extra{p.name, p.settings, func(ctx context.Context, env *Env, n int) (Metrics, error) {
			return run(ctx, env, n, p.open)
		}})
	}
	return all
}

var runningEtcd *etcdd.Server

// etcdServer starts the server with the first cell that needs it. Cells are made one after another.
func etcdServer() (s *etcdd.Server, err error) {
	if runningEtcd == nil {
		if runningEtcd, err = etcdd.Start(); err == nil {
			_ = pin.To(runningEtcd.PID(), 1) // as the other server is, where that can be done
		}
	}
	return runningEtcd, err
}

// StopEtcd ends the server, if there is one.
func StopEtcd() {
	if runningEtcd != nil {
		runningEtcd.Stop()
	}
}

type openEtcd func(*clientv3.Client) (impl.Client, error)

type etcdPeer struct{ s *concurrency.Session }

func openPeer(c *clientv3.Client) (impl.Client, error) {
	s, err := concurrency.NewSession(c, concurrency.WithTTL(8))
	return etcdPeer{s}, err
}

func (p etcdPeer) Lock(ctx context.Context, key string) (impl.Held, error) {
	m := concurrency.NewMutex(p.s, key)
	return etcdHeld{m}, m.Lock(ctx)
}

func (p etcdPeer) Close() error { return p.s.Close() }

type etcdHeld struct{ m *concurrency.Mutex }

func (h etcdHeld) Token() uint64 { return 0 }
func (h etcdHeld) Unlock() error { return h.m.Unlock(context.Background()) }

func openOurs(c *clientv3.Client) (impl.Client, error) {
	b, err := etcdbackend.New(c, etcdbackend.Config{})
	if err != nil {
		return nil, err
	}
	return impl.On(b, locker.Config{TTL: impl.TTL})
}

// clients opens n of them, each on a connection of its own.
func etcdClients(n int, open openEtcd) (all []impl.Client, end func(), err error) {
	s, err := etcdServer()
	if err != nil {
		return nil, nil, err
	}
	var ends []func()
	end = func() {
		for _, f := range ends {
			f()
		}
	}
	for range n {
		c, err := s.Client()
		if err != nil {
			end()
			return nil, nil, err
		}
		l, err := open(c)
		if err != nil {
			_ = c.Close()
			end()
			return nil, nil, err
		}
		all = append(all, l)
		ends = append(ends, func() { _, _ = l.Close(), c.Close() })
	}
	return all, end, nil
}

// entries is how many entries the Raft log has.
func entries() (uint64, error) {
	s, err := etcdServer()
	if err != nil {
		return 0, err
	}
	c, err := s.Client()
	if err != nil {
		return 0, err
	}
	defer c.Close()
	status, err := c.Status(context.Background(), s.Addr)
	if err != nil {
		return 0, err
	}
	return status.RaftIndex, nil
}

// runEtcdPairs has a participant and the peer take turns, a few pairs each: what else goes on on the machine changes within a cell, and
// so hits both. The rate is of the participant's own time.
func runEtcdPairs(ctx context.Context, env *Env, _ int, open openEtcd) (Metrics, error) {
	own, end, err := etcdClients(1, open)
	if err != nil {
		return nil, err
	}
	defer end()
	beside, endBeside, err := etcdClients(1, openPeer)
	if err != nil {
		return nil, err
	}
	defer endBeside()
	writes, err := etcdWrites(ctx, own[0], env.warm())
	if err != nil {
		return nil, err
	}
	var h stats.Hist
	var ours, theirs []time.Duration
	for until := time.Now().Add(env.Length); time.Now().Before(until); {
		if ours, err = etcdTurn(ctx, own[0], "bench-pair", ours); err != nil {
			return nil, err
		}
		if theirs, err = etcdTurn(ctx, beside[0], "bench-beside", theirs); err != nil {
			return nil, err
		}
	}
	var took time.Duration
	for _, d := range ours {
		h.Add(d)
		took += d
	}
	return Metrics{
		"rate": float64(len(ours)) / took.Seconds(), "turns": trimmed(theirs) / trimmed(ours),
		"p50": micros(h.Quantile(0.5)), "p99": micros(h.Quantile(0.99)), "writes": writes,
	}, nil
}

// etcdTurn makes five pairs and adds their times to list.
func etcdTurn(ctx context.Context, c impl.Client, key string, list []time.Duration) ([]time.Duration, error) {
	for range 5 {
		began := time.Now()
		held, err := c.Lock(ctx, key)
		if err == nil {
			err = held.Unlock()
		}
		if err != nil {
			return list, err
		}
		list = append(list, time.Since(began))
	}
	return list, nil
}

// etcdWrites warms c up, and returns how many entries the Raft log has more for a pair of its.
func etcdWrites(ctx context.Context, c impl.Client, length time.Duration) (float64, error) {
	first, err := etcdTurn(ctx, c, "bench-pair", nil) // with its lease
	if err != nil {
		return 0, err
	}
	before, err := entries()
	if err != nil {
		return 0, err
	}
	all := first[:0]
	for until := time.Now().Add(length); time.Now().Before(until) || len(all) == 0; {
		if all, err = etcdTurn(ctx, c, "bench-pair", all); err != nil {
			return 0, err
		}
	}
	after, err := entries()
	return float64(after-before) / float64(len(all)), err
}

// trimmed is the mean without the tenth at either end.
func trimmed(all []time.Duration) (mean float64) {
	slices.Sort(all)
	kept := all[len(all)/10 : len(all)-len(all)/10]
	for _, d := range kept {
		mean += float64(d) / float64(len(kept))
	}
	return mean
}

// runEtcdHandOff has n clients lock in turn. The judge sees whether two hold at once.
func runEtcdHandOff(ctx context.Context, env *Env, n int, open openEtcd) (Metrics, error) {
	clients, end, err := etcdClients(n, open)
	if err != nil {
		return nil, err
	}
	defer end()
	var (
		judge    judge
		mu       sync.Mutex
		h        stats.Hist
		released time.Time // when the holder before called Unlock
		samples  float64
		failed   error
	)
	ctx, cancel := context.WithTimeout(ctx, env.Length+env.warm())
	defer cancel()
	start := time.Now()
	var workers sync.WaitGroup
	for i, c := range clients {
		workers.Go(func() {
			for ctx.Err() == nil {
				held, err := c.Lock(ctx, "bench-line")
				at := time.Now()
				if err != nil {
					mu.Lock()
					if ctx.Err() == nil {
						failed = errors.Join(failed, fmt.Errorf("client %d: %w", i, err))
					}
					mu.Unlock()
					continue
				}
				judge.enter(int64(i)+1, held.Token())
				mu.Lock()
				if !released.IsZero() && time.Since(start) > env.warm() {
					h.Add(at.Sub(released))
					samples++
				}
				mu.Unlock()
				time.Sleep(heldFor)
				judge.leave(int64(i) + 1)
				mu.Lock()
				released = time.Now()
				mu.Unlock()
				_ = held.Unlock()
			}
		})
	}
	workers.Wait()
	return Metrics{
		"p50": micros(h.Quantile(0.5)), "p99": micros(h.Quantile(0.99)), "max": micros(h.Max()), "samples": samples,
		"faults": float64(judge.violations.Load() + judge.disorder.Load()),
	}, failed
}
