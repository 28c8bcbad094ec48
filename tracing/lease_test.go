package tracing_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/waiting"
)

// work locks key for a while under a span of its own, in a goroutine.
func (p *process) work(t *testing.T, wg *sync.WaitGroup, name, key string, d time.Duration) {
	wg.Go(func() {
		ctx, span := p.tp.Tracer("test").Start(t.Context(), name)
		defer span.End()
		g, err := p.Lock(ctx, key)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return
		}
		time.Sleep(d)
		_ = g.Unlock()
	})
	synctest.Wait() // it holds or waits
}

// under returns the span of a name whose parent is the span named by parent.
func (p *process) under(t *testing.T, parent, name string) tracetest.SpanStub {
	t.Helper()
	up := p.one(t, parent)
	for _, s := range p.named(name) {
		if s.Parent.SpanID() == id(up) {
			return s
		}
	}
	t.Fatalf("no %s under %s", name, parent)
	return tracetest.SpanStub{}
}

// Goroutines of one process hand the lease on. The first hold stands for it: it links to the others, and each to the next.
func TestPasses(t *testing.T) {
	s := setup{lock: locker.Config{Wait: waiting.Config{Passes: 8, PassTime: time.Minute}}}
	bubble(t, mem, s, func(t *testing.T, p, _ *process) {
		var wg sync.WaitGroup
		for i := range 4 {
			p.work(t, &wg, fmt.Sprint(i), "order-17", time.Second)
		}
		wg.Wait()
		synctest.Wait()
		var holds []tracetest.SpanStub
		for i := range 4 {
			holds = append(holds, p.under(t, fmt.Sprint(i), tracing.SpanHold))
		}
		for i, h := range holds {
			if d := h.EndTime.Sub(h.StartTime); d != time.Second {
				t.Errorf("hold %d lasted for %v", i, d)
			}
			if i < 3 && !slices.Equal(links(h, tracing.LinkUnblocked), []trace.SpanID{id(holds[i+1])}) {
				t.Errorf("hold %d: %v does not lead to the next", i, h.Links)
			}
			if i > 0 && !slices.Equal(links(h, tracing.LinkLease), []trace.SpanID{id(holds[0])}) {
				t.Errorf("hold %d: %v does not lead to the lease", i, h.Links)
			}
			wait := p.under(t, fmt.Sprint(i), tracing.SpanWait)
			if got := links(wait, tracing.LinkBlockedBy); len(got) != i || i > 0 && got[i-1] != id(holds[i-1]) {
				t.Errorf("wait %d is blocked by %v", i, got)
			}
			if i > 0 && !slices.Contains(events(wait), "wake pass") || i < 3 && !slices.Contains(events(h), "pass") {
				t.Errorf("events of %d: wait %q, hold %q", i, events(wait), events(h))
			}
			if got := attr(h.Attributes, tracing.AttrPasses); i > 0 && got != fmt.Sprint(i) {
				t.Errorf("hold %d is pass %q", i, got)
			}
		}
		if used := links(holds[0], tracing.LinkUsedBy); !slices.Equal(used, []trace.SpanID{id(holds[1]), id(holds[2]), id(holds[3])}) {
			t.Errorf("lease used by %v", used)
		}
		if m := p.collected(t); sum(m[tracing.MetricPasses], "", "") != 3 || sum(m[tracing.MetricContended], "", "") != 3 {
			t.Errorf("metrics: %+v", m)
		}
	})
}

// Where an agent asked the store, the other process sees the agent's lease, which leads to the goroutines that held.
func TestLeaseOfAnAgent(t *testing.T) {
	s := setup{lock: locker.Config{Wait: waiting.Config{Passes: 8, PassTime: time.Minute}}}
	bubble(t, mem, s, func(t *testing.T, one, two *process) {
		var wg sync.WaitGroup
		two.work(t, &wg, "far", "k", time.Second)
		one.work(t, &wg, "a", "k", time.Second) // asks for itself
		one.work(t, &wg, "b", "k", time.Second) // in the local line
		one.work(t, &wg, "c", "k", time.Second)
		time.Sleep(1100 * time.Millisecond) // a holds
		two.work(t, &wg, "late", "k", time.Second)
		wg.Wait()
		synctest.Wait()
		a, b, c := one.under(t, "a", tracing.SpanHold), one.under(t, "b", tracing.SpanHold), one.under(t, "c", tracing.SpanHold)
		late := two.under(t, "late", tracing.SpanWait)
		blocked := links(late, tracing.LinkBlockedBy)
		if len(blocked) == 0 || blocked[0] != id(a) {
			t.Fatalf("late is blocked by %v, and a is %v", blocked, id(a))
		}
		if used := links(a, tracing.LinkUsedBy); !slices.Contains(used, id(b)) && !slices.Contains(used, id(c)) {
			t.Errorf("a's lease was used by %v", used)
		}
		if got := links(one.under(t, "b", tracing.SpanWait), tracing.LinkBlockedBy); len(got) < 2 || got[0] != id(two.under(t, "far", tracing.SpanHold)) {
			t.Errorf("b was blocked by %v", got)
		}
	})
}

// Without passes every hold is the store's grant to an agent.
func TestLeasesWithoutPasses(t *testing.T) {
	bubble(t, mem, setup{lock: locker.Config{Wait: waiting.Config{Passes: -1}}}, func(t *testing.T, one, two *process) {
		var wg sync.WaitGroup
		one.work(t, &wg, "a", "k", time.Second)
		one.work(t, &wg, "b", "k", 2*time.Second)
		two.work(t, &wg, "far", "k", time.Second)
		wg.Wait()
		synctest.Wait()
		lease, b := one.one(t, tracing.SpanLease), one.under(t, "b", tracing.SpanHold)
		if got := links(lease, tracing.LinkUsedBy); !slices.Equal(got, []trace.SpanID{id(b)}) || !lease.EndTime.Equal(b.EndTime) {
			t.Errorf("lease until %v used by %v; b is %v until %v", lease.EndTime, got, id(b), b.EndTime)
		}
		if !slices.Contains(events(lease), "granted") || !slices.Contains(events(lease), "queued held 1") {
			t.Errorf("events of the lease: %q", events(lease))
		}
		blocked := links(two.under(t, "far", tracing.SpanWait), tracing.LinkBlockedBy)
		if !slices.Equal(blocked, []trace.SpanID{id(one.under(t, "a", tracing.SpanHold)), id(lease)}) {
			t.Errorf("far was blocked by %v", blocked)
		}
		if lease.Parent.SpanID() != id(one.under(t, "b", tracing.SpanWait)) {
			t.Error("the lease is not under the wait that sent the agent")
		}
	})
}

// Whatever happens, every span ends once and nothing is remembered.
func TestManyAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	bubble(t, mem, setup{lock: locker.Config{TTL: time.Second}}, func(t *testing.T, one, two *process) {
		var wg sync.WaitGroup
		for i := range 40 {
			r := rand.New(rand.NewPCG(seed, uint64(i)))
			wg.Go(func() {
				for range 30 {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(int(200*time.Millisecond))))
					p := []*process{one, two}[i%2]
					g, err := p.Lock(ctx, fmt.Sprint("k", r.IntN(2)), locker.TTL(time.Duration(1+r.IntN(2))*time.Second))
					if err == nil {
						time.Sleep(time.Duration(r.IntN(int(4 * time.Millisecond))))
						_ = g.Unlock()
					}
					cancel()
				}
			})
		}
		wg.Wait()
		synctest.Wait()
		seen, named := map[trace.SpanID]string{}, map[string]int{}
		for _, p := range []*process{one, two} {
			for _, s := range p.ended() {
				if was, twice := seen[id(s)]; twice {
					t.Errorf("%s has the id of a %s", s.Name, was)
				}
				seen[id(s)] = s.Name
				named[s.Name]++
			}
			if m := p.collected(t); sum(m[tracing.MetricHolds], "", "") != 0 || sum(m[tracing.MetricWaiters], "", "") != 0 {
				t.Errorf("metrics: %+v", m)
			}
		}
		for _, p := range []*process{one, two} {
			for _, s := range p.ended() {
				for _, l := range s.Links {
					if to := seen[l.SpanContext.SpanID()]; to == "" {
						t.Errorf("a link %v of %s leads nowhere", l.Attributes, s.Name)
					} else if kind := attr(l.Attributes, tracing.AttrLink); kind == tracing.LinkBlockedBy && to != tracing.SpanHold && to != tracing.SpanLease {
						t.Errorf("%s is blocked by a %s", s.Name, to)
					}
				}
			}
		}
		if named[tracing.SpanWait] != 1200 || named[tracing.SpanHold] < 100 || named[tracing.SpanLease] < 10 {
			t.Errorf("spans: %v", named)
		}
	})
}

// Those who wait in line in one process learn who held in between, although their agent does not ask again.
func TestHoldersInBetween(t *testing.T) {
	s := setup{lock: locker.Config{Wait: waiting.Config{Passes: -1}}}
	bubble(t, mem, s, func(t *testing.T, one, two *process) {
		var wg sync.WaitGroup
		one.work(t, &wg, "a", "k", 500*time.Millisecond)
		two.work(t, &wg, "far", "k", 300*time.Millisecond)
		one.work(t, &wg, "b", "k", time.Millisecond)
		wg.Wait()
		synctest.Wait()
		blocked := links(one.under(t, "b", tracing.SpanWait), tracing.LinkBlockedBy)
		if want := []trace.SpanID{id(one.under(t, "a", tracing.SpanHold)), id(two.under(t, "far", tracing.SpanHold))}; !slices.Equal(blocked, want) {
			t.Errorf("b was blocked by %v, want %v", blocked, want)
		}
	})
}

// An agent that is granted a key that nobody wants any more gives it back, and its lease is over.
func TestDroppedLease(t *testing.T) {
	bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
		ctx, end := p.obs.Begin(t.Context(), locker.OpErrand, locker.Hold{Key: "k"})
		end(locker.Hold{Key: "k", Token: 7}, nil)
		if p.obs.Left() != 1 {
			t.Error("the lease is not there")
		}
		sc := trace.SpanContextFromContext(ctx)
		traceparent := fmt.Sprintf("00-%s-%s-01", sc.TraceID(), sc.SpanID())
		p.obs.Event(ctx, locker.Event{Kind: locker.EventDrop, Lease: locker.Lease{Traceparent: traceparent}})
		if s := p.one(t, tracing.SpanLease); !slices.Contains(events(s), "granted") {
			t.Errorf("events %q", events(s))
		}
	})
}
