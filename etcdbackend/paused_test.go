package etcdbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

// pausedTTL is what the pauses of a leader are long or short against: its lease is a third longer.
const pausedTTL = 6 * time.Second

// A leader that is stopped, as with the machine it runs on, is replaced, and believes for a moment
// to lead when it goes on: by its clock the leases of all who renewed them with its successor are
// over. Nobody is told to hold what another is granted, not for a millisecond, and tokens rise; and
// whoever waits comes to hold when the holders go.
//
// covers: X5, X20
func TestLeaderPaused(t *testing.T) {
	testserver.OnlyInAll(t, "leaders that are stopped for longer than a lease")
	if testing.Short() {
		t.Skip("pauses as long as leases")
	}
	for _, token := range tokens {
		t.Run(token, func(t *testing.T) {
			t.Parallel()
			cluster := sync.OnceValue(func() *testserver.EtcdSet { return clusterWith(t, token) })
			for _, pauses := range []struct {
				name string
				each time.Duration
				n    int
			}{
				{"3s", pausedTTL / 2, 1},
				{"6s", pausedTTL, 1},
				{"9s", pausedTTL + pausedTTL/2, 1},
				{"20s", 20 * time.Second, 1},
				{"4s-4s-4s", 4 * time.Second, 3},
			} {
				t.Run(pauses.name, func(t *testing.T) {
					set := cluster()
					p := believe(t, set)
					defer p.judge(t)
					for range pauses.n {
						p.pause(t, pauses.each)
					}
					p.settle()
				})
			}
		})
	}
}

// A pausing is a cluster with believers at work, on locks of two layouts, and with more leases than
// a leader ends at a time. Those who hold do so until they are told to give up, or have lost the
// lock, and then ask for it again.
type pausing struct {
	set     *testserver.EtcdSet
	start   time.Time
	logs    map[int]*history.Log // by the capacity of the locks
	giveUp  chan struct{}
	workers sync.WaitGroup
	held    atomic.Int64 // how many believe now
	lost    atomic.Int64
	paused  string // what was lost when
}

// A part is what one believer does.
type part struct {
	locker   *locker.Client[struct{}]
	key      string
	capacity int
	weight   int
	try      bool // does not wait: asks every 50 ms
	options  []locker.Option
}

// believe starts the believers, and returns when all locks are held and all who wait have begun to.
func believe(t *testing.T, set *testserver.EtcdSet) *pausing {
	t.Helper()
	cfg := patient
	cfg.TTL, cfg.StoreTimeout = pausedTTL, time.Minute
	p := &pausing{
		set: set, start: time.Now(), logs: map[int]*history.Log{},
		giveUp: make(chan struct{}),
	}
	var first, then []part // the holders, and those who would like to be
	waitedFor := map[Layout][]string{}
	const locks, readers, limit = 8, 16, 2
	for _, layout := range []Layout{Native, Etcdctl} {
		raw := as(set) + "?layout=" + string(layout)
		newcomers := lockers(t, cfg, raw)[0]
		// A client has one lease for all its holds, so each has a client.
		own := func(one part) part {
			one.locker = lockers(t, cfg, raw)[0]
			return one
		}
		try := func(one part) part {
			one.locker, one.try = newcomers, true
			return one
		}
		for range locks {
			lock := part{key: key(t), capacity: 1, weight: 1}
			waitedFor[layout] = append(waitedFor[layout], lock.key)
			first, then = append(first, own(lock)), append(then, own(lock), try(lock))
		}
		if layout == Etcdctl { // knows exclusive locks only
			continue
		}
		writer := part{key: key(t), capacity: readers, weight: readers}
		reader := writer
		reader.weight, reader.options = 1, []locker.Option{locker.Shared()}
		permit := part{
			key: key(t), capacity: limit, weight: 1,
			options: []locker.Option{locker.Permit(limit)},
		}
		first = append(first, own(reader), own(reader), own(permit), own(permit))
		then = append(then, own(writer), try(writer), try(reader), own(permit), try(permit))
		waitedFor[layout] = append(waitedFor[layout], writer.key, permit.key)
	}
	for _, one := range append(first, then...) {
		p.logs[one.capacity] = &history.Log{}
	}
	p.begin(t, first, "holder")
	eventually(t, "the locks to be held", func() error {
		if n := p.held.Load(); n < int64(len(first)) {
			return fmt.Errorf("%d of %d", n, len(first))
		}
		return nil
	})
	p.begin(t, then, "other")
	for layout, names := range waitedFor {
		store := opened(t, as(set)+"?layout="+string(layout))
		for _, name := range names {
			eventually(t, "the waiters to be in the queue", func() error {
				state, err := store.Inspect(t.Context(), name)
				if err == nil && len(state.Waiters) == 0 {
					err = errors.New("nobody waits")
				}
				return err
			})
		}
	}
	return p
}

func (p *pausing) begin(t *testing.T, parts []part, role string) {
	for i, one := range parts {
		p.workers.Go(func() { p.work(t, one, fmt.Sprint(role, i)) })
	}
}

// work is one believer's part until it gives up; whoever waits then does so until it is its turn.
func (p *pausing) work(t *testing.T, one part, name string) {
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute) // a failing test is not to hang
	defer cancel()
	for {
		var g *locker.Guard[struct{}]
		var err error
		if one.try {
			g, err = one.locker.TryLock(ctx, one.key, one.options...)
		} else {
			g, err = one.locker.Lock(ctx, one.key, one.options...)
		}
		switch {
		case err == nil:
			p.hold(g, one, name)
			_ = g.Unlock() // may be lost, or unknown
		case backend.Refused(err), !one.try && ctx.Err() != nil:
			t.Errorf("%s of %s: %v", name, one.key, err)
			return
		}
		pause := time.Millisecond
		if one.try {
			pause = 50 * time.Millisecond
		}
		select {
		case <-p.giveUp:
			if err == nil || one.try {
				return
			}
		case <-time.After(pause):
		}
	}
}

// hold looks every 2 ms whether the guard is good, until it is not or it is time to give up, and
// records from when to when it was. Exact to the moment: the end is when it was last asked for.
func (p *pausing) hold(g *locker.Guard[struct{}], one part, name string) {
	e := history.Event{
		Worker: name, Key: one.key, Token: g.Hold().Token, Weight: one.weight,
		Start: time.Since(p.start),
	}
	p.held.Add(1)
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for good := true; good; {
		now := time.Since(p.start) // before it is asked: it was good at that moment, as it is later
		if _, err := g.Value(); err != nil {
			p.lost.Add(1)
			break
		}
		e.End = now
		select {
		case <-p.giveUp:
			good = false
		case <-tick.C:
		}
	}
	p.held.Add(-1)
	p.logs[one.capacity].Add(e)
}

// pause stops the leader for a while, and lets it go on.
func (p *pausing) pause(t *testing.T, d time.Duration) {
	t.Helper()
	leader, _ := p.set.Leader(t)
	before := p.lost.Load()
	leader.Stop()
	time.Sleep(d)
	lost := p.lost.Load()
	leader.Cont()
	p.paused += fmt.Sprintf("%d holds were lost while the leader was stopped for %v. ", lost-before,
		d)
}

// settle gives what the leader does when it goes on the time to show. It ends leases, sixteen at a
// time, and may have to give the first of these up, which takes it six seconds; a hold whose lease
// is gone learns of it by its next renewal, after a third of the TTL.
func (p *pausing) settle() {
	time.Sleep(6*time.Second + 2*pausedTTL/3)
}

// judge has all give up, in their turn, and looks at what they believed.
func (p *pausing) judge(t *testing.T) {
	t.Helper()
	lost := p.lost.Load()
	close(p.giveUp)
	p.workers.Wait()
	beliefs := 0
	for capacity, log := range p.logs {
		events := log.Events()
		beliefs += len(events)
		if err := history.Join(history.CheckCapacity(events, capacity)); err != nil {
			t.Errorf("of locks for %d:\n%v", capacity, strings.TrimSpace(err.Error()))
		}
	}
	t.Logf("%sIn all %d, of %d beliefs.", p.paused, lost, beliefs)
}
