package backendtest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// How many seeds are tried: where waiting takes no time, and elsewhere.
const (
	stormsInBubbles = 120
	stormsShort     = 40 // under -short
	stormsForReal   = 4
)

// stormRules returns a rule per seed.
func stormRules(bubble bool) []rule {
	n := stormsForReal
	if bubble {
		n = stormsInBubbles
		if testing.Short() {
			n = stormsShort
		}
	}
	var all []rule
	for i, seed := range seeds(n) {
		all = append(all, rule{
			name: fmt.Sprintf("storm/%d-seed-%d", i, seed), slow: true, run: func(e *env) {
				runStorm(e, seed)
			},
			why: "On a network that delays, loses and doubles requests and wake-ups, the locker " +
				"on this backend still excludes," +
				" tokens rise, nobody's own lock is reported as another's, nothing hangs and " +
				"nothing is left behind.",
		})
	}
	return all
}

// A storm is several clients on a bad network, some workers on each, and few keys.
type storm struct {
	*env
	seed    uint64
	ttl     time.Duration
	keys    []string
	faulty  []*FaultyBackend
	lockers []*locker.Client[struct{}]
	start   time.Time
	log     history.Log

	mu    sync.Mutex
	holds int
}

const (
	stormClients = 3
	stormWorkers = 3 // on each client
	stormRounds  = 5 // of each worker

	everybody = stormClients * stormWorkers // the weight of a hold that excludes all others
)

// covers: A2, A3, A4, B7, B8, W2, W12, W17, C4, C9
func runStorm(e *env, seed uint64) {
	s := &storm{
		env: e, seed: seed, ttl: slower(max(e.caps.MinTTL, 400*time.Millisecond)),
		start: time.Now(),
	}
	defer func() {
		if e.Failed() {
			s.tell()
		}
	}()
	delay := time.Millisecond
	if e.h.Bubble {
		s.ttl, delay = max(e.caps.MinTTL, 3*time.Second), 10*time.Millisecond
	}
	s.keys = []string{e.key("a"), e.key("b")}
	for i := range stormClients {
		fb := FaultyWith(e.h.Open(e), seed+uint64(i), Swarm(seed+uint64(i), delay))
		s.faulty = append(s.faulty, fb)
		l, err := locker.New[struct{}](fb, locker.Bare, s.config(uint64(i)))
		if err != nil {
			e.Fatalf("locker.New = %v", err)
		}
		s.lockers = append(s.lockers, l)
	}
	parallel(stormClients*stormWorkers, s.work)
	s.calmDown()
	s.judge()
}

func (s *storm) config(client uint64) locker.Config {
	r := rand.New(rand.NewPCG(s.seed, client))
	cfg := locker.Config{TTL: s.ttl, Logger: discard}
	cfg.Wait.Fallback = s.ttl / time.Duration(1+r.IntN(10))
	if r.IntN(4) == 0 {
		cfg.Wait.Mode = waiting.Poll
	}
	switch r.IntN(3) {
	case 0:
		cfg.Wait.Passes = -1 // the store sees every acquisition
	case 1:
		cfg.Wait.PassTime = s.ttl // goroutines of a process hand on among themselves
	}
	return cfg
}

// work is what one worker does. Its choices are its own, and depend on the seed alone.
func (s *storm) work(worker int) {
	r, weights := rand.New(rand.NewPCG(s.seed, uint64(1000+worker))),
		rand.New(rand.NewPCG(s.seed, uint64(2000+worker)))
	many := rand.New(rand.NewPCG(s.seed, uint64(3000+worker)))
	l := s.lockers[worker%stormClients]
	time.Sleep(fraction(r, s.ttl/4))
	for round := range stormRounds {
		if many.IntN(4) == 0 {
			s.lockAll(many, worker, l)
			continue
		}
		key, own := s.keys[r.IntN(len(s.keys))], false
		if r.IntN(5) == 0 {
			// Nobody else asks for it, ever.
			key, own = s.key(fmt.Sprintf("own-%d-%d", worker, round)), true
		}
		var opts []locker.Option
		weight := everybody
		if s.caps.Shared && r.IntN(3) == 0 {
			opts, weight = append(opts, locker.Shared()), 1
		} else if s.caps.Weight && weights.IntN(3) == 0 {
			weight = 1 + weights.IntN(everybody)
			opts = append(opts, locker.Permit(everybody), locker.Weight(weight))
		}
		g, err := s.obtain(r, l, key, opts)
		if err != nil {
			s.excuse(err, own)
			continue
		}
		s.hold(r, worker, weight, g)
	}
}

// lockAll locks all keys at once, and unlocks them so, or each by itself.
func (s *storm) lockAll(r *rand.Rand, worker int, l *locker.Client[struct{}]) {
	all, err := locker.All(s.ctx, l, s.keys, locker.WaitLimit(fraction(r, 20*s.ttl)))
	if err != nil {
		if !errors.Is(err, locker.ErrNotAcquired) {
			s.Errorf("All = %v, want an error that is ErrNotAcquired", err)
		}
		return
	}
	together := r.IntN(2) == 0
	seed := r.Uint64()
	parallel(len(s.keys), func(i int) {
		g := all.Guard(s.keys[i])
		unlock := g.Unlock
		if together {
			unlock = func() error { return nil }
		}
		s.use(rand.New(rand.NewPCG(seed, uint64(i))), worker, everybody, g, unlock)
	})
	if err := all.Unlock(); backend.Refused(err) {
		s.Errorf("Unlock of all = %v, which no fault explains", err)
	}
}

// obtain asks for the key in one of the ways that there are.
func (s *storm) obtain(r *rand.Rand, l *locker.Client[struct{}], key string,
	opts []locker.Option,
) (*locker.Guard[struct{}], error) {
	ctx := s.ctx
	switch r.IntN(4) {
	case 0:
		return l.TryLock(ctx, key, opts...)
	case 1: // cancelled at some moment, likely in the middle of something
		ctx, cancel := context.WithCancelCause(ctx)
		defer time.AfterFunc(fraction(r, s.ttl), func() { cancel(errWhy) }).Stop()
		return l.Lock(ctx, key, opts...)
	default:
		return l.Lock(ctx, key, append(opts, locker.WaitLimit(20*s.ttl))...)
	}
}

// excuse fails the storm unless err is one that a bad network explains.
func (s *storm) excuse(err error, own bool) {
	if !errors.Is(err, locker.ErrNotAcquired) {
		s.Errorf("Lock = %v, want an error that is ErrNotAcquired", err)
	}
	if own && errors.Is(err, backend.ErrHeld) {
		s.Errorf("a key that nobody else asked for was reported as held: %v", err)
	}
	if backend.Refused(err) || errors.Is(err, backend.ErrLost) {
		s.Errorf("Lock = %v, which no fault explains", err)
	}
}

// hold works under a guard for a while, sometimes for longer than the lease, and records what it
// believed.
func (s *storm) hold(r *rand.Rand, worker, weight int, g *locker.Guard[struct{}]) {
	s.use(r, worker, weight, g, g.Unlock)
}

// use is hold with another end.
func (s *storm) use(r *rand.Rand, worker, weight int, g *locker.Guard[struct{}],
	unlock func() error,
) {
	event := history.Event{
		Worker: fmt.Sprint(worker), Key: g.Hold().Key, Token: g.Hold().Token,
		Start: time.Since(s.start), Weight: weight,
	}
	work := fraction(r, s.ttl/4)
	if r.IntN(6) == 0 {
		work = fraction(r, 2*s.ttl)
	}
	timer := time.NewTimer(work)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.Lost():
	}
	until := g.Until()
	event.End = min(time.Since(s.start), until.Sub(s.start))
	err := unlock()
	s.log.Add(event)
	s.mu.Lock()
	s.holds++
	s.mu.Unlock()
	if backend.Refused(err) {
		s.Errorf("Unlock = %v, which no fault explains", err)
	}
}

// calmDown ends the faults. When everything is unlocked and cleaned up, and what was late has
// landed, nothing may be left; and then everybody must get every key.
func (s *storm) calmDown() {
	for _, fb := range s.faulty {
		fb.EndFaults()
	}
	for _, l := range s.lockers {
		s.closeLocker(l)
	}
	for _, fb := range s.faulty {
		fb.Settle()
	}
	for _, left := range s.leftovers() {
		s.Errorf("left behind, with everything unlocked: %s", left)
	}
	for i, fb := range s.faulty {
		cfg := s.config(uint64(i))
		// nothing excuses a failure now, so a machine that stands still must not cause one.
		cfg.TTL += patience
		l, err := locker.New[struct{}](fb, locker.Bare, cfg)
		if err != nil {
			s.Errorf("locker.New = %v", err)
			continue
		}
		for _, key := range s.keys {
			g, err := l.Lock(s.ctx, key, locker.WaitLimit(s.ttl+patience))
			if err != nil {
				s.Errorf("with all faults over, and everything unlocked, Lock(%s) = %v", short(key),
					err)
				continue
			}
			s.hold(rand.New(rand.NewPCG(s.seed, 0)), -1, everybody, g)
		}
		s.closeLocker(l)
		if err := fb.Close(); err != nil {
			s.Errorf("Close = %v", err)
		}
	}
}

// closeLocker waits for everything that goes on behind the callers' backs.
func (s *storm) closeLocker(l *locker.Client[struct{}]) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(s.ctx), 4*s.ttl+patience)
	defer cancel()
	if err := l.Shutdown(ctx); err != nil {
		s.Errorf("locker: Close = %v", err)
	}
}

// judge looks at what everybody believed.
func (s *storm) judge() {
	if err := history.Join(history.CheckCapacity(s.log.Events(), everybody)); err != nil {
		s.Errorf("%v", err)
	}
	if s.holds == 0 {
		s.Error("nobody ever got a lock: the storm shows nothing")
	}
}

// tell prints what happened, and how to repeat it.
func (s *storm) tell() {
	s.Logf("seed %d; repeat with %s", s.seed, replay(s.name, s.seed))
	for i, fb := range s.faulty {
		log := fb.Log()
		const most = 60
		if len(log) > most {
			log = append([]string{fmt.Sprintf("… %d more", len(log)-most)}, log[len(log)-most:]...)
		}
		s.Logf("client %d, faults %+v:\n\t%s", i, fb.faults, strings.Join(log, "\n\t"))
	}
}
