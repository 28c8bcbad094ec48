package waiting

import (
	"context"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestLineRoles(t *testing.T) {
	var l Line[string, int]
	if p, role := l.Join("k"); p != nil || role != Ask {
		t.Fatalf("alone: %v %v, want to ask", p, role)
	}
	a, role := l.Join("k")
	if role != Wait {
		t.Fatalf("while one asks: %v, want to wait", role)
	}
	b, _ := l.Join("k")
	if !l.Took("k") {
		t.Fatal("others wait, but no agent is to be sent")
	}
	stopped, gone := false, make(chan struct{})
	l.Sent("k", func() { stopped = true }, gone)
	if given, again := l.Grant("k", 7); !given || !again {
		t.Fatalf("Grant: %v %v", given, again)
	}
	if got := <-a.Ready(); got != 7 {
		t.Fatalf("the first got %d", got)
	}
	l.Sent("k", func() { stopped = true }, gone)
	if _, given, agent := l.Leave("k", b); given || !stopped || agent != gone {
		t.Fatalf("the last left: given %v, agent stopped %v", given, stopped)
	}
	if l.GaveUp("k") {
		t.Fatal("nobody waits, but the agent is to ask again")
	}
	if l.Pass("k", 8, nil) {
		t.Fatal("passed on to nobody")
	}
	l.Left("k")
	l.Left("k")
	if len(l.crews) != 0 {
		t.Fatalf("left behind: %v", l.crews)
	}
}

// Who leaves and is given something at the same moment gets it from Leave, and nobody else does.
// covers: W7
func TestLeaveOrGivenNeverBoth(t *testing.T) {
	var l Line[string, int]
	l.Join("k")
	p, _ := l.Join("k")
	l.Took("k")
	if !l.Pass("k", 5, nil) {
		t.Fatal("not passed")
	}
	if b, given, _ := l.Leave("k", p); !given || b != 5 {
		t.Fatalf("Leave: %d %v", b, given)
	}
}

func TestFailReachesAllWhoWait(t *testing.T) {
	var l Line[string, int]
	l.Join("k")
	p, _ := l.Join("k")
	q, _ := l.Join("k")
	if !l.GaveUp("k") {
		t.Fatal("no agent for those who are left")
	}
	l.Fail("k", -1)
	if <-p.Ready() != -1 || <-q.Ready() != -1 || len(l.crews) != 0 {
		t.Fatal("not all were told")
	}
}

func TestNoteIsForgottenWithTheNextBaton(t *testing.T) {
	var l Line[string, int]
	l.Note("nobody", 1)
	if l.Noted("nobody") != nil {
		t.Error("a note for nobody")
	}
	l.Join("k")
	l.Join("k")
	l.Note("k", "held")
	if l.Noted("k") != "held" {
		t.Error("note lost")
	}
	l.Pass("k", 1, nil)
	if l.Noted("k") != nil {
		t.Error("note of an earlier holder")
	}
}

// storm is a process whose goroutines share a store that lets one in.
type storm struct {
	line    Line[string, int]
	store   chan struct{} // who has its one token, holds
	inside  atomic.Int32
	asking  atomic.Int32
	granted atomic.Int32
	agents  sync.WaitGroup
}

func (s *storm) ask(ctx context.Context) bool {
	if s.asking.Add(1) > 1 {
		panic("two of one process ask the store")
	}
	defer s.asking.Add(-1)
	select {
	case <-s.store:
		return true
	case <-ctx.Done():
		return false
	}
}

func (s *storm) agent() {
	s.agents.Go(func() {
		for again := true; again; {
			ctx, stop := context.WithCancel(context.Background())
			gone := make(chan struct{})
			s.line.Sent("k", stop, gone)
			if s.ask(ctx) {
				var given bool
				if given, again = s.line.Grant("k", 0); !given {
					s.store <- struct{}{}
				}
			} else {
				again = s.line.GaveUp("k")
			}
			stop()
			close(gone)
		}
	})
}

// use waits for its turn under ctx, uses it, and hands on or gives back.
func (s *storm) use(ctx context.Context, passes int) bool {
	p, role := s.line.Join("k")
	if role == Send {
		s.agent()
	}
	n := 0
	if role == Ask {
		ok := s.ask(ctx)
		var send bool
		if ok {
			send = s.line.Took("k")
		} else {
			send = s.line.GaveUp("k")
		}
		if send {
			s.agent()
		}
		if !ok {
			return false
		}
	} else {
		select {
		case n = <-p.Ready():
		case <-ctx.Done():
			var given bool
			var gone <-chan struct{}
			if n, given, gone = s.line.Leave("k", p); !given {
				if gone != nil {
					<-gone
				}
				return false
			}
		}
	}
	if s.inside.Add(1) > 1 {
		panic("two inside")
	}
	s.granted.Add(1)
	time.Sleep(time.Millisecond)
	s.inside.Add(-1)
	if n >= passes || !s.line.Pass("k", n+1, p) {
		s.store <- struct{}{}
		s.line.Left("k")
	}
	return true
}

// Many come, some lose patience, at any moment: one at a time is inside, one at a time asks, nothing is left behind.
// covers: W7, W8, W13, G1
func TestLineStorm(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			s := &storm{store: make(chan struct{}, 1)}
			s.store <- struct{}{}
			var all sync.WaitGroup
			for i := range uint64(100) {
				rng := rand.New(rand.NewPCG(seed, i))
				all.Go(func() {
					time.Sleep(time.Duration(rng.Int64N(int64(50 * time.Millisecond))))
					ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rng.Int64N(int64(100*time.Millisecond))))
					defer cancel()
					s.use(ctx, rng.IntN(8))
				})
			}
			all.Wait()
			s.agents.Wait()
			if len(s.line.crews) != 0 || len(s.store) != 1 || s.granted.Load() < 10 {
				t.Fatalf("seed %d: crews %v, store %d, granted %d", seed, s.line.crews, len(s.store), s.granted.Load())
			}
		})
	}
}

// First come, first served.
func TestLineOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &storm{store: make(chan struct{}, 1)}
		s.store <- struct{}{}
		var mu sync.Mutex
		var order []int
		var all sync.WaitGroup
		for i := range 50 {
			all.Go(func() {
				time.Sleep(time.Duration(i) * time.Microsecond)
				if s.use(context.Background(), 3) {
					mu.Lock()
					order = append(order, i)
					mu.Unlock()
				}
			})
		}
		all.Wait()
		s.agents.Wait()
		if len(order) != 50 || !slices.IsSorted(order) {
			t.Errorf("served in the order %v", order)
		}
	})
}

func TestLineKnowsHowManyAreAhead(t *testing.T) {
	var l Line[string, int]
	if n, near := l.Waiting("k"); n != 0 || near {
		t.Fatalf("nobody: %d, %v", n, near)
	}
	l.Join("k")
	var places []*Place[int]
	for i := range 5 {
		if n, near := l.Waiting("k"); n != i+1 || !near { // with who asks
			t.Errorf("%d wait (%v), want %d", n, near, i+1)
		}
		p, _ := l.Join("k")
		places = append(places, p)
	}
	ahead := func(want ...int) {
		t.Helper()
		for i, p := range places {
			if n := l.Ahead("k", p); n != want[i] {
				t.Errorf("%d are ahead of %d, want %d", n, i, want[i])
			}
		}
	}
	ahead(1, 2, 3, 4, 5)
	l.Took("k")
	ahead(0, 1, 2, 3, 4)
	l.Pass("k", 1, nil)
	ahead(0, 0, 1, 2, 3)
	l.Leave("k", places[2])
	ahead(0, 0, 0, 2, 2) // one too many for the fourth, until the line has moved; never more than there are
	l.Pass("k", 1, nil)
	ahead(0, 0, 0, 0, 1)
}
