package tracing_test

import (
	"cmp"
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

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/waiting"
)

// distant is a store each request to which takes a while.
type distant struct {
	backend.Backend
	rtt time.Duration
}

func (d distant) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	time.Sleep(d.rtt / 2)
	defer time.Sleep(d.rtt / 2)
	return d.Backend.TryAcquire(ctx, c)
}

func (d distant) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	time.Sleep(d.rtt / 2)
	defer time.Sleep(d.rtt / 2)
	return d.Backend.Release(ctx, c)
}

// A held is when a lock was held, by the spans.
type held struct {
	trace    string
	key      string
	from, to time.Time
}

// Processes with a request each, as pods have them: each wait draws who held meanwhile. Bars do not
// overlap, lie within the wait, and nobody is drawn for longer than it held; the longest is the one
// that held for the longest; what is known, free and not known adds up to the wait.
func TestBarsOfPods(t *testing.T) {
	for _, mode := range []waiting.Mode{waiting.Handoff, waiting.Notify, waiting.Poll} {
		t.Run(string(mode), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { barsOfPods(t, mode) })
		})
	}
}

func barsOfPods(t *testing.T, mode waiting.Mode) {
	b := distant{mem(), time.Millisecond}
	var pods []*process
	var wg sync.WaitGroup
	r := rand.New(rand.NewPCG(1, 2))
	for i := range 12 {
		p := startProcess(t, b, setup{
			unseen: true, cfg: tracing.Config{ShowKeys: true},
			lock: locker.Config{Service: fmt.Sprint("pod", i), Wait: waiting.Config{Mode: mode}},
		})
		pods = append(pods, p)
		var plan []time.Duration
		for range 30 {
			plan = append(plan, 20*time.Millisecond+
				time.Duration(r.Int64N(int64(60*time.Millisecond))),
				time.Duration(r.Int64N(int64(100*time.Millisecond))))
		}
		wg.Go(func() {
			for j := 0; j < len(plan); j += 2 {
				time.Sleep(plan[j+1])
				p.serve(t, fmt.Sprint("request ", j), fmt.Sprint("order-", j/2%2), plan[j])
			}
		})
	}
	wg.Wait()
	synctest.Wait()
	var all []held                      // by trace, as each request has one
	awaited := map[trace.TraceID]bool{} // those whose holder knew of waiters
	for _, p := range pods {
		for _, l := range p.named("lock order") {
			awaited[l.SpanContext.TraceID()] = attr(l.Attributes, tracing.AttrWaiters) != ""
			all = append(all, held{
				l.SpanContext.TraceID().String(),
				attr(l.Attributes, tracing.AttrKey), event(t, l, tracing.EventGranted), l.EndTime,
			})
		}
	}
	ends := map[waiting.Mode]string{
		waiting.Handoff: tracing.EndHanded,
		waiting.Notify:  tracing.EndReleased,
	}
	var parts []float64
	wrongLongest, links := 0, 0
	for _, p := range pods {
		for _, w := range p.named(tracing.SpanWait) {
			took := w.EndTime.Sub(w.StartTime)
			bars := p.bars(w)
			key := attr(w.Attributes, tracing.AttrKey)
			all := slices.DeleteFunc(slices.Clone(all), func(h held) bool { return h.key != key })
			known := checkBars(t, w, bars, all)
			for _, b := range bars {
				end := attr(b.Attributes, tracing.AttrHolderEnd)
				if told := attr(b.Attributes, tracing.AttrHolderToken) != ""; told &&
					end != ends[mode] || !told && end != ends[mode] && end != "" {
					t.Errorf("%s ended: %q; told: %v", b.Name, end, told)
				}
				for _, l := range b.Links {
					if links++; !awaited[l.SpanContext.TraceID()] {
						t.Errorf("%s links to a hold that did not know of the waiter, and "+
							"may not be kept", b.Name)
					}
				}
			}
			rest := seconds(w.Attributes, tracing.AttrUnheld) + seconds(w.Attributes,
				tracing.AttrUnexplained) + seconds(w.Attributes, tracing.AttrOthersHeld)
			if took >= 10*time.Millisecond && (known+rest-took).Abs() > took/50 {
				t.Errorf("%v are known, %v not, of a wait of %v", known, rest, took)
			}
			if took < 20*time.Millisecond {
				continue
			}
			parts = append(parts, float64(known)/float64(took))
			if mode == waiting.Handoff && (len(bars) == 0 || !isLongest(w, bars[0], all)) {
				wrongLongest++
			}
		}
		if err := p.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	}
	slices.Sort(parts)
	median, tenth := parts[len(parts)/2], parts[len(parts)/10]
	t.Logf("%d slow waits, covered %.3f in the median, %.3f at the tenth percentile; %d with a "+
		"wrong longest, %d links", len(parts), median, tenth, wrongLongest, links)
	if mode == waiting.Handoff && (median < 0.95 || tenth < 0.85 || wrongLongest*100 > len(parts) ||
		links < 2*len(parts)) || len(parts) < 100 {
		t.Errorf("too little is known")
	}
}

// Two processes of twenty goroutines each, whose holds change places within a process and between
// the two: what is drawn, what the others held and what nobody held add up to a slow wait.
func TestBarsOfAHotKey(t *testing.T) {
	const rtt = time.Millisecond
	bubble(t, func() backend.Backend {
		return distant{mem(), rtt}
	}, setup{unseen: true}, func(t *testing.T, one, two *process) {
		var all sync.WaitGroup
		r := rand.New(rand.NewPCG(1, 2))
		for i := range 20 {
			for _, p := range []*process{one, two} {
				var holds []time.Duration
				for range 10 {
					holds = append(holds, time.Millisecond+
						time.Duration(r.Int64N(int64(40*time.Millisecond))))
				}
				all.Go(func() {
					for j, d := range holds {
						p.serve(t, fmt.Sprint(i, " ", j), "k", d)
					}
				})
			}
		}
		all.Wait()
		waits := 0
		for _, p := range []*process{one, two} {
			for _, w := range p.named(tracing.SpanWait) {
				took := w.EndTime.Sub(w.StartTime)
				if took < 20*time.Millisecond {
					continue
				}
				waits++
				last := w.StartTime
				rest := took - seconds(w.Attributes, tracing.AttrOthersHeld) - seconds(w.Attributes,
					tracing.AttrUnheld)
				for _, b := range inOrder(p.bars(w)) {
					if b.StartTime.Before(last) || b.EndTime.After(w.EndTime) {
						t.Errorf("a bar from %v to %v after %v in a wait until %v", b.StartTime,
							b.EndTime, last, w.EndTime)
					}
					last = b.EndTime
					rest -= b.EndTime.Sub(b.StartTime)
				}
				// Who is granted the key is not known before the answer.
				if rest.Abs() > max(took/50, rtt) {
					t.Errorf("%v of a wait of %v are not explained", rest, took)
				}
			}
		}
		if waits < 100 {
			t.Errorf("%d slow waits", waits)
		}
	})
}

// overlap is how long a hold lasted within an interval.
func (h held) overlap(from, to time.Time) time.Duration {
	if h.from.After(from) {
		from = h.from
	}
	if h.to.Before(to) {
		to = h.to
	}
	return max(to.Sub(from), 0)
}

// inOrder are bars from left to right.
func inOrder(bars []tracetest.SpanStub) []tracetest.SpanStub {
	return slices.SortedFunc(slices.Values(bars), func(a, b tracetest.SpanStub) int {
		return cmp.Or(a.StartTime.Compare(b.StartTime), a.EndTime.Compare(b.EndTime))
	})
}

// checkBars compares the bars of a wait with what was held, and returns how much they cover.
func checkBars(t *testing.T, w tracetest.SpanStub, bars []tracetest.SpanStub,
	all []held,
) (known time.Duration) {
	t.Helper()
	const most = 10 * time.Millisecond
	last := w.StartTime
	for _, b := range inOrder(bars) {
		d := b.EndTime.Sub(b.StartTime)
		known += d
		if b.StartTime.Before(last) || b.EndTime.After(w.EndTime) {
			t.Errorf("a bar from %v to %v after %v in a wait until %v", b.StartTime, b.EndTime,
				last, w.EndTime)
		}
		last = b.EndTime
		of := attr(b.Attributes, tracing.AttrHolderTrace)
		if of == w.SpanContext.TraceID().String() {
			t.Errorf("it waited for itself")
		}
		var true time.Duration
		for _, h := range all {
			if h.trace == of {
				true += h.overlap(w.StartTime, w.EndTime)
			}
		}
		if d > true+most {
			t.Errorf("%s is drawn for %v, and held for %v of the wait", b.Name, d, true)
		}
	}
	return known
}

// isLongest reports whether a bar is of one who held for the longest of a wait, to a millisecond.
func isLongest(w, bar tracetest.SpanStub, all []held) bool {
	var longest, its time.Duration
	for _, h := range all {
		d := h.overlap(w.StartTime, w.EndTime)
		if h.trace == attr(bar.Attributes, tracing.AttrHolderTrace) {
			its = max(its, d)
		}
		longest = max(longest, d)
	}
	return longest-its <= time.Millisecond
}

// The longest sixteen are drawn, the others counted; nobody where the wait was short. Who holds
// when a wait is given up has not ended.
func TestBars(t *testing.T) {
	bubble(t, mem, setup{
		unseen: true,
		lock:   locker.Config{Wait: waiting.Config{Passes: 100, PassTime: time.Hour}},
	},
		func(t *testing.T, one, two *process) {
			var all sync.WaitGroup
			for i := range 20 {
				hold := time.Second
				if i < 3 {
					hold = 100 * time.Millisecond
				}
				one.work(t, &all, fmt.Sprint(i), "k", hold)
			}
			all.Wait()
			wait := one.waitOf(t, one.under(t, "19", "lock k"))
			bars := one.bars(wait)
			if len(bars) != 16 || slices.ContainsFunc(bars, func(b tracetest.SpanStub) bool {
				return b.EndTime.Sub(b.StartTime) != time.Second
			}) ||
				attr(wait.Attributes, tracing.AttrOthers) != "3" ||
				attr(wait.Attributes, tracing.AttrOthersHeld) != "0.3" ||
				attr(bars[0].Attributes, tracing.AttrHolderEnd) != tracing.EndReleased ||
				attr(wait.Attributes, tracing.AttrHolders) != "19" {
				t.Errorf("%d bars; the first %v; the wait %v", len(bars), bars[0].Attributes,
					wait.Attributes)
			}
			one.work(t, &all, "short", "short", 9*time.Millisecond)
			one.work(t, &all, "waits for it", "short", 0)
			all.Wait()
			if wait := one.waitOf(t,
				one.under(t, "waits for it", "lock short")); len(one.bars(wait)) > 0 ||
				attr(wait.Attributes, tracing.AttrHolderPID) == "" {
				t.Errorf("a wait of %v is drawn, or says nothing: %v",
					wait.EndTime.Sub(wait.StartTime), wait.Attributes)
			}
			g := one.lock(t, "j", locker.Note("stock-taking"))
			// Another process's hold is known at one instant, one's own always.
			for _, p := range []*process{two, one} {
				if _, err := p.Lock(t.Context(), "j", locker.WaitLimit(time.Second)); err == nil {
					t.Fatal("granted twice")
				}
				waits := p.named(tracing.SpanWait)
				wait = waits[len(waits)-1]
				bars = p.bars(wait)
				if len(bars) != 1 || attr(bars[0].Attributes,
					tracing.AttrHolderEnd) != tracing.EndHolding || len(bars[0].Links) > 0 {
					t.Errorf("bars %v", bars)
				}
				if attr(bars[0].Attributes, tracing.AttrHolderNote) != "stock-taking" ||
					attr(wait.Attributes, tracing.AttrHolderNote) != "stock-taking" {
					t.Errorf("why it is held is not said: %v, %v", bars[0].Attributes,
						wait.Attributes)
				}
			}
			if d := seconds(wait.Attributes, tracing.AttrUnexplained); d != 0 {
				t.Errorf("of its own hold %v are not known", d)
			}
			_ = g.Unlock()
		})
}

// A link leads to a span that is there: of a holder that took the key free, once it has ended, and
// never if it was killed, or goes on beside the one that waited.
func TestLinksThatLive(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for name, test := range map[string]struct {
		killed, holds bool
		opts          []locker.Option
		links         int
	}{
		"released":       {links: 1},
		"holds":          {holds: true},
		"killed":         {killed: true},
		"permit":         {opts: []locker.Option{locker.Permit(2)}},
		"permit, killed": {killed: true, opts: []locker.Option{locker.Permit(2)}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, mem, setup{}, func(t *testing.T, one, _ *process) {
				var claims []backend.Claim
				for range 1 + len(test.opts) { // as many as there may be
					c := backend.Claim{
						Key: "k", Owner: backend.NewOwner(), TTL: 5 * time.Second,
						Meta: backend.Meta{Service: "shop", Traceparent: parent},
					}
					if len(test.opts) > 0 {
						c.Mode, c.Limit = backend.Permit, 2
					}
					if _, err := one.b.TryAcquire(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					claims = append(claims, c)
				}
				if !test.killed && !test.holds {
					time.AfterFunc(2*time.Second, func() {
						_, _ = one.b.Release(t.Context(), claims[0])
					})
				}
				limit := time.Minute
				if test.holds {
					limit = time.Second
				}
				g, err := one.Lock(t.Context(), "k", append(test.opts, locker.WaitLimit(limit))...)
				if granted := err == nil; granted == test.holds {
					t.Fatal(err)
				}
				_ = g.Unlock()
				n := 0
				for _, bar := range one.bars(one.one(t, tracing.SpanWait)) {
					n += len(bar.Links)
					if attr(bar.Attributes, tracing.AttrHolderTrace) != parent[3:35] {
						t.Errorf("%s says nothing: %v", bar.Name, bar.Attributes)
					}
				}
				if n != test.links {
					t.Errorf("%d links, want %d", n, test.links)
				}
				for _, c := range claims {
					_, _ = one.b.Release(t.Context(), c)
				}
			})
		})
	}
}

// A holder that died is told of: by the bar, the wait, the lock that follows, and a count. What was
// released or handed on was not taken over.
//
// covers: G6
func TestTakenOver(t *testing.T) {
	bubble(t, mem, setup{lock: locker.Config{TTL: 3 * time.Second}},
		func(t *testing.T, one, two *process) {
			dead := backend.Claim{
				Key: "k", Owner: backend.NewOwner(), TTL: 5 * time.Second,
				Meta: backend.Meta{Service: "shop", Host: "h", PID: 7},
			}
			grant, err := one.b.TryAcquire(t.Context(), dead)
			if err != nil {
				t.Fatal(err)
			}
			var all sync.WaitGroup
			for i := range 3 {
				one.work(t, &all, fmt.Sprint(i), "k", time.Millisecond)
			}
			two.work(t, &all, "other", "k", time.Second)
			all.Wait()
			first := one.under(t, "0", "lock k")
			if got := attr(first.Attributes,
				tracing.AttrTakenOver); got != fmt.Sprint(grant.Token) {
				t.Errorf("taken over %q, want token %d", got, grant.Token)
			}
			wait := one.waitOf(t, first)
			bars := one.bars(wait)
			if len(bars) != 1 || bars[0].Name != "held by shop" ||
				attr(bars[0].Attributes, tracing.AttrHolderEnd) != tracing.EndExpired ||
				attr(wait.Attributes, tracing.AttrHolderEnd) != tracing.EndExpired {
				t.Errorf("bars %v of %v", bars, wait.Attributes)
			}
			for p, name := range map[*process]string{one: "1", two: "other"} {
				lock := p.under(t, name, "lock k")
				if got := attr(lock.Attributes, tracing.AttrTakenOver); got != "" {
					t.Errorf("%s has taken over %s, and who held before had released", name, got)
				}
				if bars := p.bars(p.waitOf(t, lock)); p == two &&
					(len(bars) == 0 || slices.ContainsFunc(bars, func(b tracetest.SpanStub) bool {
						return b.Name != "held by shop" &&
							attr(b.Attributes, tracing.AttrHolderEnd) == tracing.EndExpired
					})) {
					t.Errorf("%s was behind %v", name, bars)
				}
			}
			if n := sum(one.collected(t)[tracing.MetricTakenOver], "", ""); n != 1 {
				t.Errorf("%d were taken over, want 1", n)
			}
			if n := sum(two.collected(t)[tracing.MetricTakenOver], "", ""); n != 0 {
				t.Errorf("%d were taken over by the other process", n)
			}
		})
}

// Who was named is not said to have died because another did since.
func TestTakenOverFromAnother(t *testing.T) {
	bubble(t, mem, setup{lock: locker.Config{Wait: waiting.Config{Mode: waiting.Poll}}},
		func(t *testing.T, one, _ *process) {
			holds := func(ttl time.Duration) (backend.Claim, uint64) {
				c := backend.Claim{
					Key: "k", Owner: backend.NewOwner(), TTL: ttl,
					Meta: backend.Meta{Service: "shop", PID: int(ttl)},
				}
				g, err := one.b.TryAcquire(t.Context(), c)
				if err != nil {
					t.Fatal(err)
				}
				return c, g.Token
			}
			named, _ := holds(time.Minute)
			var all sync.WaitGroup
			one.work(t, &all, "waits", "k", 0)
			time.Sleep(2 * time.Second) // it asks less and less often
			synctest.Wait()
			if _, err := one.b.Release(t.Context(), named); err != nil {
				t.Fatal(err)
			}
			_, dead := holds(time.Millisecond)
			all.Wait()
			lock := one.under(t, "waits", "lock k")
			wait := one.waitOf(t, lock)
			if got := attr(lock.Attributes, tracing.AttrTakenOver); got != fmt.Sprint(dead) {
				t.Errorf("taken over %q, want %d; the wait: %v", got, dead, wait.Attributes)
			}
			for _, bar := range one.bars(wait) { // it may have asked while the other held
				if attr(bar.Attributes, tracing.AttrHolderEnd) == tracing.EndExpired &&
					attr(bar.Attributes, tracing.AttrHolderToken) != fmt.Sprint(dead) {
					t.Errorf("said to have died: %v", bar.Attributes)
				}
			}
		})
}
