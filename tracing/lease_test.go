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

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
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

// waitOf returns the wait of a lock.
func (p *process) waitOf(t *testing.T, lock tracetest.SpanStub) tracetest.SpanStub {
	t.Helper()
	return p.childOf(t, lock, tracing.SpanWait)
}

func (p *process) leaseOf(t *testing.T, lock tracetest.SpanStub) tracetest.SpanStub {
	t.Helper()
	return p.childOf(t, lock, tracing.SpanLease)
}

func (p *process) childOf(t *testing.T, lock tracetest.SpanStub, name string) tracetest.SpanStub {
	t.Helper()
	for _, s := range p.named(name) {
		if s.Parent.SpanID() == id(lock) {
			return s
		}
	}
	t.Fatalf("%s has no %s", lock.Name, name)
	return tracetest.SpanStub{}
}

// Goroutines of one process hand the lease on. The first, who found the key free, is named by the
// claim: the others link to it. Who waits links to all who held meanwhile.
func TestPasses(t *testing.T) {
	s := setup{lock: locker.Config{Wait: waiting.Config{Passes: 8, PassTime: time.Minute}}}
	bubble(t, mem, s, func(t *testing.T, p, _ *process) {
		var wg sync.WaitGroup
		for i := range 4 {
			p.work(t, &wg, fmt.Sprint(i), "order-17", time.Second)
		}
		wg.Wait()
		synctest.Wait()
		var locks []tracetest.SpanStub
		for i := range 4 {
			locks = append(locks, p.under(t, fmt.Sprint(i), "lock order"))
		}
		for i, l := range locks {
			if d := l.EndTime.Sub(event(t, l, tracing.EventGranted)); d != time.Second {
				t.Errorf("hold %d lasted for %v", i, d)
			}
			if passed := slices.Contains(events(l), "pass"); passed != (i < 3) {
				t.Errorf("events of %d: %q", i, events(l))
			}
			if i == 0 {
				continue
			}
			if !slices.Equal(links(l, tracing.LinkLease), []trace.SpanID{id(locks[0])}) {
				t.Errorf("lock %d: %v does not lead to the lease", i, l.Links)
			}
			wait := p.waitOf(t, l)
			if got := p.blockers(wait); len(got) != i || got[0] != id(locks[0]) ||
				got[i-1] != id(locks[i-1]) {
				t.Errorf("wait %d is blocked by %v", i, got)
			}
			if !slices.Equal(events(wait), []string{"wake pass"}) {
				t.Errorf("events of wait %d: %q", i, events(wait))
			}
			if got := attr(l.Attributes, tracing.AttrPasses); got != fmt.Sprint(i) {
				t.Errorf("lock %d is pass %q", i, got)
			}
		}
		if n := len(p.named(tracing.SpanWait)); n != 3 {
			t.Errorf("%d have waited", n)
		}
		if m := p.collected(t); sum(m[tracing.MetricPasses], "", "") != 3 ||
			sum(m[tracing.MetricContended], "", "") != 3 {
			t.Errorf("metrics: %+v", m)
		}
	})
}

// The lease of those who wait is a span of its own, which leads to those who used it. It is what
// other processes see, since it lasts as long as they are in the way.
func TestLeaseOfACohort(t *testing.T) {
	s := setup{lock: locker.Config{Wait: waiting.Config{Passes: 8, PassTime: time.Minute}}}
	bubble(t, mem, s, func(t *testing.T, one, two *process) {
		var wg sync.WaitGroup
		two.work(t, &wg, "far", "k", time.Second)
		one.work(t, &wg, "a", "k", time.Second)
		one.work(t, &wg, "b", "k", time.Second)
		time.Sleep(1100 * time.Millisecond) // a holds
		two.work(t, &wg, "late", "k", time.Second)
		wg.Wait()
		synctest.Wait()
		far, a, b := two.under(t, "far", "lock k"), one.under(t, "a", "lock k"), one.under(t, "b",
			"lock k")
		lease := one.one(t, tracing.SpanLease)
		if got := links(lease, tracing.LinkUsedBy); !slices.Equal(got,
			[]trace.SpanID{id(a), id(b)}) {
			t.Errorf("the lease was used by %v, want %v and %v", got, id(a), id(b))
		}
		if lease.Parent.SpanID() != id(a) || lease.StartTime.After(far.EndTime) ||
			!lease.EndTime.Equal(b.EndTime) {
			t.Errorf("the lease under %v from %v to %v", lease.Parent.SpanID(), lease.StartTime,
				lease.EndTime)
		}
		for name, l := range map[string]tracetest.SpanStub{"a": a, "b": b} {
			if got := links(l, tracing.LinkLease); !slices.Equal(got, []trace.SpanID{id(lease)}) {
				t.Errorf("%s uses %v", name, got)
			}
			if got := one.blockers(one.waitOf(t, l)); got[0] != id(far) ||
				slices.Contains(got, id(lease)) {
				t.Errorf("%s was blocked by %v, and not first by %v", name, got, id(far))
			}
		}
		late := two.waitOf(t, two.under(t, "late", "lock k"))

		if got := two.blockers(late); !slices.Equal(got, []trace.SpanID{id(lease)}) {
			t.Errorf("late was blocked by %v, want %v", got, id(lease))
		}
	})
}

// Without passes every hold has a lease of its own. A process that queues again for those who wait
// names its lease, and is told who holds in between.
func TestHoldersInBetween(t *testing.T) {
	bubble(t, mem, setup{lock: locker.Config{Wait: waiting.Config{Passes: -1}}},
		func(t *testing.T, one, two *process) {
			var wg sync.WaitGroup
			one.work(t, &wg, "a", "k", time.Second)
			two.work(t, &wg, "far", "k", 3*time.Second)
			one.work(t, &wg, "b", "k", 3*time.Second)
			time.Sleep(4500 * time.Millisecond) // b holds
			two.work(t, &wg, "late", "k", time.Second)
			wg.Wait()
			synctest.Wait()
			a, far, b := one.under(t, "a", "lock k"), two.under(t, "far", "lock k"),
				one.under(t, "b", "lock k")
			late, lease := two.under(t, "late", "lock k"), one.one(t, tracing.SpanLease)
			for _, c := range []struct {
				name    string
				p       *process
				lock    tracetest.SpanStub
				blocked []trace.SpanID
			}{
				{"far", two, far, []trace.SpanID{id(a)}},
				{"b", one, b, []trace.SpanID{id(two.leaseOf(t, far)), id(a)}}, // the longest first
				{"late", two, late, []trace.SpanID{id(lease)}},
			} {
				if got := c.p.blockers(c.p.waitOf(t, c.lock)); !slices.Equal(got, c.blocked) {
					t.Errorf("%s was blocked by %v, want %v", c.name, got, c.blocked)
				}
			}
			if lease.Parent.SpanID() != id(b) || !lease.StartTime.Equal(a.EndTime) ||
				!lease.EndTime.Equal(b.EndTime) ||
				!slices.Equal(links(lease, tracing.LinkUsedBy), []trace.SpanID{id(b)}) {
				t.Errorf("b's lease under %v from %v to %v, used by %v", lease.Parent.SpanID(),
					lease.StartTime, lease.EndTime, lease.Links)
			}
		})
}

// lagging is a store whose releases take a while to get there, and their answers to come back.
type lagging struct {
	backend.Backend
	there, back time.Duration
}

func (l *lagging) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	time.Sleep(l.there)
	_, err := l.Backend.Release(ctx, c)
	time.Sleep(l.back)
	return backend.Released{}, err
}

// A process queues again beside its release. It may be told that it still holds itself, which is no
// news, or who is next, which is, even if the release is not answered yet.
func TestAttemptBesideRelease(t *testing.T) {
	for name, store := range map[string]*lagging{
		"late":          {there: 500 * time.Millisecond},
		"answered late": {back: 500 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store.Backend = mem()
				s := setup{lock: locker.Config{Wait: waiting.Config{Passes: -1}}}
				one, two := startProcess(t, store, s), startProcess(t, store.Backend, s)
				var wg sync.WaitGroup
				one.work(t, &wg, "a", "k", time.Second)
				two.work(t, &wg, "far", "k", 300*time.Millisecond) // over before the next attempt
				one.work(t, &wg, "b", "k", time.Second)
				one.work(t, &wg, "c", "k", time.Second)
				time.Sleep(1600 * time.Millisecond) // a is over
				one.work(t, &wg, "d", "k", time.Second)
				wg.Wait()
				synctest.Wait()
				a, far, b := one.under(t, "a", "lock k"), two.under(t, "far", "lock k"),
					one.under(t, "b", "lock k")
				// While a's release was under way the store named a alone, and far tells at its
				// own.
				want := []trace.SpanID{id(a), id(b), id(two.leaseOf(t, far))}
				if got := one.blockers(one.waitOf(t, one.under(t, "c", "lock k"))); !slices.Equal(
					got, want) {
					t.Errorf("c was blocked by %v, want %v", got, want)
				}
				if got := one.blockers(one.waitOf(t, one.under(t, "d", "lock k"))); slices.Contains(
					got, id(a)) || !slices.Contains(got, id(b)) {
					t.Errorf("d was blocked by %v, and a, %v, was over", got, id(a))
				}
				for _, p := range []*process{one, two} {
					if err := p.Shutdown(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		})
	}
}

// A lease that nobody waits for any more ends, and so does one that is lost.
func TestLeaseEnds(t *testing.T) {
	s := &silent{}
	s.Backend = mem()
	synctest.Test(t, func(t *testing.T) {
		p, far := startProcess(t, s, setup{lock: locker.Config{TTL: 3 * time.Second}}),
			startProcess(t, s.Backend, setup{})
		g := far.lock(t, "k")
		got := make(chan *locker.Guard[struct{}])
		go func() { got <- p.lock(t, "k") }()
		time.Sleep(time.Second)
		_ = g.Unlock()
		g = <-got
		if n := len(p.named(tracing.SpanLease)); n != 0 {
			t.Fatal("the lease has ended already")
		}
		s.answer = fmt.Errorf("said by test: %w", context.Canceled)
		<-g.Lost()
		synctest.Wait()
		lease, lock := p.one(t, tracing.SpanLease), p.one(t, "lock k")
		if attr(lease.Attributes, tracing.AttrCause) != "expired" ||
			!lease.EndTime.Equal(lock.EndTime) || lease.Status.Code != lock.Status.Code {
			t.Errorf("lease: %v until %v, the lock until %v", lease.Attributes, lease.EndTime,
				lock.EndTime)
		}
		if n := len(p.named(tracing.SpanRenew)); n != 0 {
			t.Errorf("%d spans of renewals that were cancelled", n)
		}
		if n := sum(p.collected(t)[tracing.MetricRenewals], tracing.AttrResult,
			tracing.ResultCancelled); n == 0 {
			t.Error("renewals that were cancelled are not counted")
		}
		if err := g.Unlock(); err == nil {
			t.Error("unlocked")
		}
		for _, p := range []*process{p, far} {
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Whatever happens, every span ends once, nothing is remembered, and every link leads to a span, at
// any sampling.
func TestManyAtOnce(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, sampled := range []float64{1, 0.3} {
		s := setup{
			lock:    locker.Config{TTL: time.Second},
			sampler: sdktrace.TraceIDRatioBased(sampled),
		}
		bubble(t, mem, s, func(t *testing.T, one, two *process) {
			var wg sync.WaitGroup
			for i := range 40 {
				r := rand.New(rand.NewPCG(seed, uint64(i)))
				wg.Go(func() {
					for range 30 {
						ctx, cancel := context.WithTimeout(t.Context(),
							time.Duration(r.IntN(int(200*time.Millisecond))))
						p := []*process{one, two}[i%2]
						g, err := p.Lock(ctx, fmt.Sprint("k", r.IntN(2)),
							locker.TTL(time.Duration(1+r.IntN(2))*time.Second))
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
			seen, named, linked := map[trace.SpanID]string{}, map[string]int{}, 0
			for _, p := range []*process{one, two} {
				for _, s := range p.ended() {
					if was, twice := seen[id(s)]; twice {
						t.Errorf("%s has the id of a %s", s.Name, was)
					}
					seen[id(s)] = s.Name
					named[s.Name]++
				}
				if m := p.collected(t); sum(m[tracing.MetricHolds], "", "") != 0 ||
					sum(m[tracing.MetricWaiters], "", "") != 0 ||
					sum(m[tracing.MetricAcquisitions], "", "") != 600 {
					t.Errorf("metrics: %+v", m)
				}
			}
			for _, p := range []*process{one, two} {
				for _, s := range p.ended() {
					for _, l := range s.Links {
						linked++
						if to := seen[l.SpanContext.SpanID()]; to != "lock k" &&
							to != tracing.SpanLease {
							t.Errorf("a link %v of %s leads to %q", l.Attributes, s.Name, to)
						}
					}
				}
			}
			if sampled == 1 && (named["lock k"] != 1200 || named["lock.wait k"] < 100 ||
				named[tracing.SpanLease] < 10) || linked < 100 {
				t.Errorf("spans: %v, %d links", named, linked)
			}
		})
	}
}
