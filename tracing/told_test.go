package tracing_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	metricapi "go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
	"github.com/holdfast-go/holdfast/waiting"
)

var errInstrument = errors.New("said by test")

// A choosy meter does not make one of the instruments, or with "callback" takes no callback.
type choosy struct {
	noop.Meter
	refuses string
}

// A provider has one meter.
type provider struct {
	noop.MeterProvider
	meter choosy
}

func (p provider) Meter(string, ...metricapi.MeterOption) metricapi.Meter { return p.meter }

func (m choosy) says(name string) error {
	if name == m.refuses {
		return errInstrument
	}
	return nil
}

func (m choosy) Float64Histogram(
	name string, _ ...metricapi.Float64HistogramOption,
) (metricapi.Float64Histogram, error) {
	return noop.Float64Histogram{}, m.says(name)
}

func (m choosy) Float64Counter(
	name string, _ ...metricapi.Float64CounterOption,
) (metricapi.Float64Counter, error) {
	return noop.Float64Counter{}, m.says(name)
}

func (m choosy) Int64Counter(name string,
	_ ...metricapi.Int64CounterOption,
) (metricapi.Int64Counter, error) {
	return noop.Int64Counter{}, m.says(name)
}

func (m choosy) Int64ObservableUpDownCounter(
	name string, _ ...metricapi.Int64ObservableUpDownCounterOption,
) (metricapi.Int64ObservableUpDownCounter, error) {
	return noop.Int64ObservableUpDownCounter{}, m.says(name)
}

func (m choosy) Float64ObservableGauge(
	name string, _ ...metricapi.Float64ObservableGaugeOption,
) (metricapi.Float64ObservableGauge, error) {
	return noop.Float64ObservableGauge{}, m.says(name)
}

func (m choosy) RegisterCallback(
	metricapi.Callback, ...metricapi.Observable,
) (metricapi.Registration, error) {
	return noop.Registration{}, m.says("callback")
}

// An instrument that the provider does not make is NewObserver's error, whichever it is.
func TestInstrumentThatIsRefused(t *testing.T) {
	if _, err := tracing.NewObserver(tracing.Config{Meter: provider{}}); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{
		tracing.MetricWait, tracing.MetricHold, tracing.MetricBlocked, tracing.MetricAcquisitions,
		tracing.MetricContended, tracing.MetricLost, tracing.MetricTakenOver,
		tracing.MetricRenewals,
		tracing.MetricPasses, tracing.MetricQuarantined,
		tracing.MetricDeadlocks, tracing.MetricWaiters, tracing.MetricHolds,
		tracing.MetricOldestWait,
		tracing.MetricLongestHold, "callback",
	} {
		o, err := tracing.NewObserver(tracing.Config{Meter: provider{meter: choosy{refuses: name}}})
		if !errors.Is(err, errInstrument) || o != nil {
			t.Errorf("without %s: %v", name, err)
		}
	}
}

// The gauges are of the oldest of what waits and holds now. What is over counts no more, though
// others still wait for the key. Who waited and gave up has waited all the same.
func TestPresentWaitsAndHolds(t *testing.T) {
	bubble(t, mem, setup{unseen: true}, func(t *testing.T, p, _ *process) {
		expect := func(waiters, holds int64, oldest, longest float64) {
			t.Helper()
			synctest.Wait()
			m := p.collected(t)
			w, h := sum(m[tracing.MetricWaiters], "", ""), sum(m[tracing.MetricHolds], "", "")
			o, l := gauge(m[tracing.MetricOldestWait], "order"), gauge(m[tracing.MetricLongestHold],
				"order")
			if w != waiters || h != holds || o != oldest || l != longest {
				t.Errorf("%d wait for up to %v s, %d hold for up to %v s; want %d, %v, %d, %v",
					w, o, h, l, waiters, oldest, holds, longest)
			}
		}
		g := p.lock(t, "order-17")
		var all sync.WaitGroup
		for range 2 {
			p.work(t, &all, "work", "order-17", 5*time.Second)
			time.Sleep(2 * time.Second)
		}
		expect(2, 1, 4, 4)
		_ = g.Unlock()
		time.Sleep(time.Second)
		expect(1, 1, 3, 1)
		all.Wait()
		expect(0, 0, 0, 0)

		p.spans.Reset()
		g = p.lock(t, "order-17")
		_, err := p.Lock(t.Context(), "order-17", locker.WaitLimit(time.Second))
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		_ = g.Unlock()
		locks := p.named("lock order")
		if n := attr(locks[len(locks)-1].Attributes, tracing.AttrWaiters); n != "1" {
			t.Errorf("%q have waited, want 1", n)
		}
	})
}

// A lock that found the key held is counted so, whether the store said it or others of its process
// waited already, and whatever came of it. What waited for the store is not. Nothing else is
// counted.
func TestContended(t *testing.T) {
	quarantined := func() backend.Backend {
		return membackend.NewWith(membackend.Config{Quarantine: 40 * time.Second})
	}
	for name, test := range map[string]struct {
		open             func() backend.Backend
		held             bool
		limit            time.Duration // of the one that joins
		contended, waits map[string]int64
		quarantined      bool
	}{
		"free": {open: mem, waits: map[string]int64{tracing.ResultGranted: 1}},
		"held": {
			open: mem, held: true, limit: time.Hour,
			contended: map[string]int64{tracing.ResultGranted: 2},
		},
		"held for too long": {
			open: mem, held: true, limit: time.Second,
			contended: map[string]int64{tracing.ResultGranted: 1, tracing.ResultTimeout: 1},
		},
		"quarantined": {
			open: quarantined, limit: time.Second, quarantined: true,
			waits: map[string]int64{tracing.ResultGranted: 1, tracing.ResultTimeout: 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, test.open, setup{unseen: true}, func(t *testing.T, one, two *process) {
				if test.held {
					g := one.lock(t, "order-17")
					time.AfterFunc(5*time.Second, func() { _ = g.Unlock() })
				}
				var all sync.WaitGroup
				two.work(t, &all, "first", "order-17", time.Second)
				if test.limit > 0 {
					g, err := two.Lock(t.Context(), "order-17", locker.WaitLimit(test.limit))
					if granted := err == nil; granted != (test.limit == time.Hour) {
						t.Error(err)
					}
					_ = g.Unlock()
				}
				all.Wait()
				if name == "free" {
					lock := two.one(t, "lock order")
					for _, key := range []attribute.Key{
						tracing.AttrWaiters, tracing.AttrPasses, tracing.AttrAttempts,
						tracing.AttrCause,
					} {
						if has(lock.Attributes, key) ||
							!slices.Equal(events(lock), []string{"granted"}) {
							t.Errorf("attributes %v, events %q", lock.Attributes, events(lock))
						}
					}
				}
				m := two.collected(t)
				got := map[bool]map[string]int64{false: {}, true: {}}
				h, _ := m[tracing.MetricWait].(metricdata.Histogram[float64])
				var counted int64
				for _, p := range h.DataPoints {
					contended, _ := p.Attributes.Value(tracing.AttrContended)
					result, _ := p.Attributes.Value(tracing.AttrResult)
					got[contended.AsBool()][result.AsString()] += int64(p.Count)
				}
				for _, n := range test.contended {
					counted += n
				}
				if fmt.Sprint(got[true], got[false]) != fmt.Sprint(test.contended, test.waits) {
					t.Errorf("waits of those that found it held %v, of others %v; want %v, %v",
						got[true], got[false], test.contended, test.waits)
				}
				if n := sum(m[tracing.MetricContended], "", ""); n != counted {
					t.Errorf("%d found it held, want %d", n, counted)
				}
				if n := sum(m[tracing.MetricQuarantined], "", ""); (n > 0) != test.quarantined {
					t.Errorf("%d attempts were refused in quarantine", n)
				}
				if n := sum(m[tracing.MetricLost], "", ""); n != 0 {
					t.Errorf("%d are lost", n)
				}
			})
		})
	}
}

// With SpansOver there is a span of what takes as long, to the nanosecond, and of what goes wrong,
// however soon; not of a TryLock of a held key. It has the links that it would have had, and those
// behind a lease link to a request, too.
func TestSpansOverOfWhatIsWrong(t *testing.T) {
	const over = time.Second
	s := setup{
		cfg: tracing.Config{SpansOver: over}, unseen: true,
		lock: locker.Config{TTL: 3 * time.Second},
	}
	t.Run("links", func(t *testing.T) {
		bubble(t, mem, s, func(t *testing.T, one, two *process) {
			var all sync.WaitGroup
			one.work(t, &all, "holds", "order-17", over)
			two.work(t, &all, "waits", "order-17", over)
			if _, err := one.TryLock(t.Context(), "order-17"); !errors.Is(err, backend.ErrHeld) {
				t.Fatal(err)
			}
			one.work(t, &all, "waits for that", "order-17", 0)
			all.Wait()
			holds, waits := one.under(t, "holds", "lock order"), two.under(t, "waits", "lock order")
			if to := links(holds, tracing.LinkNext); !slices.Equal(to, spansOf(two, "waits")) {
				t.Errorf("who held links to %v", to)
			}
			last := one.under(t, "waits for that", "lock order")
			if got := one.blockers(one.waitOf(t, last)); !slices.Contains(got,
				id(two.one(t, "waits"))) {
				t.Errorf("blocked by %v, want among them %v", got, id(two.one(t, "waits")))
			}
			took, n := waits.EndTime.Sub(waits.StartTime), len(one.named("lock order"))
			if took != 2*over || n != 2 {
				t.Errorf("it took %v; %d spans", took, n)
			}
		})
	})
	t.Run("refused", func(t *testing.T) {
		bubble(t, func() backend.Backend {
			return refusing{mem()}
		}, s, func(t *testing.T, p, _ *process) {
			if _, err := p.Lock(t.Context(), "order-17"); !errors.Is(err, backend.ErrUnsafe) {
				t.Fatal(err)
			}
			lock := p.one(t, "lock order")
			got := attr(lock.Attributes, tracing.AttrError)
			if got != tracing.ResultRefused || lock.Status.Code != codes.Error {
				t.Errorf("%v %v", lock.Status, lock.Attributes)
			}
			_, renewed := p.begin(t.Context(), locker.OpRenew, backend.Exclusive)
			renewed(backend.ErrUnavailable)
			renewal := p.one(t, tracing.SpanRenew)
			if got := attr(renewal.Attributes,
				tracing.AttrResult); got != tracing.ResultUnavailable {
				t.Errorf("the result of the renewal is %q", got)
			}
		})
	})
}

// begin begins an operation of one key as a client does, and returns what ends it.
func (p *process) begin(ctx context.Context, op locker.Op,
	mode backend.Mode,
) (context.Context, func(error)) {
	h := locker.Hold{Key: "order-17", Class: "order", Mode: mode}
	ctx, end := p.obs.Begin(ctx, op, h)
	return ctx, func(err error) { end(h, err) }
}

// While a lease is handed on inside the process nobody holds; when the store grants another, or
// none comes, it is not known who did. A wait that was granted is no error if its caller's time
// runs out at the same moment, and what one failed by is said as it is.
func TestEndOfAWait(t *testing.T) {
	for name, test := range map[string]struct {
		reason          locker.WakeReason
		limit           time.Duration // of the caller's time
		err             error
		unheld, unknown time.Duration
		result, says    string
	}{
		"passed":   {locker.WakePass, time.Hour, nil, time.Second, 0, tracing.ResultGranted, ""},
		"a lease":  {locker.WakeCohort, time.Hour, nil, 0, time.Second, tracing.ResultGranted, ""},
		"and late": {locker.WakePass, time.Second, nil, time.Second, 0, tracing.ResultGranted, ""},
		"refused": {
			locker.WakePass, time.Hour, backend.ErrUnsafe, 0, time.Second,
			tracing.ResultRefused, backend.ErrUnsafe.Error(),
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
				first, unlock := p.begin(t.Context(), locker.OpLock, backend.Exclusive)
				p.obs.Event(first, locker.Event{Kind: locker.EventGrant})
				ctx, cancel := context.WithTimeout(t.Context(), test.limit)
				defer cancel()
				ctx, end := p.begin(ctx, locker.OpLock, backend.Exclusive)
				wait, granted := p.begin(ctx, locker.OpWait, backend.Exclusive)
				time.Sleep(2 * time.Second)
				unlock(nil)
				time.Sleep(time.Second)
				p.obs.Event(wait, locker.Event{Kind: locker.EventWake, Reason: test.reason})
				granted(test.err)
				end(test.err)
				s := p.one(t, tracing.SpanWait)
				unheld := seconds(s.Attributes, tracing.AttrUnheld)
				unknown := seconds(s.Attributes, tracing.AttrUnexplained)
				if unheld != test.unheld || unknown != test.unknown {
					t.Errorf("nobody held for %v, nothing is known of %v; want %v, %v",
						unheld, unknown, test.unheld, test.unknown)
				}
				result := attr(s.Attributes, tracing.AttrResult)
				if result != test.result || s.Status.Description != test.says {
					t.Errorf("%v, %+v", s.Attributes, s.Status)
				}
			})
		})
	}
}

// A holder links to who was next from 600 milliseconds on. That a lease is released is told as
// well, and leads nowhere.
func TestNextOfARelease(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for waited, want := range map[time.Duration]int{
		600*time.Millisecond - 1: 0,
		600 * time.Millisecond:   1,
	} {
		bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
			next := backend.Meta{Since: time.Now().Add(-waited), Traceparent: parent}
			released := backend.Released{Waiting: 3, Next: next}
			for _, op := range []locker.Op{locker.OpLock, locker.OpLease} {
				ctx, end := p.begin(t.Context(), op, backend.Exclusive)
				p.obs.Event(ctx, locker.Event{Kind: locker.EventGrant})
				p.obs.Event(ctx, locker.Event{Kind: locker.EventRelease, Released: released})
				end(nil)
			}
			lock := p.one(t, "lock order")
			n, waiters := len(links(lock, tracing.LinkNext)), attr(lock.Attributes,
				tracing.AttrWaiters)
			if n != want || waiters != "3" {
				t.Errorf("after %v: %d links to who is next, want %d; %v", waited, n, want,
					lock.Attributes)
			}
			if s := p.one(t, tracing.SpanLease); len(s.Links) > 0 ||
				has(s.Attributes, tracing.AttrCause) {
				t.Errorf("the lease has links %v, attributes %v", s.Links, s.Attributes)
			}
		})
	}
}

// endings are who is drawn below a wait, from left to right: how each hold ended and to how many
// spans its bar links.
func (p *process) endings(wait tracetest.SpanStub) (all []string) {
	for _, b := range inOrder(p.bars(wait)) {
		end := "-"
		if has(b.Attributes, tracing.AttrHolderEnd) {
			end = attr(b.Attributes, tracing.AttrHolderEnd)
		}
		all = append(all, fmt.Sprintf("%s %d", end, len(b.Links)))
	}
	return all
}

// has reports whether there is an attribute.
func has(attrs []attribute.KeyValue, key attribute.Key) bool {
	return slices.ContainsFunc(attrs, func(a attribute.KeyValue) bool { return a.Key == key })
}

// Bars say of each hold whether it is over, and link to it if so, or if that is about to be told.
// Of two permits one goes on. Who gave up waited for one that had ended and one that goes on. No
// lease has run out.
func TestBarsOfThisProcess(t *testing.T) {
	for name, test := range map[string]struct {
		mode backend.Mode
		late bool // the end of the first is told after the wait's
		err  error
		want []string
	}{
		"permits": {backend.Permit, false, nil, []string{`released 1`, `- 0`}},
		"given up": {
			backend.Exclusive, false, context.Canceled,
			[]string{`released 1`, `holding 0`},
		},
		"told late": {backend.Exclusive, true, nil, []string{`- 1`}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
				holds := func() func(error) {
					ctx, end := p.begin(t.Context(), locker.OpLock, test.mode)
					p.obs.Event(ctx, locker.Event{Kind: locker.EventGrant})
					time.Sleep(time.Millisecond)
					return end
				}
				ends := []func(error){holds()}
				if test.mode == backend.Permit {
					ends = append(ends, holds())
				}
				ctx, end := p.begin(t.Context(), locker.OpLock, test.mode)
				_, granted := p.begin(ctx, locker.OpWait, test.mode)
				time.Sleep(2 * time.Second)
				if !test.late {
					ends[0](nil)
					ends = ends[1:]
				}
				if test.err != nil {
					ends = append(ends, holds())
					time.Sleep(time.Second)
				}
				granted(test.err)
				end(test.err)
				for _, end := range ends {
					end(nil)
				}
				wait := p.one(t, tracing.SpanWait)
				if got := p.endings(wait); !slices.Equal(got, test.want) {
					t.Errorf("ends and links of the bars: %q, want %q", got, test.want)
				}
				if has(wait.Attributes, tracing.AttrHolderEnd) {
					t.Errorf("the wait says that a lease ran out: %v", wait.Attributes)
				}
			})
		})
	}
}

// What a refusal says of the holder is told, as far as it says anything. A store without tokens
// says nothing of how a hold ended.
func TestRefusalWithoutAToken(t *testing.T) {
	for name, test := range map[string]struct {
		holder backend.Meta
		want   string // "" nothing
	}{
		"nobody":    {backend.Meta{}, ""},
		"a service": {backend.Meta{Service: "shop"}, "shop"},
		"a process": {backend.Meta{Service: "shop", Host: "h", PID: 7}, "shop"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
				ctx, end := p.begin(t.Context(), locker.OpLock, backend.Exclusive)
				asks := func(answer error) {
					_, answered := p.begin(ctx, locker.OpAttempt, backend.Exclusive)
					answered(answer)
				}
				asks(&backend.HeldError{Holder: test.holder})
				wait, granted := p.begin(ctx, locker.OpWait, backend.Exclusive)
				time.Sleep(time.Second)
				ctx = wait
				asks(&backend.HeldError{Holder: test.holder})
				asks(nil)
				granted(nil)
				end(nil)
				span := p.one(t, tracing.SpanWait)
				refusal := p.one(t, "lock order").Events[0]
				for _, attrs := range [][]attribute.KeyValue{refusal.Attributes, span.Attributes} {
					if attr(attrs, tracing.AttrHolderService) != test.want ||
						has(attrs, tracing.AttrHolderService) != (test.want != "") ||
						has(attrs, tracing.AttrHolderNote) || has(attrs, tracing.AttrHolderEnd) {
						t.Errorf("of the holder it says %v, want %q", attrs, test.want)
					}
				}
			})
		})
	}
}

// answering is a store that has one answer.
type answering struct {
	backend.Backend
	err error
}

func (s answering) TryAcquire(context.Context, backend.Claim) (backend.Grant, error) {
	if s.err != nil {
		return backend.Grant{}, s.err
	}
	return backend.Grant{Token: 41}, nil
}
func (s answering) Renew(context.Context, backend.Claim) error { return s.err }
func (s answering) Release(context.Context, backend.Claim) (backend.Released, error) {
	return backend.Released{}, s.err
}

func (s answering) Watch(context.Context, backend.Claim) (<-chan backend.Wake, error) {
	return nil, s.err
}

func (s answering) Inspect(context.Context, string) (backend.State, error) {
	return backend.State{}, s.err
}

// Each request to a wrapped store is a span, which says which store it is, where, and what became
// of it. It is an error if there was no definite answer, or a refusal, and that has no key.
func TestRequestsOfAStore(t *testing.T) {
	const key = "user:jo-secretkey"
	for name, test := range map[string]struct {
		err                         error
		store                       tracing.Store
		result, says                string
		named, system, server, port string
	}{
		"answered": {nil, tracing.Store{}, "", "", "tracing_test", "", "", ""},
		"lost": {
			fmt.Errorf("%s: %w", key, backend.ErrLost),
			tracing.Store{Name: "node-1", System: "redis", Address: "a.internal:6379"},
			tracing.ResultLost, "", "node-1", "redis", "a.internal", "6379",
		},
		"unavailable": {
			fmt.Errorf("%s: %w", key, backend.ErrUnavailable),
			tracing.Store{System: "redis", Address: "/run/redis.sock"},
			tracing.ResultUnavailable, "…: " + backend.ErrUnavailable.Error(),
			"tracing_test", "redis", "/run/redis.sock", "",
		},
	} {
		t.Run(name, func(t *testing.T) {
			spans := tracetest.NewInMemoryExporter()
			test.store.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans))
			b, c := tracing.Wrap(answering{mem(), test.err}, test.store), backend.Claim{Key: key}
			for request, send := range map[string]func(context.Context) error{
				"acquire": func(ctx context.Context) error {
					_, err := b.TryAcquire(ctx, c)
					return err
				},
				"renew": func(ctx context.Context) error { return b.Renew(ctx, c) },
				"release": func(ctx context.Context) error {
					_, err := b.Release(ctx, c)
					return err
				},
				"watch": func(ctx context.Context) error {
					_, err := b.Watch(ctx, c)
					return err
				},
				"inspect": func(ctx context.Context) error {
					_, err := b.Inspect(ctx, key)
					return err
				},
			} {
				spans.Reset()
				if err := send(t.Context()); !errors.Is(err, test.err) {
					t.Errorf("%s = %v", request, err)
				}
				all := spans.GetSpans()
				if len(all) != 1 || all[0].Name != tracing.SpanStore+request {
					t.Errorf("%s: spans %v", request, all)
					continue
				}
				s, result, wrong := all[0], test.result, ""
				if result == "" {
					if result = tracing.ResultConfirmed; request == "acquire" {
						result = tracing.ResultGranted
					}
				}
				if test.says != "" {
					wrong = result
				}
				for key, want := range map[attribute.Key]string{
					tracing.AttrResult: result, tracing.AttrError: wrong,
					tracing.AttrOperation: request,
					tracing.AttrStore:     test.named, tracing.AttrSystem: test.system,
					tracing.AttrServer: test.server, tracing.AttrPort: test.port,
				} {
					if attr(s.Attributes, key) != want || has(s.Attributes, key) != (want != "") {
						t.Errorf("%s says %s %q, want %q", s.Name, key, attr(s.Attributes, key),
							want)
					}
				}
				if s.Status.Description != test.says ||
					(s.Status.Code == codes.Error) != (wrong != "") {
					t.Errorf("%s: %+v, want %q", s.Name, s.Status, test.says)
				}
				granted := result == tracing.ResultGranted
				if has(s.Attributes, tracing.AttrToken) != granted {
					t.Errorf("%s has a token: %v, want %v", s.Name, !granted, granted)
				}
			}
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// Those who told how long they held are drawn with the token that they told. A hold that ended in a
// store's queue was handed over, and links to the holder's span, which knew of the wait; one that
// was only announced was released.
func TestHoldersThatTold(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for reason, want := range map[locker.WakeReason][]string{
		locker.WakeGrant:  {`handed 1 of 41`, `handed 1 of `},
		locker.WakeSignal: {`released 0 of 41`, `released 0 of `},
	} {
		bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
			ctx, end := p.begin(t.Context(), locker.OpLock, backend.Exclusive)
			ctx, granted := p.begin(ctx, locker.OpWait, backend.Exclusive)
			time.Sleep(2 * time.Second)
			before := []backend.Past{
				{Meta: backend.Meta{PID: 7, Traceparent: parent}, Token: 41, For: time.Second},
				{Meta: backend.Meta{PID: 8, Traceparent: parent}, For: time.Second},
			}
			p.obs.Event(ctx, locker.Event{Kind: locker.EventWake, Reason: reason, Before: before})
			granted(nil)
			end(nil)
			wait := p.one(t, tracing.SpanWait)
			got := p.endings(wait)
			for i, b := range inOrder(p.bars(wait)) {
				got[i] += " of " + attr(b.Attributes, tracing.AttrHolderToken)
				if told := i == 0; has(b.Attributes, tracing.AttrHolderToken) != told {
					t.Errorf("a token is told: %v, want %v", !told, told)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s: %q, want %q", reason, got, want)
			}
		})
	}
}

// Who waits without a place in the queue knows those whom the store names, one after the other, and
// that the last of them died; of a holder without a trace there is none to look up. With a claim of
// its own the lock says how often it asked.
func TestNamedWhileOneWaits(t *testing.T) {
	for name, opts := range map[string][]locker.Option{
		"together": nil,
		"alone":    {locker.Reentrant("me")},
	} {
		t.Run(name, func(t *testing.T) {
			s := setup{lock: locker.Config{Wait: waiting.Config{Mode: waiting.Poll}}}
			bubble(t, mem, s, func(t *testing.T, p, _ *process) {
				holds := func(service string, ttl time.Duration) backend.Claim {
					c := backend.Claim{Key: "order-17", Owner: backend.NewOwner(), TTL: ttl}
					c.Meta = backend.Meta{Service: service, PID: 7, Since: time.Now()}
					if _, err := p.b.TryAcquire(t.Context(), c); err != nil {
						t.Fatal(err)
					}
					return c
				}
				first := holds("first", time.Minute)
				time.AfterFunc(5*time.Second, func() {
					_, _ = p.b.Release(t.Context(), first)
					holds("second", 5*time.Second)
				})
				g := p.lock(t, "order-17", opts...)
				if err := g.Unlock(); err != nil {
					t.Fatal(err)
				}
				wait, lock := p.one(t, tracing.SpanWait), p.one(t, "lock order")
				var bars []string
				for _, b := range inOrder(p.bars(wait)) {
					end := attr(b.Attributes, tracing.AttrHolderEnd)
					bars = append(bars, strings.TrimPrefix(b.Name, tracing.SpanHeldBy)+" "+end)
					if has(b.Attributes, tracing.AttrHolderTrace) {
						t.Errorf("a trace of one that has none: %v", b.Attributes)
					}
				}
				if !slices.Equal(bars, []string{"first ", "second expired"}) {
					t.Errorf("it waited for %q", bars)
				}
				asked := ""
				if opts != nil {
					asked = fmt.Sprint(len(p.named(tracing.SpanStore + "acquire")))
				}
				if got := attr(lock.Attributes, tracing.AttrAttempts); got != asked {
					t.Errorf("it says that it asked %q times, want %q", got, asked)
				}
			})
		})
	}
}
