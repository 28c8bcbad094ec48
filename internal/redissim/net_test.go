package redissim

import (
	"cmp"
	"container/heap"
	"fmt"
	"hash/fnv"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing/synctest"
	"time"
)

// A network executes events, one at a time and in order of their instants.
type network struct {
	seed  uint64
	start time.Time

	mu     sync.Mutex
	fresh  []submission
	counts map[string]uint64 // of submissions, by name
	ids    map[string]int    // the claims, numbered in the order in which they became known
	events events
	taken  map[int64]bool // instants
	kick   chan struct{}
	done   chan struct{}
	ended  chan struct{}

	log func(line string) // nil: nothing is noted
}

// A submission is what was asked for at one instant. plan is called once everybody has asked, in
// order of the names.
type submission struct {
	name   string
	worker string // who asks, as far as is known
	id     string // of the claim that it is about; it is drawn, and so no part of the name
	plan   func(r *rand.Rand)
}

type event struct {
	at  time.Time
	run func()
}

type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }

//nolint:forcetypeassert // by its making
func (e *events) Push(x any) { *e = append(*e, x.(event)) }

func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

func newNetwork(seed uint64) *network {
	n := &network{
		seed: seed, start: time.Now(), counts: map[string]uint64{}, ids: map[string]int{},
		taken: map[int64]bool{},
		kick:  make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
	go n.run()
	return n
}

// submit has plan called in its turn. What plan draws follows from the seed, the name, and how
// often the name has come before.
func (n *network) submit(name, worker, id string, plan func(r *rand.Rand)) {
	n.mu.Lock()
	n.fresh = append(n.fresh, submission{name, worker, id, plan})
	n.mu.Unlock()
	select {
	case n.kick <- struct{}{}:
	default:
	}
}

// at has run be called at an instant, or the next that is free. It is called by events and plans.
func (n *network) at(when time.Time, run func()) {
	if now := time.Now(); !when.After(now) {
		when = now.Add(1)
	}
	ns := when.Sub(n.start).Nanoseconds()
	for n.taken[ns] {
		ns++
	}
	n.taken[ns] = true
	heap.Push(&n.events, event{n.start.Add(time.Duration(ns)), run})
}

// turn returns when all who came at this instant and are before the caller by what they are, which
// goroutines are not, have gone on, and wait for something.
func (n *network) turn(name, worker, id string) {
	turn := make(chan struct{})
	n.submit(name, worker, id, func(*rand.Rand) {
		n.at(time.Now(), func() { close(turn) })
	})
	<-turn
}

func (n *network) run() {
	defer close(n.ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-n.kick:
		case <-timer.C:
		case <-n.done:
			return
		}
		synctest.Wait()
		n.mu.Lock()
		fresh := n.fresh
		n.fresh = nil
		n.mu.Unlock()
		slices.SortStableFunc(fresh, func(a, b submission) int {
			return cmp.Or(strings.Compare(a.name, b.name), strings.Compare(a.worker, b.worker),
				cmp.Compare(n.ids[a.id], n.ids[b.id]))
		})
		for _, s := range fresh {
			if n.ids[s.id] == 0 && s.id != "" {
				n.ids[s.id] = len(n.ids) + 1
			}
			n.counts[s.name]++
			s.plan(rand.New(rand.NewPCG(n.seed^hash(s.name), n.counts[s.name])))
		}
		if len(n.events) > 0 && !n.events[0].at.After(time.Now()) {
			e := heap.Pop(&n.events).(event) //nolint:forcetypeassert // by its making
			delete(n.taken, e.at.Sub(n.start).Nanoseconds())
			e.run()
		}
		timer.Stop()
		select { // a tick that came meanwhile
		case <-timer.C:
		default:
		}
		if len(n.events) > 0 {
			timer.Reset(time.Until(n.events[0].at))
		}
	}
}

func (n *network) close() {
	close(n.done)
	<-n.ended
}

// note adds a line to the history.
func (n *network) note(format string, args ...any) {
	if n.log != nil {
		n.log(fmt.Sprintf("%14d ", time.Since(n.start).Nanoseconds()) + fmt.Sprintf(format,
			args...))
	}
}

func hash(s string) uint64 {
	h := fnv.New64a()
	_, _ = io.WriteString(h, s)
	return h.Sum64()
}
