package tracing_test

import (
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
)

// Each of two processes tells on its wait that the other waits for it, and that of one is an error.
func TestDeadlockIsAnEventOfTheWait(t *testing.T) {
	for name, cfg := range map[string]tracing.Config{
		"spans":    {ShowKeys: true},
		"deferred": {SpansOver: time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			s := setup{cfg: cfg, lock: locker.Config{Service: "shop", BreakDeadlocks: true}}
			bubble(t, func() backend.Backend {
				return membackend.New()
			}, s, func(t *testing.T, one, two *process) {
				first, second := one.lock(t, "order-1"), two.lock(t, "order-2")
				var waits sync.WaitGroup
				cross := func(p *process, held *locker.Guard[struct{}], key string, victim bool) {
					waits.Go(func() {
						g, err := p.Lock(held.Context(), key)
						if errors.Is(err, locker.ErrDeadlock) != victim {
							t.Errorf("Lock(%s) = %v, and it gives up: %v", key, err, victim)
						}
						_ = g.Unlock()
						_ = held.Unlock()
					})
				}
				cross(one, first, "order-2", false)
				cross(two, second, "order-1", true)
				waits.Wait()
				for _, p := range []*process{one, two} {
					wait := p.one(t, tracing.SpanWait)
					told := 0
					for _, e := range wait.Events {
						if e.Name != tracing.EventDeadlock {
							continue
						}
						told++
						// its text is another in each version of OpenTelemetry
						var services []string
						for _, a := range e.Attributes {
							if a.Key == tracing.AttrServices {
								services = a.Value.AsStringSlice()
							}
						}
						if !slices.Equal(services, []string{"shop", "shop"}) ||
							attr(e.Attributes, tracing.AttrError) != tracing.ResultDeadlock ||
							attr(e.Attributes, tracing.AttrPlaces) == "" ||
							(attr(e.Attributes, tracing.AttrKeys) != "") != cfg.ShowKeys {
							t.Errorf("its attributes are %v", e.Attributes)
						}
					}
					if n := sum(p.collected(t)[tracing.MetricDeadlocks], tracing.AttrClass,
						"order"); told != 1 || n != 1 {
						t.Errorf("told %d times, counted %d, want once", told, n)
					}
					if wrong := wait.Status.Code == codes.Error; wrong != (p == two) {
						t.Errorf("the wait is an error: %v", wrong)
					}
				}
				if got := attr(two.one(t, tracing.SpanWait).Attributes,
					tracing.AttrResult); got != tracing.ResultDeadlock {
					t.Errorf("the result is %s", got)
				}
			})
		})
	}
}
