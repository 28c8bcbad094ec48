package etcdbackend

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/internal/jitter/virtual"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
)

var (
	simSeeds = flag.Int("seeds", 0, "how many seeds to simulate; 0 is a short form")
	simFirst = flag.Uint64("first", 1, "the first seed")
	simOne   = flag.Uint64("seed", 0, "a seed to repeat, up to twenty times, with its history")
	simRates = flag.Int("rates", 0,
		"how many seeds to run of each variant, to count in how many it is found")
)

// The code under test draws its jitter from who draws and when, so that in a bubble it follows from
// the seed. Elsewhere that is as good as any.
func init() { jitter.Use(virtual.Draw) }

// A simVariant is the cluster with a fault more, or less.
type simVariant struct {
	late bool // leaders of the past revoke nothing
}

// TestSimulatedLeaderPauses has processes lock in simulated clusters whose leaders are paused,
// deposed, and then revoke leases that have been renewed since. A seed decides all but the order in
// which goroutines go on that wait for the same, so one that failed is run a few times:
//
//	go test ./etcdbackend -run 'TestSimulatedLeaderPauses$' -v -seed=4711
//
// covers: X20
func TestSimulatedLeaderPauses(t *testing.T) { simulate(t, simVariant{}) }

// TestSimulatedLeaderPausesOnly is the same with leaders that revoke nothing once they are deposed.
//
// covers: X20
func TestSimulatedLeaderPausesOnly(t *testing.T) {
	testserver.OnlyInAll(t, "a simulation with a fault less")
	simulate(t, simVariant{late: true})
}

func simulate(t *testing.T, v simVariant) {
	t.Helper()
	if *simOne != 0 {
		w := runSim(t, *simOne, v)
		for try := 1; try < 20 && len(w.found) == 0; try++ {
			w = runSim(t, *simOne, v)
		}
		t.Logf("seed %d: %d holds, %d leases revoked early\n%s", *simOne, w.holds, w.early,
			strings.Join(w.lines, "\n"))
		w.report(t)
		return
	}
	n, limit := max(*simSeeds, *simRates), time.Duration(math.MaxInt64)
	if n == 0 {
		n, limit = 200, 3*time.Second // the race detector makes it seven times slower
		if testing.Short() {
			n = 40
		}
	}
	var mu sync.Mutex
	done, bad, holds, early, many, began := 0, 0, 0, 0, 0, time.Now()
	simEach(t, n, func(t *testing.T, seed uint64) {
		if time.Since(began) > limit {
			return
		}
		w := runSim(t, seed, v)
		mu.Lock()
		defer mu.Unlock()
		done, holds, early = done+1, holds+w.holds, early+w.early
		many += w.etcd.many
		if len(w.found) > 0 {
			bad++
			if *simRates == 0 {
				w.report(t)
			}
		}
	})
	t.Logf("%d seeds, in %d of them something was found, %d holds, %d attempts for two locks, %d "+
		"leases revoked early, %.0f seeds a second",
		done, bad, holds, many, early, float64(done)/time.Since(began).Seconds())
	if holds < 10*done || many == 0 || early < done && !v.late {
		t.Error("so little happened that it shows nothing")
	}
}

// simEach runs f for n seeds, on all processors.
func simEach(t *testing.T, n int, f func(t *testing.T, seed uint64)) {
	t.Helper()
	var next atomic.Uint64
	t.Run("seeds", func(t *testing.T) {
		for i := range runtime.GOMAXPROCS(0) {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				for k := next.Add(1) - 1; k < uint64(n); k = next.Add(1) - 1 {
					f(t, *simFirst+k)
				}
			})
		}
	})
}

// A simWorld is one run of one seed.
type simWorld struct {
	seed      uint64
	test      string
	v         simVariant
	etcd      *simEtcd
	start     time.Time
	layout    Layout
	use       simUse // of the second key
	processes []*simProcess
	log       history.Log
	over      atomic.Bool // no faults any more

	mu    sync.Mutex
	found []string
	holds int
	early int
	lines []string
}

// A simUse is how a key is locked.
type simUse int

const (
	simExclusive simUse = iota
	simShared           // by readers and writers
	simPermits          // two of them
)

const simWorkers = 5

// capacity is how much of a key there is, and the weight of an exclusive hold is all of it.
func (u simUse) capacity() int { return []int{1, simWorkers, 2}[u] }

// actors' numbers.
const (
	simActorWorld  = 1
	simActorFaults = 2
	simActorWorker = 100
)

func (w *simWorld) rand(actor uint64) *rand.Rand { return rand.New(rand.NewPCG(w.seed, actor)) }

func (w *simWorld) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, fmt.Sprintf(format, args...))
}

func (w *simWorld) note(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lines = append(w.lines,
		fmt.Sprintf("%15v ", time.Since(w.start))+fmt.Sprintf(format, args...))
}

func (w *simWorld) what() string {
	return fmt.Sprintf("layout %s, the second key %s", w.layout,
		[]string{"exclusive", "of readers and writers", "with two permits"}[w.use])
}

func (w *simWorld) report(t *testing.T) {
	t.Helper()
	if len(w.found) > 0 {
		t.Errorf("seed %d, %s; repeat with go test ./etcdbackend -run '%s$' -v -seed=%d\n%s",
			w.seed, w.what(), w.test, w.seed, strings.Join(w.found, "\n"))
	}
}

func runSim(t *testing.T, seed uint64, v simVariant) *simWorld {
	t.Helper()
	test, _, _ := strings.Cut(t.Name(), "/")
	w := &simWorld{seed: seed, v: v, test: test}
	synctest.Test(t, func(*testing.T) { w.run() })
	return w
}

// run lets everybody work under faults, then ends the faults and sees that everything goes on.
func (w *simWorld) run() {
	r := w.rand(simActorWorld)
	time.Sleep(simPart(r, 24*time.Hour)) // what the code under test draws follows from the time
	w.start = time.Now()
	faults := simFaults{early: !w.v.late, hasty: !w.v.late && r.IntN(2) == 0}
	if r.IntN(2) == 0 {
		faults.lost, faults.slow = 0.02*r.Float64(), 0.02*r.Float64()
	}
	w.etcd = newSimEtcd(w.seed, faults)
	if w.layout = Native; r.IntN(3) == 0 {
		w.layout = Etcdctl
	} else {
		w.use = simUse(r.IntN(3))
	}
	for i := range 3 {
		w.processes = append(w.processes, w.etcd.process(i, Config{Layout: w.layout}))
	}
	var work sync.WaitGroup
	for i := range simWorkers {
		work.Go(func() { w.work(i, w.rand(simActorWorker+uint64(i))) })
	}
	w.faults(w.rand(simActorFaults))
	w.over.Store(true)
	work.Wait()
	w.goesOn()
	for _, p := range w.processes {
		p.close()
	}
	w.etcd.close()
	w.early = len(w.etcd.revoked)
	for key, use := range map[string]simUse{"a": simExclusive, "b": w.use} {
		if err := history.Join(history.CheckCapacity(w.events(key), use.capacity())); err != nil {
			w.violate("%v", err)
		}
	}
}

func (w *simWorld) events(key string) (events []history.Event) {
	for _, e := range w.log.Events() {
		if e.Key == key {
			events = append(events, e)
		}
	}
	return events
}

// faults pauses leaders, and perhaps kills a process.
func (w *simWorld) faults(r *rand.Rand) {
	pauses, kill := 1+r.IntN(4), -1
	if r.IntN(3) == 0 {
		kill = r.IntN(pauses)
	}
	for i := range pauses {
		time.Sleep(simPart(r, 2*simTTL))
		if i == kill {
			k := r.IntN(len(w.processes))
			w.processes[k].conn.kill()
			w.note("process %d is killed", k)
		}
		old, d := w.etcd.pause(), 3*simTTL/10+simPart(r, 22*simTTL/10)
		if w.etcd.hasty { // it goes on as soon as there is another
			d = 2*simElection + simPart(r, simElection)
		}
		w.note("member %d, which leads, is paused for %v", old.index, d)
		election := simElection/2 + simPart(r, simElection)
		time.Sleep(min(d, election))
		if election < d {
			w.etcd.elect(r)
			time.Sleep(d - election)
		}
		before := len(w.etcd.revoked)
		w.etcd.resume(old, r)
		w.note("member %d goes on, and revokes %v", old.index, w.etcd.revoked[before:])
	}
	time.Sleep(simTTL)
	w.etcd.mu.Lock()
	w.etcd.quiet = true
	w.etcd.mu.Unlock()
}

// work locks and unlocks. Of the workers one holds for long, one for a short time, two try without
// waiting, and one does it all. The first ones are of a process each.
func (w *simWorld) work(i int, r *rand.Rand) {
	p := w.processes[i%len(w.processes)]
	for !w.over.Load() && !p.conn.killed() {
		time.Sleep(1 + simPart(r, simTTL/20))
		key := []string{"a", "b"}[r.IntN(2)]
		e := history.Event{
			Process: fmt.Sprint(i % len(w.processes)), Worker: fmt.Sprint(i),
			Key: key,
		}
		opts := w.how(&e, r)
		lock, long := p.locker.Lock, i == 0
		switch i {
		case 2, 3:
			lock = p.locker.TryLock
		case 4:
			long = r.IntN(4) == 0
			if r.IntN(2) == 0 {
				lock = p.locker.TryLock
			}
			fallthrough
		default:
			opts = append(opts, locker.WaitLimit(4*simTTL))
		}
		d := simPart(r, simTTL/10)
		if long {
			d = simPart(r, 4*simTTL)
		}
		if i == 4 && w.use != simPermits && r.IntN(2) == 0 {
			w.both(p, e, d)
			continue
		}
		if g, err := lock(context.Background(), key, opts...); err == nil {
			w.hold(p, g, e, d)
		}
	}
}

// both locks both keys at once, and records a belief in each.
func (w *simWorld) both(p *simProcess, e history.Event, d time.Duration) {
	all, err := locker.All(context.Background(), p.locker, []string{"a", "b"},
		locker.WaitLimit(4*simTTL))
	if err != nil {
		return
	}
	start := time.Since(w.start)
	select {
	case <-time.After(d):
	case <-all.Context().Done():
	}
	for key, weight := range map[string]int{"a": 1, "b": w.use.capacity()} {
		g := all.Guard(key)
		if p.conn.killed() { // it believes for as long as it may
			<-g.Lost()
		}
		e.Key, e.Weight, e.Token, e.Start = key, weight, g.Hold().Token, start
		e.End = min(time.Since(w.start), g.Until().Sub(w.start))
		w.log.Add(e)
		w.note("held with the other key %v", e)
	}
	if err := all.Unlock(); err != nil && !errors.Is(err, locker.ErrLost) {
		w.note("%s/%s unlocks both: %v", e.Process, e.Worker, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds += 2
}

// how draws in which mode a key is locked.
func (w *simWorld) how(e *history.Event, r *rand.Rand) []locker.Option {
	switch {
	case e.Key == "b" && w.use == simPermits:
		return []locker.Option{locker.Permit(2)}
	case e.Key == "b" && w.use == simShared && r.IntN(2) == 0:
		return []locker.Option{locker.Shared()}
	case e.Key == "b":
		e.Weight = w.use.capacity()
	}
	return nil
}

// hold records a belief that lasts for d, or until it is lost.
func (w *simWorld) hold(p *simProcess, g *locker.Guard[struct{}], e history.Event,
	d time.Duration,
) {
	e.Token, e.Start = g.Hold().Token, time.Since(w.start)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		if p.conn.killed() { // it believes for as long as it may
			<-g.Lost()
		}
	case <-g.Lost():
	}
	e.End = min(time.Since(w.start), g.Until().Sub(w.start))
	w.log.Add(e)
	w.note("held %v", e)
	if err := g.Unlock(); err != nil && !errors.Is(err, locker.ErrLost) {
		w.note("%s/%s unlocks %s: %v", e.Process, e.Worker, e.Key, err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.holds++
}

// goesOn sees that when the faults are over everybody who lives gets every key in time: once the
// leases have ended of who died, and of who did not hear that a member released its claim.
func (w *simWorld) goesOn() {
	const limit = 4 * simTTL
	for i, p := range w.processes {
		for _, key := range []string{"a", "b"} {
			if p.conn.killed() {
				continue
			}
			g, err := p.locker.Lock(context.Background(), key, locker.WaitLimit(limit))
			if err != nil {
				w.violate("all faults are over for %v, and still process %d is told "+
					"at Lock(%q): %v", limit, i, key, err)
				continue
			}
			e := history.Event{Process: fmt.Sprint(i), Worker: "end", Key: key, Weight: 1}
			if key == "b" {
				e.Weight = w.use.capacity()
			}
			w.hold(p, g, e, 0)
		}
	}
}
