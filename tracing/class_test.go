package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
)

// A class is what the program says, and a key that it says nothing of has none, whatever it looks
// like: that is told once. KeyClass has the last word.
func TestClasses(t *testing.T) {
	var log bytes.Buffer
	cfg := tracing.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}
	bubble(t, mem, setup{cfg: cfg, unseen: true}, func(t *testing.T, p, other *process) {
		_ = p.lock(t, "order-17").Unlock()
		if log.Len() > 0 {
			t.Errorf("logged: %s", &log)
		}
		none := []string{"mary-alice", "tenant_acme", "7fK2mQ9xZ0aB", "17", "order"}
		for i := range 3000 {
			none = append(none, fmt.Sprintf("session%x", i*i*i))
		}
		for _, key := range none {
			_ = p.lock(t, key).Unlock()
		}
		_ = p.lock(t, "order-18").Unlock()
		acquired := p.collected(t)[tracing.MetricAcquisitions]
		for class, want := range map[string]int64{
			"order": 2, "": int64(len(none)),
			tracing.OtherClass: 0,
		} {
			if n := sum(acquired, tracing.AttrClass, class); n != want {
				t.Errorf("%d locks of class %q, want %d", n, class, want)
			}
		}
		if len(p.named("lock")) != len(none) || len(p.named("lock order")) != 2 {
			t.Errorf("%d spans without a class, %d of order", len(p.named("lock")),
				len(p.named("lock order")))
		}
		if strings.Count(log.String(), "level=INFO") != 1 ||
			strings.Count(log.String(), "\n") != 1 ||
			!strings.Contains(log.String(), "locker.Config.Classes") {
			t.Errorf("logged: %s", &log)
		}
		_ = other.lock(t, "17").Unlock()
		if strings.Count(log.String(), "\n") != 2 {
			t.Errorf("another Observer logged: %s", &log)
		}
	})
	cfg.KeyClass = func(key string) string { return strings.TrimPrefix(key, "order-") }
	bubble(t, mem, setup{cfg: cfg, unseen: true}, func(t *testing.T, p, _ *process) {
		for key, span := range map[string]string{
			"order-a": "lock a", "b": "lock b",
			"order-": "lock",
		} {
			_ = p.lock(t, key).Unlock()
			p.one(t, span)
		}
	})
}

// The name of a wait has the class. A wait that runs out of time is an error of that type, however
// the time was given and whatever the store said last; one whose caller went away is none.
func TestWaitThatFails(t *testing.T) {
	for name, c := range map[string]struct {
		end    time.Duration // of the caller's ctx
		cancel bool
		opts   []locker.Option
		want   string
	}{
		"ctx": {2 * time.Second, false, nil, tracing.ResultTimeout},
		"ctx, alone": {
			2 * time.Second, false,
			[]locker.Option{locker.Shared()},
			tracing.ResultTimeout,
		},
		"limit": {
			time.Hour, false,
			[]locker.Option{locker.WaitLimit(2 * time.Second)},
			tracing.ResultTimeout,
		},
		"limit, alone": {time.Hour, false, []locker.Option{
			locker.WaitLimit(2 * time.Second),
			locker.Shared(),
		}, tracing.ResultTimeout},
		"cancel": {2 * time.Second, true, nil, tracing.ResultCancelled},
		"cancel, alone": {
			2 * time.Second, true,
			[]locker.Option{locker.Shared()},
			tracing.ResultCancelled,
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, mem, setup{unseen: true}, func(t *testing.T, one, two *process) {
				g := one.lock(t, "order-17")
				defer func() { _ = g.Unlock() }()
				ctx, cancel := context.WithTimeout(t.Context(), c.end)
				if c.cancel {
					cancel()
					ctx, cancel = context.WithCancel(t.Context())
					time.AfterFunc(c.end, cancel)
				}
				defer cancel()
				if _, err := two.Lock(ctx, "order-17", c.opts...); !errors.Is(err,
					locker.ErrNotAcquired) {
					t.Fatal(err)
				}
				wrong := c.want == tracing.ResultTimeout
				for _, span := range []string{"lock.wait order", "lock order"} {
					s := two.one(t, span)
					if attr(s.Attributes, tracing.AttrResult) != c.want ||
						(s.Status.Code == codes.Error) != wrong ||
						(attr(s.Attributes, tracing.AttrError) == c.want) != wrong ||
						strings.Contains(s.Status.Description, "\n") {
						t.Errorf("%s: %v, %v", span, s.Attributes, s.Status)
					}
				}
			})
		})
	}
}

// Services that differ in each process, as by a pod's name, do not become a time series each.
func TestServicesAreBounded(t *testing.T) {
	bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
		for _, name := range []string{strings.Repeat("x", 100), "\xff"} {
			if got := p.obs.Service(name); got != tracing.OtherClass {
				t.Errorf("%q is counted as %q", name, got)
			}
		}
		for i := range tracing.MaxClasses + 50 {
			name, want := fmt.Sprint("pod-", i), tracing.OtherClass
			if i < tracing.MaxClasses {
				want = name
			}
			if got := p.obs.Service(name); got != want {
				t.Fatalf("service %d of holders is counted as %q, want %q", i+1, got, want)
			}
		}
		if got := p.obs.Service("pod-7"); got != "pod-7" {
			t.Errorf("one that is known is counted as %q", got)
		}
	})
}

// A class that is a key after all does not become a time series for each key.
func TestClassesAreBounded(t *testing.T) {
	whole := func(key string) string { return key }
	bubble(t, mem, setup{cfg: tracing.Config{KeyClass: whole}}, func(t *testing.T, p, _ *process) {
		for i := range tracing.MaxClasses + 50 {
			_ = p.lock(t, fmt.Sprint("k", i)).Unlock()
		}
		_ = p.lock(t, strings.Repeat("x", 100)).Unlock()
		acquired := p.collected(t)[tracing.MetricAcquisitions]
		if n := len(acquired.(metricdata.Sum[int64]).DataPoints); n != tracing.MaxClasses+1 {
			t.Errorf("%d classes", n)
		}
		if n := sum(acquired, tracing.AttrClass, tracing.OtherClass); n != 51 {
			t.Errorf("%d of other classes", n)
		}
	})
}

// refusing is a store whose errors quote the key.
type refusing struct{ backend.Backend }

func (refusing) TryAcquire(_ context.Context, c backend.Claim) (backend.Grant, error) {
	return backend.Grant{}, fmt.Errorf("key %q: %w", c.Key, backend.ErrUnsafe)
}

// Keys are shown on request only, even where an error quotes them.
func TestKeysAreNotShown(t *testing.T) {
	for _, show := range []bool{false, true} {
		t.Run(fmt.Sprint(show), func(t *testing.T) {
			open := func() backend.Backend { return refusing{membackend.New()} }
			bubble(t, open, setup{cfg: tracing.Config{ShowKeys: show}, unseen: show},
				func(t *testing.T, p, _ *process) {
					for range 3 {
						if _, err := p.Lock(t.Context(), "user:jo-secretkey"); !errors.Is(err,
							backend.ErrUnsafe) {
							t.Fatal(err)
						}
						time.Sleep(15 * time.Second)
					}
					for _, s := range p.ended() {
						if s.Status.Code != codes.Error { // withdrawing goes well
							continue
						}
						if got := strings.Contains(fmt.Sprintf("%+v", s),
							"secretkey"); got != show {
							t.Errorf("%s shows the key: %v", s.Name, got)
						}
						if !strings.Contains(s.Status.Description, "silently") {
							t.Errorf("%s: %v", s.Name, s.Status)
						}
					}
					if locks := p.named("lock user"); len(locks) != 3 ||
						locks[0].Status.Code != codes.Error {
						t.Errorf("locks: %v", locks)
					}
				})
		})
	}
}

// A store that may have forgotten holds is waited for in few attempts, shown, and counted.
func TestQuarantine(t *testing.T) {
	open := func() backend.Backend {
		return membackend.NewWith(membackend.Config{Quarantine: 40 * time.Second})
	}
	bubble(t, open, setup{}, func(t *testing.T, p, _ *process) {
		_ = p.lock(t, "order-17").Unlock()
		wait := p.one(t, tracing.SpanWait)
		if wait.EndTime.Sub(wait.StartTime) < 40*time.Second ||
			len(p.named(tracing.SpanStore+"acquire")) > 3 {
			t.Errorf("%d attempts, waited for %v", len(p.named(tracing.SpanStore+"acquire")),
				wait.EndTime.Sub(wait.StartTime))
		}
		for _, s := range []tracetest.SpanStub{
			p.one(t, "lock order"),
			p.one(t, tracing.SpanLease),
		} {
			if n := len(s.Links); n > 1 { // lease and used_by
				t.Errorf("%s links to %d", s.Name, n)
			}
		}
		if e := events(p.one(t, "lock order")); !slices.Contains(e, "attempt quarantined") {
			t.Errorf("events %q", e)
		}
		if n := sum(p.collected(t)[tracing.MetricQuarantined], "", ""); n == 0 {
			t.Error("not counted")
		}
	})
}

// What counts the unusual is 0 from the first lock of a class on: the first one is an increase.
func TestCountersBeginAtZero(t *testing.T) {
	bubble(t, mem, setup{unseen: true}, func(t *testing.T, p, _ *process) {
		g := p.lock(t, "order-17")
		m := p.collected(t)
		for name, series := range map[string]int{
			tracing.MetricContended: 1, tracing.MetricTakenOver: 1, tracing.MetricPasses: 1,
			tracing.MetricQuarantined: 1, tracing.MetricDeadlocks: 1, tracing.MetricLost: 6,
		} {
			s, _ := m[name].(metricdata.Sum[int64])
			if n := sum(s, "", ""); n != 0 || len(s.DataPoints) != series || !s.IsMonotonic {
				t.Errorf("%s: %d in %d series", name, n, len(s.DataPoints))
			}
		}
		_ = g.Unlock()
	})
}

// Histograms carry the spans that they are about.
func TestExemplars(t *testing.T) {
	bubble(t, mem, setup{}, func(t *testing.T, p, _ *process) {
		g := p.lock(t, "order-17")
		time.Sleep(2 * time.Second)
		_ = g.Unlock()
		for _, metric := range []string{tracing.MetricWait, tracing.MetricHold} {
			h := p.collected(t)[metric].(metricdata.Histogram[float64]).DataPoints[0]
			if len(h.Exemplars) != 1 ||
				!bytes.Equal(h.Exemplars[0].SpanID, idBytes(p.one(t, "lock order"))) {
				t.Errorf("%s: exemplars %v", metric, h.Exemplars)
			}
			if len(h.Bounds) != len(tracing.Buckets) || metric == tracing.MetricHold && h.Sum != 2 {
				t.Errorf("%s: %+v", metric, h)
			}
		}
	})
}

// A wrapped backend is a backend in every respect.
func TestWrapConforms(t *testing.T) {
	backendtest.Run(t, backendtest.Harness{Bubble: true, Open: func(t testing.TB) backend.Backend {
		b, err := backend.Open(t.Context(), "mem://"+url.PathEscape(t.Name()))
		if err != nil {
			t.Fatal(err)
		}
		return tracing.Wrap(b, tracing.Store{})
	}})
}

var _ locker.EventObserver = (*tracing.Observer)(nil)
