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
	blocked    metric.Float64Counter

	acquisitions, contended, lost, takenOver, renewals, passes, quarantined,
	deadlocks metric.Int64Counter
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
	var err error
	all.blocked, err = m.Float64Counter(MetricBlocked, metric.WithUnit("s"),
		metric.WithDescription("How long others were waited for, in waits that took long"))
	errs = append(errs, err)
	counter(&all.acquisitions, MetricAcquisitions, "{acquisition}", "What came of Lock and TryLock")
	counter(&all.contended, MetricContended, "{acquisition}",
		"Lock and TryLock that found the key held")
	counter(&all.lost, MetricLost, "{hold}", "Holds that ended otherwise than by Unlock")
	counter(&all.takenOver, MetricTakenOver, "{hold}",
		"Holds that followed one whose lease ran out")
	counter(&all.renewals, MetricRenewals, "{renewal}", "Renewals of leases")
	counter(&all.passes, MetricPasses, "{pass}", "Leases handed on inside the process")
	counter(&all.quarantined, MetricQuarantined, "{attempt}",
		"Attempts that a store in quarantine refused")
	counter(&all.deadlocks, MetricDeadlocks, "{wait}",
		"Waits that were found to wait for each other")

	number := func(name, unit, about string) metric.Int64Observable {
		n, err := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit),
			metric.WithDescription(about))
		errs = append(errs, err)
		return n
	}
	age := func(name, about string) metric.Float64Observable {
		g, err := m.Float64ObservableGauge(name, metric.WithUnit("s"),
			metric.WithDescription(about))
		errs = append(errs, err)
		return g
	}
	waiters := number(MetricWaiters, "{acquisition}", "Locks that are waited for")
	holds := number(MetricHolds, "{hold}", "Locks held")
	oldest := age(MetricOldestWait, "How long the oldest of the present waits has lasted")
	longest := age(MetricLongestHold, "How long the oldest of the present holds has lasted")
	_, err = m.RegisterCallback(func(_ context.Context, to metric.Observer) error {
		for c, n := range o.present() {
			to.ObserveInt64(waiters, n.waits, c.all)
			to.ObserveInt64(holds, n.holds, c.all)
			to.ObserveFloat64(oldest, n.wait.Seconds(), c.all)
			to.ObserveFloat64(longest, n.hold.Seconds(), c.all)
		}
		return nil
	}, waiters, holds, oldest, longest)
	return errors.Join(append(errs, err)...)
}

// begin has the counters of a class begin at 0, as a rise from nothing is no increase for those who
// watch them.
func (m *metrics) begin(c *class) {
	ctx := context.Background()
	for _, of := range []metric.Int64Counter{
		m.contended, m.takenOver, m.passes, m.quarantined,
		m.deadlocks, // safeguard: deadlocks-begin
	} {
		of.Add(ctx, 0, c.all)
	}
	for _, cause := range causes {
		m.lost.Add(ctx, 0, c.with(AttrCause.String(cause.shown)))
	}
}

// present is what waits and holds of one class: how many, and how long the oldest has lasted.
type present struct {
	waits, holds int64
	wait, hold   time.Duration
}

// present returns it for each class that was ever seen.
func (o *Observer) present() map[*class]*present {
	all, now := map[*class]*present{}, time.Now()
	o.classes.mu.Lock() // so that nothing waits or holds of any other
	defer o.classes.mu.Unlock()
	for _, c := range o.classes.known {
		all[c] = &present{}
	}
	o.blame.Each(func(k *blame.Key) {
		for _, w := range k.Waits {
			n := all[w.Of.(*lock).class] //nolint:errcheck,forcetypeassert // nothing else waits
			n.waits, n.wait = n.waits+1, max(n.wait, now.Sub(w.Since))
		}
		for _, h := range k.Holds {
			if l, here := h.Here.(*lock); here && !h.Over() {
				n := all[l.class]
				n.holds, n.hold = n.holds+1, max(n.hold, now.Sub(h.From))
			}
		}
	})
	return all
}
