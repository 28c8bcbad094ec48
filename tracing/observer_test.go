package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/waiting"
)

func mem() backend.Backend { return membackend.New() }

// A free lock is one span, from the call to the end of the hold, with what is done for it and under
// it inside.
func TestUncontended(t *testing.T) {
	bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
		ctx, request := p.tp.Tracer("test").Start(t.Context(), "request")
		g, err := p.Lock(ctx, "order-17")
		if err != nil {
			t.Fatal(err)
		}
		_, inner := p.tp.Tracer("test").Start(g.Context(), "work")
		inner.End()
		until := g.Until()
		time.Sleep(time.Second)
		_ = g.Unlock()
		request.End()

		lock := p.one(t, "lock order")
		for child, parent := range map[string]trace.SpanID{
			"lock order": request.SpanContext().SpanID(), "work": id(lock),
			tracing.SpanStore + "acquire": id(lock), tracing.SpanStore + "release": id(lock),
		} {
			if s := p.one(t, child); s.Parent.SpanID() != parent ||
				s.SpanContext.TraceID() != request.SpanContext().TraceID() {
				t.Errorf("%s is a child of %v, want %v", child, s.Parent.SpanID(), parent)
			}
		}
		if n := len(p.ended()); n != 5 {
			t.Errorf("%d spans", n)
		}
		if d := lock.EndTime.Sub(lock.StartTime); d != time.Second ||
			!event(t, lock, tracing.EventGranted).Equal(lock.StartTime) {
			t.Errorf("lock for %v, granted %v, begun %v", d, event(t, lock, tracing.EventGranted),
				lock.StartTime)
		}
		if attr(lock.Attributes, tracing.AttrToken) == "0" ||
			attr(lock.Attributes, tracing.AttrDeadline) != until.Format(time.RFC3339Nano) ||
			attr(lock.Attributes, tracing.AttrClass) != "order" ||
			attr(lock.Attributes, tracing.AttrMode) != "" ||
			attr(lock.Attributes, tracing.AttrResult) != "granted" ||
			attr(lock.Attributes, tracing.AttrAttempts) != "" {
			t.Errorf("lock: %v", lock.Attributes)
		}
		for _, s := range p.ended() {
			if len(s.Links) > 0 || len(s.Events) > 0 && s.Name != "lock order" ||
				s.Status.Code != codes.Unset {
				t.Errorf("%s has links %v, events %v, status %v", s.Name, s.Links, s.Events,
					s.Status)
			}
			for _, a := range s.Attributes {
				if strings.Contains(text(a.Value), "17") && a.Key == tracing.AttrKey {
					t.Errorf("%s shows the key: %v", s.Name, a)
				}
			}
		}
	})
}

// A processor is told of each span in the goroutine that begins or ends it, which is the caller's
// for a lock: nothing is put off.
type processor struct {
	sdktrace.SpanProcessor
	told []string
}

func (p *processor) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	p.told = append(p.told, "start "+s.Name())
	s.SetAttributes(attribute.Bool("processed", true))
}
func (p *processor) OnEnd(s sdktrace.ReadOnlySpan)  { p.told = append(p.told, "end "+s.Name()) }
func (*processor) ForceFlush(context.Context) error { return nil }
func (*processor) Shutdown(context.Context) error   { return nil }

// The spans are the SDK's own, begun and ended when it happens: code under the lock finds them in
// its context, and processors see them in order.
func TestPlainSpans(t *testing.T) {
	p := startProcess(t, mem(), setup{unseen: true})
	seen := &processor{}
	p.tp.RegisterSpanProcessor(seen)
	expect := func(when string, want ...string) {
		t.Helper()
		if !slices.Equal(seen.told, want) {
			t.Errorf("%s: %q, want %q", when, seen.told, want)
		}
		seen.told = nil
	}
	g := p.lock(t, "17")
	expect("locked", "start lock")
	span, ok := trace.SpanFromContext(g.Context()).(sdktrace.ReadOnlySpan)
	if !ok || span.Name() != "lock" || !span.EndTime().IsZero() ||
		!slices.Contains(span.Attributes(), attribute.Bool("processed", true)) {
		t.Errorf("the span under the lock is %v", span)
	}
	_ = g.Unlock()
	expect("unlocked", "end lock")
	if err := p.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	expect("closed")
}

// A wait in one process links to the lock that held in the other, if that was told of waiters as
// they were in the store's queue; and says in which trace it was, whatever the way to wait. The
// store is asked nothing for it.
func TestLinksBetweenProcesses(t *testing.T) {
	for _, mode := range []waiting.Mode{waiting.Handoff, waiting.Notify, waiting.Poll} {
		t.Run(string(mode), func(t *testing.T) {
			s := setup{lock: locker.Config{Wait: waiting.Config{Mode: mode}}}
			bubble(t, mem, s, func(t *testing.T, one, two *process) {
				g := one.lock(t, "order-17")
				waited := make(chan *locker.Guard[struct{}])
				began := time.Now()
				go func() { waited <- two.lock(t, "order-17") }()
				time.Sleep(5 * time.Second)
				if n := sum(two.collected(t)[tracing.MetricWaiters], "", ""); n != 1 {
					t.Errorf("%d wait", n)
				}
				_ = g.Unlock()
				g = <-waited
				took := time.Since(began)
				time.Sleep(time.Second)
				_ = g.Unlock()

				holder, lock, wait, lease := one.one(t, "lock order"), two.one(t, "lock order"),
					two.one(t, tracing.SpanWait), two.one(t, tracing.SpanLease)
				if d := wait.EndTime.Sub(wait.StartTime); d != took || took < 5*time.Second {
					t.Errorf("span of %v for a wait of %v", d, took)
				}
				if d := lock.EndTime.Sub(wait.EndTime); d != time.Second ||
					!event(t, lock, tracing.EventGranted).Equal(wait.EndTime) {
					t.Errorf("held for %v, granted at %v, waited until %v", d,
						event(t, lock, tracing.EventGranted), wait.EndTime)
				}
				if wait.Parent.SpanID() != id(lock) || lease.Parent.SpanID() != id(lock) {
					t.Errorf("wait under %v, lease under %v, want %v", wait.Parent.SpanID(),
						lease.Parent.SpanID(), id(lock))
				}
				var linked []trace.SpanID
				if mode == waiting.Handoff {
					linked = []trace.SpanID{id(holder)}
				}
				if got := two.blockers(wait); !slices.Equal(got, linked) || len(lock.Links) > 1 {
					t.Errorf("wait links to %v, want %v; the lock to %v", got, linked, lock.Links)
				}
				if got := attr(wait.Attributes,
					tracing.AttrHolderTrace); got != holder.SpanContext.TraceID().String() {
					t.Errorf("the holder's trace is %v, want %v", got, holder.SpanContext.TraceID())
				}
				first, wake := "attempt held", "wake signal"
				switch mode {
				case waiting.Handoff:
					first, wake = "attempt held 1", "wake grant"
				case waiting.Poll:
					wake = "wake due"
				}
				if e := events(lock); len(e) == 0 || e[0] != first {
					t.Errorf("events of the lock: %q", e)
				}
				if e := events(lease); !slices.Contains(e, first) || !slices.Contains(e, wake) ||
					!slices.Contains(e, "granted") {
					t.Errorf("events of the lease: %q", e)
				}
				if e := events(wait); !slices.Equal(e, []string{"wake cohort"}) {
					t.Errorf("events of the wait: %q", e)
				}
				for _, p := range []*process{one, two} {
					if n := len(p.named(tracing.SpanStore + "inspect")); n != 0 {
						t.Errorf("%d looks at who is next", n)
					}
				}
			})
		})
	}
}

// Who waits with a claim of his own has the attempts and the wake-ups in his own spans.
func TestClaimOfItsOwn(t *testing.T) {
	bubble(t, mem, setup{}, func(t *testing.T, one, two *process) {
		g := one.lock(t, "order-17")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = two.lock(t, "order-17", locker.Shared()).Unlock()
		}()
		time.Sleep(3 * time.Second)
		_ = g.Unlock()
		<-done
		lock, wait := two.one(t, "lock order"), two.one(t, tracing.SpanWait)
		if e := events(lock); !slices.Equal(e, []string{"attempt held 1", "granted"}) ||
			attr(lock.Attributes, tracing.AttrMode) != "shared" {
			t.Errorf("lock: %q %v", e, lock.Attributes)
		}
		if e := events(wait); !slices.Equal(e, []string{"attempt held 1", "wake grant"}) ||
			wait.Parent.SpanID() != id(lock) {
			t.Errorf("wait: %q", e)
		}
		if got := two.blockers(wait); !slices.Equal(got,
			[]trace.SpanID{id(one.one(t, "lock order"))}) {
			t.Errorf("blocked by %v", got)
		}
		if n := len(two.named(tracing.SpanLease)); n != 0 {
			t.Errorf("%d leases of a cohort", n)
		}
		if sum(two.collected(t)[tracing.MetricContended], "", "") != 1 {
			t.Error("not counted as contended")
		}
	})
}

// All that a process holds of one key is counted, however many share it, and the oldest is not
// forgotten.
func TestManyPermits(t *testing.T) {
	bubble(t, mem, setup{unseen: true}, func(t *testing.T, p, _ *process) {
		const n = 100
		var all []*locker.Guard[struct{}]
		for range n {
			all = append(all, p.lock(t, "k", locker.Permit(n)))
			time.Sleep(time.Second)
		}
		m := p.collected(t)
		if sum(m[tracing.MetricHolds], "", "") != n ||
			gauge(m[tracing.MetricLongestHold], "k") != n {
			t.Errorf("%v are held, the longest for %v", m[tracing.MetricHolds],
				m[tracing.MetricLongestHold])
		}
		for _, g := range all {
			_ = g.Unlock()
		}
		if n := sum(p.collected(t)[tracing.MetricHolds], "", ""); n != 0 {
			t.Errorf("%d are held after Unlock", n)
		}
	})
}

// Who holds may be said only once, in the answer that makes one wait.
func TestNamedOnce(t *testing.T) {
	s := setup{
		cfg:  tracing.Config{BarsOver: -1},
		lock: locker.Config{Wait: waiting.Config{Mode: waiting.Poll}},
	}
	bubble(t, mem, s, func(t *testing.T, one, two *process) {
		g := one.lock(t, "k")
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = two.lock(t, "k", locker.Shared()).Unlock()
		}()
		synctest.Wait()
		_ = g.Unlock()
		<-done
		holder, bars := one.one(t, "lock k").SpanContext.TraceID().String(),
			two.bars(two.one(t, tracing.SpanWait))
		if len(bars) != 1 || attr(bars[0].Attributes, tracing.AttrHolderTrace) != holder {
			t.Errorf("blocked by %v", bars)
		}
	})
}

func TestTimeoutAndTryLock(t *testing.T) {
	bubble(t, mem, setup{}, func(t *testing.T, one, two *process) {
		g := one.lock(t, "order-17")
		if _, err := two.TryLock(t.Context(), "order-17"); err == nil {
			t.Fatal("granted twice")
		}
		tried := two.one(t, "lock order")
		if tried.Status.Code != codes.Unset ||
			attr(tried.Attributes, tracing.AttrResult) != "held" ||
			len(two.named(tracing.SpanWait)) != 0 {
			t.Errorf("TryLock of a held key: %v %v", tried.Status, tried.Attributes)
		}
		theirs := trace.SpanContextFromContext(g.Context()).TraceID().String()
		if attr(tried.Attributes, tracing.AttrHolderTrace) != theirs || len(tried.Links) > 0 {
			t.Errorf("TryLock was blocked by %v, and leads to %v", tried.Attributes, tried.Links)
		}
		two.spans.Reset()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := two.Lock(ctx, "order-17"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait()
		lock, wait := two.one(t, "lock order"), two.one(t, tracing.SpanWait)
		if bars := two.bars(wait); len(bars) != 1 ||
			attr(bars[0].Attributes, tracing.AttrHolderTrace) != theirs || len(lock.Links) > 0 {
			t.Errorf("bars: %v, lock: %v", bars, lock.Links)
		}
		if lock.Status.Code != codes.Error ||
			attr(lock.Attributes, tracing.AttrError) != "timeout" {
			t.Errorf("Lock that timed out: %v %v", lock.Status, lock.Attributes)
		}
		if attr(lock.Events[0].Attributes, tracing.AttrHolderPID) == "" {
			t.Errorf("nothing of the holder in %v", lock.Events[0])
		}
		if n := len(two.named(tracing.SpanRelease)); n != 0 {
			t.Errorf("%d withdrawals have failed", n)
		}
		if lease := two.one(t, tracing.SpanLease); two.under(t, tracing.SpanLease,
			tracing.SpanStore+"release").Status.Code != codes.Unset ||
			attr(lease.Attributes, tracing.AttrResult) != "held" ||
			lease.Status.Code != codes.Unset {
			t.Errorf("the withdrawal is not under its lease, or that failed: %v", lease.Attributes)
		}
		_ = g.Unlock()

		m := two.collected(t)
		if sum(m[tracing.MetricAcquisitions], tracing.AttrResult, "timeout") != 1 ||
			sum(m[tracing.MetricAcquisitions], tracing.AttrResult, "held") != 1 ||
			sum(m[tracing.MetricContended], "", "") != 2 ||
			sum(m[tracing.MetricWaiters], "", "") != 0 {
			t.Errorf("metrics: %+v", m)
		}
		for process, waited := range map[*process]bool{one: false, two: true} {
			waits, ok := process.collected(t)[tracing.MetricWait].(metricdata.Histogram[float64])
			if !ok {
				t.Fatal("no histogram of waits")
			}
			for _, p := range waits.DataPoints {
				if v, ok := p.Attributes.Value(tracing.AttrContended); !ok || v.AsBool() != waited {
					t.Errorf("a lock that waited: %v, is counted as one of %v", waited,
						p.Attributes.ToSlice())
				}
			}
		}
	})
}

// Who was waited for, and for how long, is counted by service, as its bar is drawn.
func TestBlocked(t *testing.T) {
	bubble(t, mem, setup{}, func(t *testing.T, one, two *process) {
		g := one.lock(t, "order-17")
		time.AfterFunc(3*time.Second, func() { _ = g.Unlock() })
		_ = two.lock(t, "order-17").Unlock()
		wait := two.one(t, tracing.SpanWait)
		blocked, _ := two.collected(t)[tracing.MetricBlocked].(metricdata.Sum[float64])
		if len(blocked.DataPoints) != 1 || !blocked.IsMonotonic {
			t.Fatalf("blocked: %+v", blocked)
		}
		p := blocked.DataPoints[0]
		by := attribute.NewSet(tracing.AttrClass.String("order"),
			tracing.AttrHolderService.String(attr(wait.Attributes, tracing.AttrHolderService)))
		if p.Value != 3 || !p.Attributes.Equals(&by) {
			t.Errorf("blocked for %v s by %v, want 3 s by %v", p.Value, p.Attributes.ToSlice(),
				by.ToSlice())
		}
	})
}

// silent is a store whose answers to renewals get lost when told so.
type silent struct {
	backend.Backend
	answer error
}

func (s *silent) Renew(ctx context.Context, c backend.Claim) error {
	if s.answer != nil {
		return s.answer
	}
	return s.Backend.Renew(ctx, c)
}

func TestLoss(t *testing.T) {
	for answer, cause := range map[error]string{
		errors.New("reset by test"): "expired",
		backend.ErrLost:             "store",
	} {
		t.Run(cause, func(t *testing.T) {
			s := &silent{}
			open := func() backend.Backend { s.Backend, s.answer = mem(), nil; return s }
			bubble(t, open, setup{lock: locker.Config{TTL: 3 * time.Second}},
				func(t *testing.T, p, _ *process) {
					g := p.lock(t, "order-17")
					time.Sleep(10 * time.Second)
					if renewed := p.named(tracing.SpanRenew); len(renewed) > 0 {
						t.Errorf("spans of renewals that went well: %v", renewed)
					}
					s.answer = answer
					<-g.Lost()
					synctest.Wait()
					lock := p.one(t, "lock order")
					if lock.Status.Code != codes.Error ||
						attr(lock.Attributes, tracing.AttrCause) != cause {
						t.Errorf("lock: %v %v", lock.Status, lock.Attributes)
					}
					renewal := p.named(tracing.SpanRenew)
					if len(renewal) == 0 || renewal[0].Status.Code != codes.Error ||
						renewal[0].Parent.SpanID() != id(lock) {
						t.Errorf("renewals: %v", renewal)
					}
					m := p.collected(t)
					if sum(m[tracing.MetricLost], tracing.AttrCause, cause) != 1 ||
						sum(m[tracing.MetricHolds], "", "") != 0 ||
						sum(m[tracing.MetricRenewals], tracing.AttrResult, "confirmed") < 9 {
						t.Errorf("metrics: %+v", m)
					}
					if err := g.Unlock(); !errors.Is(err, locker.ErrLost) {
						t.Error(err)
					}
				})
		})
	}
}

// deaf is a store that does not take releases.
type deaf struct{ backend.Backend }

func (deaf) Release(context.Context, backend.Claim) (backend.Released, error) {
	return backend.Released{}, backend.ErrUnavailable
}

func TestReleaseThatFails(t *testing.T) {
	open := func() backend.Backend { return deaf{mem()} }
	s := setup{lock: locker.Config{TTL: 3 * time.Second, ReleaseTimeout: time.Second}}
	bubble(t, open, s, func(t *testing.T, p, _ *process) {
		g := p.lock(t, "order-17")
		time.Sleep(time.Second)
		if err := g.Unlock(); !errors.Is(err, backend.ErrUnavailable) {
			t.Error(err)
		}
		lock := p.one(t, "lock order")
		release := slices.MinFunc(p.named(tracing.SpanRelease), func(a, b tracetest.SpanStub) int {
			// The next attempt, behind the caller, fails at the instant at which this one ends.
			return a.StartTime.Compare(b.StartTime)
		})
		if release.Status.Code != codes.Error ||
			attr(release.Attributes, tracing.AttrError) != "unavailable" ||
			release.Parent.SpanID() != id(lock) ||
			release.EndTime.Sub(release.StartTime) != time.Second {
			t.Errorf("release: %+v", release)
		}
	})
}

// A holder that is not sampled is named by attributes, and never by a link, which would lead
// nowhere. It is counted all the same.
func TestHolderThatIsNotSampled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem()
		never, always := startProcess(t, b, setup{sampler: sdktrace.NeverSample()}),
			startProcess(t, b, setup{})
		g := never.lock(t, "order-17")
		traceID := trace.SpanContextFromContext(g.Context()).TraceID().String()
		for _, opts := range [][]locker.Option{nil, {locker.Shared()}} {
			always.spans.Reset()
			if _, err := always.TryLock(t.Context(), "order-17", opts...); err == nil {
				t.Fatal("granted twice")
			}
			_, err := always.Lock(t.Context(), "order-17",
				append(opts, locker.WaitLimit(time.Second))...)
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Fatal(err)
			}
			for _, s := range append(always.named("lock order")[:1],
				always.one(t, tracing.SpanWait)) {
				if len(s.Links) > 0 || attr(s.Attributes, tracing.AttrHolderTrace) != traceID ||
					attr(s.Attributes, tracing.AttrHolderPID) == "" {
					t.Errorf("%s: links %v, attributes %v", s.Name, s.Links, s.Attributes)
				}
			}
		}
		_ = g.Unlock()
		if n := len(never.ended()); n > 0 {
			t.Errorf("%d spans", n)
		}
		if sum(never.collected(t)[tracing.MetricAcquisitions], "", "") != 1 {
			t.Error("metrics go by sampling")
		}
		for _, p := range []*process{never, always} {
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if n := p.obs.Left(); n != 0 {
				t.Errorf("the observer remembers %d locks that are over", n)
			}
		}
	})
}

// What others write into the store is taken for a span only if it is one.
func TestTraceparentsOfOthers(t *testing.T) {
	for _, text := range []string{
		"", "garbage", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0",
		"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-zz",
		"00-00000000000000000000000000000000-b7ad6b7169203331-01",
		"00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
		"00_0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", strings.Repeat("x", 55),
	} {
		if tracing.ParseTraceparent(text).IsValid() {
			t.Errorf("%q is a traceparent", text)
		}
	}
	const good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-0"
	for _, flag := range []int{0, 1} {
		text := good + fmt.Sprint(flag)
		if sc := tracing.ParseTraceparent(text); !sc.IsRemote() || sc.IsSampled() != (flag == 1) ||
			tracing.Traceparent(sc) != text {
			t.Errorf("%q is %v", text, sc)
		}
	}
}
