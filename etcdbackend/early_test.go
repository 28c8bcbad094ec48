package etcdbackend

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

const simTTL = 6 * time.Second

// A simProcess is a program with a client of its own.
type simProcess struct {
	conn   *simConn
	locker *locker.Client[struct{}]
	close  func()
}

func (s *simEtcd) process(index int, cfg Config) *simProcess {
	c, conn := s.client(index)
	b, err := New(c, cfg)
	if err != nil {
		panic(err)
	}
	l, err := locker.New(b, locker.Bare,
		locker.Config{TTL: simTTL, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		panic(err)
	}
	return &simProcess{conn: conn, locker: l, close: func() {
		_ = l.Close()
		_ = b.Close()
		_ = c.Close()
	}}
}

// A leader that was paused and deposed revokes a lease that was kept alive since (etcd #15247),
// before its holder has put the hold on another. The holder believes in its last renewal, so nobody
// else may hold before that is over: neither who waits behind it in the queue, nor a newcomer. One
// who waits came before the pause, and its own lease is revoked, too, or during the pause.
//
// covers: X20
func TestEarlyRevocation(t *testing.T) {
	for _, layout := range []Layout{Native, Etcdctl} {
		for _, waits := range []string{"before", "during", "never"} {
			t.Run(string(layout)+"/waits-"+waits, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					e := newEarly(t, Config{Layout: layout}, simFaults{early: true, hasty: true})
					defer e.end()
					if waits == "before" {
						e.contend("the waiter", e.waiter.locker.Lock)
					}
					e.contend("the newcomer", e.newcomer.locker.TryLock)
					time.Sleep(simTTL/3 + simTTL/12) // for the first keepalive
					old := e.etcd.pause()
					time.Sleep(simElection)
					e.etcd.elect(e.etcd.dice("election"))
					if waits == "during" {
						e.contend("the waiter", e.waiter.locker.Lock)
						time.Sleep(simTTL / 60)
					}
					e.etcd.resume(old, e.etcd.dice("wake"))
					if len(e.etcd.revoked) == 0 {
						t.Error("nothing was revoked early: that shows nothing")
					}
					e.othersLock()
				})
			})
		}
	}
}

// A leader that was paused for longer than a lease ends no hold when it goes on: by then all are on
// leases that it does not know.
//
// covers: X20
func TestPausedLeaderEndsNoHold(t *testing.T) {
	for _, layout := range []Layout{Native, Etcdctl} {
		t.Run(string(layout), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newEarly(t, Config{Layout: layout}, simFaults{early: true})
				defer e.end()
				e.contend("the waiter", e.waiter.locker.Lock)
				time.Sleep(time.Second)
				old := e.etcd.pause()
				time.Sleep(simElection)
				e.etcd.elect(e.etcd.dice("election"))
				// More than the lease had left, and less than it has by the new leader.
				time.Sleep(simTTL * 5 / 4)
				e.etcd.resume(old, e.etcd.dice("wake"))
				if len(e.etcd.revoked) == 0 {
					t.Error("nothing was revoked early: that shows nothing")
				}
				time.Sleep(2 * simTTL)
				if err := e.held.Unlock(); err != nil {
					t.Errorf("Unlock = %v", err)
				}
				e.othersLock()
			})
		})
	}
}

// An early is a simulated cluster with a holder of a lock and others who want it.
type early struct {
	t                        *testing.T
	etcd                     *simEtcd
	holder, waiter, newcomer *simProcess
	held                     *locker.Guard[struct{}]
	ctx                      context.Context
	cancel                   context.CancelFunc
	others                   sync.WaitGroup
	granted                  chan string
	contenders               int
}

type simLock func(context.Context, string, ...locker.Option) (*locker.Guard[struct{}], error)

func newEarly(t *testing.T, cfg Config, f simFaults) *early {
	t.Helper()
	s := newSimEtcd(1, f)
	e := &early{
		t: t, etcd: s, holder: s.process(0, cfg), waiter: s.process(1, cfg), newcomer: s.process(2,
			cfg),
		granted: make(chan string, 2),
	}
	e.ctx, e.cancel = context.WithCancel(t.Context())
	var err error
	if e.held, err = e.holder.locker.Lock(e.ctx, "k"); err != nil {
		t.Fatal(err)
	}
	return e
}

// contend has one of the others lock once, in a goroutine.
func (e *early) contend(who string, lock simLock) {
	e.contenders++
	e.others.Go(func() { e.let(who, lock) })
}

func (e *early) let(who string, lock simLock) {
	for e.ctx.Err() == nil {
		g, err := lock(e.ctx, "k")
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		if _, err := e.held.Value(); err == nil {
			e.t.Errorf("%s was granted the lock while its holder believes in it for another %v",
				who, time.Until(e.held.Until()))
		}
		e.granted <- who
		_ = g.Unlock()
		return
	}
}

// othersLock waits until each of the others has locked.
func (e *early) othersLock() {
	for range e.contenders {
		select {
		case <-e.granted:
		case <-time.After(10 * simTTL):
			e.t.Error("the lock is not to be had any more")
		}
	}
}

func (e *early) end() {
	e.cancel()
	e.others.Wait()
	for _, p := range []*simProcess{e.holder, e.waiter, e.newcomer} {
		p.close()
	}
	e.etcd.close()
}
