package tracing

import (
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/holdfast-go/holdfast/internal/blame"
)

// metrics are the instruments that are told of what happens, with the ctx that exemplars come from.
type metrics struct {
	wait, hold metric.Float64Histogram

	acquisitions, contended, lost, renewals, passes, quarantined metric.Int64Counter
}

func (o *Observer) makeMetrics(of metric.MeterProvider) error {
	m := of.Meter(scope,
		metric.WithInstrumentationVersion(version()), metric.WithSchemaURL(schema))
	var errs []error
	histogram := func(to *metric.Float64Histogram, name, about string) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
			metric.WithExplicitBucketBoundaries(Buckets...))
		*to, errs = h, append(errs, err)
	}
	counter := func(to *metric.Int64Counter, name, unit, about string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		*to, errs = c, append(errs, err)
	}
	all := &o.metrics
	histogram(&all.wait, MetricWait, "How long Lock and TryLock took")
	histogram(&all.hold, MetricHold, "How long locks were held")
	counter(&all.acquisitions, MetricAcquisitions, "{acquisition}", "What came of Lock and TryLock")
	counter(&all.contended, MetricContended, "{acquisition}",
		"Lock and TryLock that found the key held")
	counter(&all.lost, MetricLost, "{hold}", "Holds that ended otherwise than by Unlock")
	counter(&all.renewals, MetricRenewals, "{renewal}", "Renewals of leases")
	counter(&all.passes, MetricPasses, "{pass}", "Leases handed on inside the process")
	counter(&all.quarantined, MetricQuarantined, "{attempt}",
		"Attempts that a store in quarantine refused")

	waiters, err := m.Int64ObservableUpDownCounter(MetricWaiters, metric.WithUnit("{acquisition}"),
		metric.WithDescription("Locks that are waited for"))
	errs = append(errs, err)
	holds, err := m.Int64ObservableUpDownCounter(MetricHolds, metric.WithUnit("{hold}"),
		metric.WithDescription("Locks held"))
	errs = append(errs, err)
	oldest, err := m.Float64ObservableGauge(MetricOldestWait, metric.WithUnit("s"),
		metric.WithDescription("How long the oldest of the present waits has lasted"))
	errs = append(errs, err)
	longest, err := m.Float64ObservableGauge(MetricLongestHold, metric.WithUnit("s"),
		metric.WithDescription("How long the oldest of the present holds has lasted"))
	errs = append(errs, err)
	_, err = m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for c, n := range o.present() {
			to.ObserveInt64(waiters, n[0].number, c.all)
			to.ObserveInt64(holds, n[1].number, c.all)
			to.ObserveFloat64(oldest, n[0].oldest.Seconds(), c.all)
			to.ObserveFloat64(longest, n[1].oldest.Seconds(), c.all)
		}
		return nil
	}, waiters, holds, oldest, longest)
	return errors.Join(append(errs, err)...)
}

// begin has the counters of a class begin at 0, as a rise from nothing is no increase for those who
// watch them.
func (m *metrics) begin(c *class) {
	ctx := context.Background()
	for _, of := range []metric.Int64Counter{m.contended, m.passes, m.quarantined} {
		of.Add(ctx, 0, c.all.add...)
	}
	for _, cause := range causes {
		m.lost.Add(ctx, 0, c.series(AttrCause.String(cause.shown)).add...)
	}
}

// presence is how many locks there are now, and how long the oldest of them has been.
type presence struct {
	number int64
	oldest time.Duration
}

func (p *presence) add(d time.Duration) { p.number, p.oldest = p.number+1, max(p.oldest, d) }

// present returns what waits, and what holds, of each class that was ever seen.
func (o *Observer) present() map[*class]*[2]presence {
	all, now := map[*class]*[2]presence{}, time.Now()
	o.classes.mu.Lock() // so that nothing waits or holds of any other
	defer o.classes.mu.Unlock()
	for _, c := range o.classes.known {
		all[c] = &[2]presence{}
	}
	o.blame.Each(func(k *blame.Key) {
		for _, w := range k.Waits {
			l := w.Of.(*lock) //nolint:errcheck,forcetypeassert // nothing else waits
			all[l.class][0].add(now.Sub(w.Since))
		}
		for _, h := range k.Holds {
			if l, here := h.Here.(*lock); here && !h.Over() {
				all[l.class][1].add(now.Sub(h.From))
			}
		}
	})
	return all
}
