package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// A trial is a cluster with clients at work: three of them, two workers each, on two locks.
type trial struct {
	set     *testserver.EtcdSet
	lockers []*locker.Client[struct{}]
	start   time.Time
	log     history.Log
	holds   [6]atomic.Int64 // of each worker
	stop    context.CancelFunc
	workers sync.WaitGroup
}

var patient = locker.Config{TTL: 2 * time.Second, Logger: slog.New(slog.DiscardHandler)}

func begin(t *testing.T, set *testserver.EtcdSet) *trial {
	t.Helper()
	raw := as(set) + "?request_timeout=1s"
	tr := &trial{set: set, start: time.Now(), lockers: lockers(t, patient, raw, raw, raw)}
	ctx, stop := context.WithCancel(t.Context())
	tr.stop = stop
	names := []string{key(t), key(t)}
	for worker := range tr.holds {
		tr.workers.Go(func() { tr.work(ctx, t, worker, names[worker%2]) })
	}
	return tr
}

// work locks again and again, and records what it believed. That a lock is not to be had is no
// fault here.
func (tr *trial) work(ctx context.Context, t *testing.T, worker int, name string) {
	for ctx.Err() == nil {
		g, err := tr.lockers[worker%3].Lock(ctx, name, locker.WaitLimit(patience))
		if err != nil {
			if backend.Refused(err) {
				t.Errorf("Lock = %v", err)
			}
			continue
		}
		e := history.Event{
			Worker: fmt.Sprint(worker), Key: name, Token: g.Hold().Token,
			Start: time.Since(tr.start),
		}
		select {
		case <-time.After(3 * time.Millisecond):
		case <-g.Lost():
		}
		e.End = min(time.Since(tr.start), g.Until().Sub(tr.start))
		tr.log.Add(e)
		_ = g.Unlock() // may be lost, or unknown
		tr.holds[worker].Add(1)
	}
}

// progress waits until every worker has had the lock a few times more.
func (tr *trial) progress(t *testing.T, when string) {
	t.Helper()
	const few = 3
	start := time.Now()
	var before [len(tr.holds)]int64
	for i := range before {
		before[i] = tr.holds[i].Load()
	}
	for i := range before {
		for tr.holds[i].Load()-before[i] < few {
			// gRPC gives up a member that hangs after 13 s, and the machine may be busy.
			if time.Since(start) > 4*patience {
				t.Fatalf("worker %d locked %d times %s, within %v", i, tr.holds[i].Load()-before[i],
					when, time.Since(start))
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	t.Logf("everybody locked %s within %v", when, time.Since(start).Round(time.Millisecond))
}

// judge ends the work and looks at what everybody believed.
func (tr *trial) judge(t *testing.T) {
	t.Helper()
	tr.stop()
	tr.workers.Wait()
	events := tr.log.Events()
	if err := history.Join(history.Check(events)); err != nil {
		t.Error(err)
	}
	t.Logf("%d holds", len(events))
}

// Whatever happens to the members: no two beliefs overlap, tokens rise, and work goes on as soon
// as a majority is there, also where the members know users.
//
// covers: X5, X6, X7, X8, X17, W2, B2
func TestCluster(t *testing.T) {
	testserver.OnlyInAll(t, "three members and their failures")
	if testing.Short() {
		t.Skip("elections take their time")
	}
	for _, token := range tokens {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			set := clusterWith(t, token)
			for _, trouble := range []struct {
				name    string
				make    func(t *testing.T, tr *trial)
				unasked bool // of no interest where there are users
			}{
				{"leader-killed", leaderKilled, false},
				{"leader-stopped", leaderStopped, false},
				{"no-quorum", noQuorum, true},
				{"compaction", compaction, true},
				{"member-wiped", memberWiped, false},
			} {
				if trouble.unasked && token != noUsers {
					continue
				}
				t.Run(trouble.name, func(t *testing.T) {
					tr := begin(t, set)
					defer tr.judge(t)
					tr.progress(t, "at first")
					trouble.make(t, tr)
					tr.progress(t, "at last")
				})
			}
		})
	}
}

// noUsers names a cluster that knows no users among those that do, by the kind of their tokens.
const noUsers = "none"

var tokens = []string{noUsers, "simple", "jwt"}

// clusterWith is a cluster of three members whose users, if it knows any, get tokens of a kind.
func clusterWith(t *testing.T, token string) *testserver.EtcdSet {
	t.Helper()
	if token == noUsers {
		token = ""
	}
	return testserver.EtcdCluster(t, 3, testserver.WithEtcdAuth(token))
}

func leaderKilled(t *testing.T, tr *trial) {
	leader, _ := tr.set.Leader(t)
	leader.Kill()
	tr.progress(t, "with the leader dead")
	leader.Restart()
}

func leaderStopped(t *testing.T, tr *trial) {
	leader, _ := tr.set.Leader(t)
	leader.Stop()
	defer leader.Cont()
	tr.progress(t, "with the leader stopped")
}

func noQuorum(t *testing.T, tr *trial) {
	dead := tr.set.Members[:2]
	for _, m := range dead {
		m.Kill()
	}
	began := time.Now()
	time.Sleep(patient.TTL + patient.TTL/2) // every lease that was believed in is over
	var now int64
	for i := range tr.holds {
		now += tr.holds[i].Load()
	}
	time.Sleep(max(patient.TTL/4, 10*time.Second-time.Since(began)))
	for i := range tr.holds {
		now -= tr.holds[i].Load()
	}
	if now != 0 {
		t.Errorf("%d locks were granted without a majority", -now)
	}
	for _, m := range dead {
		m.Start()
	}
}

func compaction(t *testing.T, tr *trial) {
	c := client(t, tr.set.Addrs()...)
	for range 20 {
		reply, err := c.Get(t.Context(), "any", clientv3.WithCountOnly())
		want(t, "revision", err, nil)
		if _, err := c.Compact(t.Context(), reply.Header.Revision); err != nil {
			t.Errorf("Compact = %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func memberWiped(t *testing.T, tr *trial) {
	_, follower := tr.set.Leader(t)
	tr.set.Rejoin(t, follower)
}

// A holder that is cut off hears nothing. Its guard is over before another is granted the lock,
// because its own clock ends it.
//
// covers: X3, X4, B1, A6
func TestHolderCutOff(t *testing.T) {
	t.Parallel()
	const locks = 20
	srv := testserver.Etcd(t)
	proxy := testserver.NewProxy(t, srv.Addr())
	cfg := patient
	cfg.StoreTimeout = patience // a server that is slow for a moment is waited for
	both := lockers(t, cfg, at(proxy.Addr()), at(srv.Addr()))
	guards := make([]*locker.Guard[struct{}], locks)
	for i := range guards {
		guards[i] = locked(t, both[0], fmt.Sprint("k", i))
	}
	proxy.Set(testserver.Fault{Mode: testserver.Hold})
	var wg sync.WaitGroup
	for i, g := range guards {
		wg.Go(func() {
			next, err := both[1].Lock(quick(t, patience), fmt.Sprint("k", i))
			if err != nil {
				t.Errorf("Lock by the other = %v", err)
				return
			}
			if _, err := g.Value(); !errors.Is(err, locker.ErrLost) {
				t.Errorf("the guard is good for another %v, and the lock was granted to another",
					time.Until(g.Until()))
			}
			if g.Hold().Token >= next.Hold().Token {
				t.Errorf("token %d after %d", next.Hold().Token, g.Hold().Token)
			}
			if err := next.Unlock(); err != nil {
				t.Errorf("Unlock = %v", err)
			}
		})
	}
	wg.Wait()
	proxy.Pass()
	for _, g := range guards {
		want(t, "Unlock of a lost guard", g.Unlock(), locker.ErrLost)
	}
}

// covers: G6, B11
func TestFlashSale(t *testing.T) {
	testserver.OnlyInAll(t, "a sale with kills")
	backendtest.FlashSale(t, at(testserver.Etcd(t).Addr()))
}

// covers: G6, B11
func TestOneOpen(t *testing.T) {
	testserver.OnlyInAll(t, "processes that are killed")
	backendtest.OneOpen(t, at(testserver.Etcd(t).Addr()))
}

// covers: G6, B11
func TestProcesses(t *testing.T) {
	backendtest.Processes(t, at(testserver.Etcd(t).Addr()))
}

// covers: G6, B4
func TestRelay(t *testing.T) {
	backendtest.Relay(t, at(testserver.Etcd(t).Addr()))
}
