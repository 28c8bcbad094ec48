package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/waiting"
)

// serve locks a key for a while, in a request of its own.
func (p *process) serve(t *testing.T, name, key string, hold time.Duration) {
	t.Helper()
	ctx, request := p.tp.Tracer("test").Start(t.Context(), name)
	defer request.End()
	g, err := p.Lock(ctx, key)
	if err != nil {
		t.Error(err)
		return
	}
	time.Sleep(hold)
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
}

// gauge is a gauge's value for a class, or -1.
func gauge(a metricdata.Aggregation, class string) float64 {
	g, _ := a.(metricdata.Gauge[float64])
	for _, p := range g.DataPoints {
		if v, _ := p.Attributes.Value(tracing.AttrClass); v.AsString() == class {
			return p.Value
		}
	}
	return -1
}

// Five processes wait for each other. Each wait says who was in its way and for how long, whoever
// came and went while it waited; in sum that is all of the wait. The longest is said on the wait
// itself, and in the log. Holds say how many of their process have waited.
func TestWhoAndForHowLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, log := mem(), &bytes.Buffer{}
		s := setup{lock: locker.Config{Wait: waiting.Config{Passes: -1}, Service: "shop"}}
		s.cfg.Logger, s.cfg.LogOver = slog.New(slog.NewTextHandler(log, nil)), 5*time.Second
		var all []*process
		for range 5 {
			all = append(all, startProcess(t, b, s))
		}
		holds := []time.Duration{
			2 * time.Second, 300 * time.Millisecond, time.Second,
			400 * time.Millisecond, 3 * time.Second,
		}
		for i, p := range all {
			go p.serve(t, fmt.Sprint("request ", i), "order-17", holds[i])
			time.Sleep(time.Millisecond) // in this order
		}
		go all[4].serve(t, "behind", "order-17", time.Second)
		time.Sleep(1500 * time.Millisecond)
		if m := all[4].collected(t); gauge(m[tracing.MetricOldestWait], "order") < 1.5 ||
			gauge(m[tracing.MetricLongestHold], "order") != 0 {
			t.Errorf("oldest wait %v, longest hold %v", m[tracing.MetricOldestWait],
				m[tracing.MetricLongestHold])
		}
		if m := all[0].collected(t); gauge(m[tracing.MetricLongestHold], "order") < 1.5 ||
			sum(m[tracing.MetricLost], "", "") != 0 ||
			len(m[tracing.MetricLost].(metricdata.Sum[int64]).DataPoints) == 0 {
			t.Errorf("longest hold %v, lost %v", m[tracing.MetricLongestHold],
				m[tracing.MetricLost])
		}
		time.Sleep(time.Minute)
		synctest.Wait()

		wait := all[4].childOf(t, all[4].under(t, "request 4", "lock order"), tracing.SpanWait)
		var sum time.Duration
		var order []time.Duration
		bars := all[4].bars(wait)
		for _, b := range bars {
			d := b.EndTime.Sub(b.StartTime)
			sum, order = sum+d, append(order, d)
			if b.Name != "held by shop" ||
				attr(b.Attributes, tracing.AttrHolderService) != "shop" ||
				attr(b.Attributes, tracing.AttrHolderPID) == "" ||
				b.StartTime.Before(wait.StartTime) || b.EndTime.After(wait.EndTime) {
				t.Errorf("%s from %v to %v, %v", b.Name, b.StartTime, b.EndTime, b.Attributes)
			}
		}
		took := wait.EndTime.Sub(wait.StartTime)
		if len(order) != 4 || took-sum > 10*time.Millisecond || sum-took > 10*time.Millisecond ||
			!slices.IsSortedFunc(order, func(a, b time.Duration) int { return int(b - a) }) {
			t.Errorf("blocked for %v, %v in sum, in a wait of %v", order, sum, took)
		}
		if attr(wait.Attributes,
			tracing.AttrHolderTrace) != bars[0].Links[0].SpanContext.TraceID().String() ||
			len(wait.Links) != 0 ||
			attr(wait.Attributes, tracing.AttrHolders) != "4" ||
			seconds(wait.Attributes, tracing.AttrUnexplained) > 10*time.Millisecond {
			t.Errorf("the wait says %v", wait.Attributes)
		}
		for i, want := range []string{"4", "3", "2", "1", "1"} {
			lock := all[i].under(t, fmt.Sprint("request ", i), "lock order")
			got := attr(lock.Attributes, tracing.AttrWaiters)
			// Its process has one more, which may queue before the release arrives.
			if again := i == 4 && got == "2"; got != want && !again {
				t.Errorf("hold %d says that %q have waited, want %q", i, got, want)
			}
		}
		lines := strings.Split(strings.TrimSpace(log.String()), "\n")
		if len(lines) != 1 || !strings.Contains(lines[0],
			"level=WARN msg=\"holdfast: waited for a lock\" class=order waited_seconds=6.") ||
			!strings.Contains(lines[0], "holdfast.holder.service=shop") ||
			!strings.Contains(lines[0], " held_seconds=3") {
			t.Errorf("log: %q", lines)
		}
		for _, p := range all {
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if n := p.obs.Left(); n != 0 {
				t.Errorf("the observer remembers %d locks that are over", n)
			}
		}
	})
}

func seconds(attrs []attribute.KeyValue, key attribute.Key) time.Duration {
	for _, a := range attrs {
		if a.Key == key {
			return time.Duration(a.Value.AsFloat64() * float64(time.Second)).Round(time.Microsecond)
		}
	}
	return 0
}

// Traced or not, a wait ends with its caller's time, and the context of a hold with its caller's.
//
// covers: E2
func TestTracedContextsEnd(t *testing.T) {
	for name, cfg := range map[string]tracing.Config{
		"all spans": {},
		"long ones": {SpansOver: time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, mem, setup{cfg: cfg}, func(t *testing.T, one, two *process) {
				ctx, cancel := context.WithCancel(t.Context())
				g, err := one.Lock(ctx, "k")
				if err != nil {
					t.Fatal(err)
				}
				// Else one whose wait does not end would wait for ever.
				time.AfterFunc(time.Hour, func() { _ = g.Unlock() })
				for _, opts := range [][]locker.Option{{}, {locker.WaitLimit(time.Second)}} {
					limited, end := context.WithTimeout(t.Context(), time.Second)
					if len(opts) > 0 {
						limited = t.Context()
					}
					began := time.Now()
					late, err := two.Lock(limited, "k", opts...)
					if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) ||
						took > time.Second {
						t.Errorf("a wait of a second = %v after %v", err, took)
					}
					_ = late.Unlock()
					end()
				}
				if err := g.Context().Err(); err != nil {
					t.Errorf("the context of the hold = %v, while its caller's goes on", err)
				}
				cancel()
				if err := g.Context().Err(); !errors.Is(err, context.Canceled) {
					t.Errorf("the context of the hold = %v when its caller's has ended", err)
				}
				_ = g.Unlock()
			})
		})
	}
}

// With SpansOver there are spans of long waits and long holds alone, made when they end, with what
// they would have had; metrics are of all. Links lead to the requests of the holders.
func TestSpansOver(t *testing.T) {
	s := setup{cfg: tracing.Config{SpansOver: time.Second}, unseen: true}
	bubble(t, mem, s, func(t *testing.T, one, two *process) {
		for range 3 {
			one.serve(t, "quick", "order-1", 10*time.Millisecond)
		}
		if n := len(one.ended()); n != 3 {
			t.Fatalf("%d spans, want those of the requests", n)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			one.serve(t, "long", "order-2", 5*time.Second)
		}()
		time.Sleep(time.Second)
		two.serve(t, "waits", "order-2", 10*time.Millisecond)
		<-done
		held := one.under(t, "long", "lock order")
		if event(t, held, tracing.EventGranted) != held.StartTime ||
			held.EndTime.Sub(held.StartTime) != 5*time.Second ||
			attr(held.Attributes, tracing.AttrToken) == "" {
			t.Errorf("held: %+v", held)
		}
		lock := two.under(t, "waits", "lock order")
		wait := two.childOf(t, lock, tracing.SpanWait)
		if d := wait.EndTime.Sub(wait.StartTime); d != 4*time.Second ||
			!slices.Contains(events(wait), "wake cohort") || len(events(lock)) != 2 {
			t.Errorf("waited for %v, events %q and %q", d, events(wait), events(lock))
		}
		if got := two.blockers(wait); !slices.Equal(got, []trace.SpanID{id(one.one(t, "long"))}) {
			t.Errorf("blocked by %v", got)
		}
		if n := len(two.ended()); n != 4 {
			t.Errorf("%d spans", n)
		}
		if sum(one.collected(t)[tracing.MetricAcquisitions], "", "") != 4 {
			t.Error("metrics are not of all")
		}
	})
}

// Those who are not sampled are drawn as well, each with the trace, and without a link.
func TestUnsampledAreTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := mem()
		never, always := startProcess(t, b, setup{sampler: sdktrace.NeverSample()}),
			startProcess(t, b, setup{})
		go never.serve(t, "a", "k", 2*time.Second)
		time.Sleep(time.Second)
		always.serve(t, "b", "k", 0)
		wait := always.one(t, tracing.SpanWait)
		all := always.bars(wait)
		if len(all) != 1 || all[0].EndTime.Sub(all[0].StartTime) != time.Second ||
			attr(all[0].Attributes, tracing.AttrHolderTrace) == "" {
			t.Errorf("bars %v", all)
		}
		if len(wait.Links) > 0 || len(all[0].Links) > 0 {
			t.Errorf("links %v", wait.Links)
		}
		for _, p := range []*process{never, always} {
			if err := p.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
	})
}

// Spans say which version made them; those of requests to a store, where it is.
func TestScopeAndServer(t *testing.T) {
	p := startProcess(t, mem(), setup{})
	l, err := locker.New(tracing.Wrap(mem(),
		tracing.Store{Tracer: p.tp, Address: "redis.internal:6379"}), locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	g, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	_ = g.Unlock()
	s := p.one(t, tracing.SpanStore+"acquire")
	if attr(s.Attributes, tracing.AttrServer) != "redis.internal" ||
		attr(s.Attributes, tracing.AttrPort) != "6379" {
		t.Errorf("attributes %v", s.Attributes)
	}
	if s.InstrumentationScope.Version == "" || !strings.HasPrefix(s.InstrumentationScope.SchemaURL,
		"https://opentelemetry.io/schemas/1.") {
		t.Errorf("scope %+v", s.InstrumentationScope)
	}
	for _, close := range []func(context.Context) error{l.Shutdown, p.Shutdown} {
		if err := close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// together is a store that takes many keys in one request; of an odd one that is refused.
type together struct {
	backend.Backend
	fails error
}

func (s together) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) (grants []backend.Grant, err error) {
	for i := 0; i < len(claims) && err == nil; i++ {
		var g backend.Grant
		if g, err = s.TryAcquire(ctx, claims[i]); err == nil {
			grants = append(grants, g)
		}
	}
	return grants, s.fails
}

func (s together) TryReleaseAll(ctx context.Context, claims []backend.Claim) ([]bool, error) {
	released := make([]bool, len(claims))
	for i, c := range claims {
		_, err := s.Release(ctx, c)
		released[i] = err == nil
	}
	return released, s.fails
}

// A request for many keys is one span, which says for how many, and what became of it without the
// name of any. Where the store has no such request, each key has a span of its own.
func TestManyKeysInOneRequest(t *testing.T) {
	secret := errors.New("connection reset while asking for key-b")
	for name, test := range map[string]struct {
		b                  backend.Backend
		held               bool
		acquires, releases []string // the results of spans for many keys
	}{
		"granted": {
			together{mem(), nil},
			false,
			[]string{tracing.ResultGranted},
			[]string{tracing.ResultConfirmed},
		},
		"held": {together{mem(), nil}, true, []string{tracing.ResultHeld}, nil},
		"unanswered": {
			together{mem(), secret},
			false,
			[]string{tracing.ResultUnanswered},
			[]string{tracing.ResultUnanswered},
		},
		"unsupported": {mem(), false, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func() backend.Backend {
				return test.b
			}, setup{}, func(t *testing.T, one, two *process) {
				if test.held {
					g := two.lock(t, "key-b")
					defer func() { _ = g.Unlock() }()
				}
				all, err := locker.All(t.Context(), one.Client, []string{"key-a", "key-b", "key-c"},
					locker.WaitLimit(time.Second))
				if (err != nil) != test.held {
					t.Fatal(err)
				}
				_ = all.Unlock()
				if g, err := two.TryLock(t.Context(), "key-a"); err != nil {
					t.Errorf("a key that came before the one that was not to be had: %v, want "+
						"that it was given back", err)
				} else {
					_ = g.Unlock()
				}
				for request, want := range map[string][]string{
					"acquire": test.acquires,
					"release": test.releases,
				} {
					var got []string
					for _, s := range one.named(tracing.SpanStore + request) {
						if n := attr(s.Attributes, tracing.AttrBatch); n == "3" {
							got = append(got, attr(s.Attributes, tracing.AttrResult))
						} else if n != "" {
							t.Errorf("%s of %s keys", request, n)
						}
						if strings.Contains(s.Status.Description, "key-b") {
							t.Errorf("%s: %q", request, s.Status.Description)
						}
					}
					if !slices.Equal(got, want) {
						t.Errorf("%s of three keys: %v, want %v", request, got, want)
					}
				}
			})
		})
	}
}
