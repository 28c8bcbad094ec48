package tracing_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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

func TestClass(t *testing.T) {
	for key, want := range map[string]string{
		"order-17": "order", "user:jo:cart": "user", "flash-sale": "flash-sale", "17": "", "a/b": "a", "sku_9_x": "sku",
		"tenant=4": "tenant", "mail@example.org": "mail", "größe": "größe", "~x": "",
	} {
		if got := tracing.Class(key); got != want {
			t.Errorf("Class(%q) = %q, want %q", key, got, want)
		}
	}
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
			bubble(t, open, setup{cfg: tracing.Config{ShowKeys: show}, unseen: show}, func(t *testing.T, p, _ *process) {
				for range 3 {
					if _, err := p.Lock(t.Context(), "user:jo-secretkey"); !errors.Is(err, backend.ErrUnsafe) {
						t.Fatal(err)
					}
					time.Sleep(15 * time.Second)
				}
				for _, s := range p.ended() {
					if s.Status.Code != codes.Error { // withdrawing goes well
						continue
					}
					if got := strings.Contains(fmt.Sprintf("%+v", s), "secretkey"); got != show {
						t.Errorf("%s shows the key: %v", s.Name, got)
					}
					if !strings.Contains(s.Status.Description, "silently") {
						t.Errorf("%s: %v", s.Name, s.Status)
					}
				}
				if locks := p.named("lock user"); len(locks) != 3 || locks[0].Status.Code != codes.Error {
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
		if wait.EndTime.Sub(wait.StartTime) < 40*time.Second || len(p.named(tracing.SpanStore+"acquire")) > 3 {
			t.Errorf("%d attempts, waited for %v", len(p.named(tracing.SpanStore+"acquire")), wait.EndTime.Sub(wait.StartTime))
		}
		for _, s := range []tracetest.SpanStub{p.one(t, "lock order"), p.one(t, tracing.SpanLease)} {
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
			tracing.MetricContended: 1, tracing.MetricPasses: 1, tracing.MetricQuarantined: 1, tracing.MetricLost: 6,
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
			if len(h.Exemplars) != 1 || !bytes.Equal(h.Exemplars[0].SpanID, idBytes(p.one(t, "lock order"))) {
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
