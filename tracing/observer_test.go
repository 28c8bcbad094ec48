package tracing_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/waiting"
)

func mem() backend.Backend { return membackend.New() }

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

		wait, hold, release := p.one(t, tracing.SpanWait), p.one(t, tracing.SpanHold), p.one(t, tracing.SpanRelease)
		for child, parent := range map[string]trace.SpanID{
			tracing.SpanWait: request.SpanContext().SpanID(), tracing.SpanHold: request.SpanContext().SpanID(),
			tracing.SpanRelease: id(hold), "work": id(hold), tracing.SpanStoreAcquire: id(wait), tracing.SpanStoreRelease: id(release),
		} {
			if s := p.one(t, child); s.Parent.SpanID() != parent || s.SpanContext.TraceID() != request.SpanContext().TraceID() {
				t.Errorf("%s is a child of %v, want %v", child, s.Parent.SpanID(), parent)
			}
		}
		if d := hold.EndTime.Sub(hold.StartTime); d != time.Second || hold.StartTime.Before(wait.EndTime) {
			t.Errorf("hold from %v for %v, wait until %v", hold.StartTime, d, wait.EndTime)
		}
		if attr(hold.Attributes, tracing.AttrToken) == "0" || attr(hold.Attributes, tracing.AttrDeadline) != until.Format(time.RFC3339Nano) ||
			attr(hold.Attributes, tracing.AttrClass) != "order" || attr(hold.Attributes, tracing.AttrMode) != "" {
			t.Errorf("hold: %v", hold.Attributes)
		}
		if attr(wait.Attributes, tracing.AttrResult) != "granted" || attr(wait.Attributes, tracing.AttrAttempts) != "" {
			t.Errorf("wait: %v", wait.Attributes)
		}
		for _, s := range p.ended() {
			if len(s.Links)+len(s.Events) > 0 || s.Status.Code != codes.Unset {
				t.Errorf("%s has links %v, events %v, status %v", s.Name, s.Links, s.Events, s.Status)
			}
			for _, a := range s.Attributes {
				if strings.Contains(a.Value.String(), "17") && a.Key == tracing.AttrKey {
					t.Errorf("%s shows the key: %v", s.Name, a)
				}
			}
		}
	})
}

// A wait in one process links to the hold in the other, and that to the hold that it unblocked, whatever the way to wait.
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
				_ = g.Unlock()
				g = <-waited
				took := time.Since(began)
				_ = g.Unlock()

				hold, wait, next := one.one(t, tracing.SpanHold), two.one(t, tracing.SpanWait), two.one(t, tracing.SpanHold)
				if d := wait.EndTime.Sub(wait.StartTime); d != took || took < 5*time.Second {
					t.Errorf("span of %v for a wait of %v", d, took)
				}
				if got := links(wait, tracing.LinkBlockedBy); !slices.Equal(got, []trace.SpanID{id(hold)}) {
					t.Errorf("wait links to %v, the hold is %v", got, id(hold))
				}
				unblocked := links(hold, tracing.LinkUnblocked)
				if want := []trace.SpanID{id(next)}; mode == waiting.Handoff && !slices.Equal(unblocked, want) ||
					mode != waiting.Handoff && len(unblocked) > 0 { // nobody stands in the store's line
					t.Errorf("hold unblocked %v, the next hold is %v", unblocked, id(next))
				}
				ev := events(wait)
				first, wake := "attempt held", "wake signal"
				switch mode {
				case waiting.Handoff:
					first, wake = "queued held 1", "wake grant"
				case waiting.Poll:
					wake = "wake due"
				}
				if len(ev) < 2 || ev[0] != first || !slices.Contains(ev, wake) {
					t.Errorf("events %q", ev)
				}
			})
		})
	}
}

// Without tracing.IDs a hold cannot be named before it exists: the link leads to the span next to it.
func TestLinksWithoutReservedIDs(t *testing.T) {
	bubble(t, mem, setup{plain: true}, func(t *testing.T, one, two *process) {
		g := one.lock(t, "k")
		if _, err := two.TryLock(t.Context(), "k"); !errors.Is(err, backend.ErrHeld) {
			t.Fatal(err)
		}
		_ = g.Unlock()
		before, hold := one.one(t, tracing.SpanWait), one.one(t, tracing.SpanHold)
		if got := links(two.one(t, tracing.SpanWait), tracing.LinkBlockedBy); !slices.Equal(got, []trace.SpanID{id(before)}) {
			t.Errorf("links to %v, want %v", got, id(before))
		}
		if hold.Parent.SpanID() != id(before) { // there is no caller's span
			t.Error("the hold is not in the trace that the link leads to")
		}
	})
}

func TestTimeoutAndTryLock(t *testing.T) {
	bubble(t, mem, setup{}, func(t *testing.T, one, two *process) {
		g := one.lock(t, "order-17")
		if _, err := two.TryLock(t.Context(), "order-17"); err == nil {
			t.Fatal("granted twice")
		}
		tried := two.one(t, tracing.SpanWait)
		if tried.Status.Code != codes.Unset || attr(tried.Attributes, tracing.AttrResult) != "held" {
			t.Errorf("TryLock of a held key: %v %v", tried.Status, tried.Attributes)
		}
		two.obs.Flush()
		two.spans.Reset()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := two.Lock(ctx, "order-17"); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		synctest.Wait()
		wait, hold := two.one(t, tracing.SpanWait), g.Hold()
		if wait.Status.Code != codes.Error || attr(wait.Attributes, tracing.AttrError) != "timeout" || len(links(wait, tracing.LinkBlockedBy)) != 1 {
			t.Errorf("Lock that timed out: %v %v %v", wait.Status, wait.Attributes, wait.Links)
		}
		if attr(wait.Events[0].Attributes, tracing.AttrHolderPID) == "" || hold.Token == 0 {
			t.Errorf("nothing of the holder in %v", wait.Events[0])
		}
		if r := two.one(t, tracing.SpanRelease); r.Parent.SpanID() != id(wait) {
			t.Errorf("the withdrawal is not under its wait")
		}
		_ = g.Unlock()

		m := two.collected(t)
		if sum(m[tracing.MetricAcquisitions], tracing.AttrResult, "timeout") != 1 || sum(m[tracing.MetricAcquisitions], tracing.AttrResult, "held") != 1 ||
			sum(m[tracing.MetricContended], "", "") != 2 || sum(m[tracing.MetricWaiters], "", "") != 0 {
			t.Errorf("metrics: %+v", m)
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
	for answer, cause := range map[error]string{errors.New("reset by test"): "expired", backend.ErrLost: "store"} {
		t.Run(cause, func(t *testing.T) {
			s := &silent{}
			open := func() backend.Backend { s.Backend, s.answer = mem(), nil; return s }
			bubble(t, open, setup{lock: locker.Config{TTL: 3 * time.Second}}, func(t *testing.T, p, _ *process) {
				g := p.lock(t, "order-17")
				time.Sleep(10 * time.Second)
				if renewed := p.named(tracing.SpanRenew); len(renewed) > 0 {
					t.Errorf("spans of renewals that went well: %v", renewed)
				}
				s.answer = answer
				<-g.Lost()
				synctest.Wait()
				hold := p.one(t, tracing.SpanHold)
				if hold.Status.Code != codes.Error || attr(hold.Attributes, tracing.AttrCause) != cause {
					t.Errorf("hold: %v %v", hold.Status, hold.Attributes)
				}
				renewal := p.named(tracing.SpanRenew)
				if len(renewal) == 0 || renewal[0].Status.Code != codes.Error || renewal[0].Parent.SpanID() != id(hold) {
					t.Errorf("renewals: %v", renewal)
				}
				m := p.collected(t)
				if sum(m[tracing.MetricLost], tracing.AttrCause, cause) != 1 || sum(m[tracing.MetricHolds], "", "") != 0 ||
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

func TestRenewalsOnRequest(t *testing.T) {
	bubble(t, mem, setup{cfg: tracing.Config{Renewals: true}, lock: locker.Config{TTL: 3 * time.Second}}, func(t *testing.T, p, _ *process) {
		g := p.lock(t, "k")
		time.Sleep(5 * time.Second)
		_ = g.Unlock()
		all := p.named(tracing.SpanRenew)
		if len(all) < 4 || all[0].Status.Code != codes.Unset || all[0].Parent.SpanID() != id(p.one(t, tracing.SpanHold)) {
			t.Errorf("renewals: %v", all)
		}
	})
}

// What is not sampled is not named to others, who could not look at it, but is counted.
func TestNotSampled(t *testing.T) {
	bubble(t, mem, setup{sampler: sdktrace.NeverSample()}, func(t *testing.T, one, two *process) {
		g := one.lock(t, "k")
		if _, err := two.TryLock(t.Context(), "k"); err == nil {
			t.Fatal("granted twice")
		} else if held := (*backend.HeldError)(nil); !errors.As(err, &held) || held.Holder.Traceparent != "" {
			t.Errorf("%v", err)
		}
		_ = g.Unlock()
		if n := len(one.ended()); n > 0 {
			t.Errorf("%d spans", n)
		}
		if sum(one.collected(t)[tracing.MetricAcquisitions], "", "") != 1 {
			t.Error("metrics go by sampling")
		}
	})
}
