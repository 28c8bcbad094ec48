package tracing

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"
)

// metrics are the instruments. The histograms are told of each lock, with the ctx that exemplars
// come from; the rest asks the classes for their numbers when the meter collects.
type metrics struct{ wait, hold metric.Float64Histogram }

func newMetrics(mp metric.MeterProvider, o *Observer) (metrics, error) {
	m := mp.Meter(scope, metric.WithInstrumentationVersion(version()), metric.WithSchemaURL(schema))
	cs := &o.classes
	var (
		all  metrics
		errs []error
	)
	histogram := func(to *metric.Float64Histogram, name, about string) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about),
			metric.WithExplicitBucketBoundaries(Buckets...))
		*to, errs = h, append(errs, err)
	}
	counter := func(name, unit, about string, of func(*class) []*number) {
		_, err := m.Int64ObservableCounter(name, metric.WithUnit(unit), metric.WithDescription(about),
			metric.WithInt64Callback(cs.observe(of)))
		errs = append(errs, err)
	}
	upDown := func(name, unit, about string, of func(*class) []*number) {
		_, err := m.Int64ObservableUpDownCounter(name, metric.WithUnit(unit),
			metric.WithDescription(about), metric.WithInt64Callback(cs.observe(of)))
		errs = append(errs, err)
	}
	histogram(&all.wait, MetricWait, "How long Lock and TryLock took")
	histogram(&all.hold, MetricHold, "How long locks were held")
	counter(MetricAcquisitions, "{acquisition}", "What came of Lock and TryLock",
		func(c *class) []*number { return happened(c.acquisitions) })
	counter(MetricContended, "{acquisition}", "Lock and TryLock that found the key held",
		func(c *class) []*number { return []*number{c.contended} })
	counter(MetricLost, "{hold}", "Holds that ended otherwise than by Unlock",
		(*class).losses)
	counter(MetricRenewals, "{renewal}", "Renewals of leases",
		func(c *class) []*number { return happened(c.renewals) })
	counter(MetricPasses, "{pass}", "Leases handed on inside the process",
		func(c *class) []*number { return []*number{c.passes} })
	counter(MetricQuarantined, "{attempt}", "Attempts that a store in quarantine refused",
		func(c *class) []*number { return []*number{c.quarantined} })
	upDown(MetricWaiters, "{acquisition}", "Locks that are waited for",
		func(c *class) []*number { return []*number{c.waiters} })
	upDown(MetricHolds, "{hold}", "Locks held", func(c *class) []*number { return []*number{c.holds} })
	gauge := func(name, about string, held bool) {
		_, err := m.Float64ObservableGauge(name, metric.WithUnit("s"), metric.WithDescription(about),
			metric.WithFloat64Callback(o.oldest(held)))
		errs = append(errs, err)
	}
	gauge(MetricOldestWait, "How long the oldest of the present waits has lasted", false)
	gauge(MetricLongestHold, "How long the oldest of the present holds has lasted", true)
	if err := errors.Join(errs...); err != nil {
		return all, fmt.Errorf("holdfast: tracing: instruments: %w", err)
	}
	return all, nil
}

// happened leaves out what has never happened, which is no time series.
func happened(numbers map[string]*number) (all []*number) {
	for _, n := range numbers {
		if n.Load() != 0 {
			all = append(all, n)
		}
	}
	return all
}

// losses are all causes from the first hold on: a rise from nothing is no increase for those who
// watch the metric.
func (c *class) losses() (all []*number) {
	if c.acquisitions[ResultGranted].Load() == 0 {
		return nil
	}
	return slices.Collect(maps.Values(c.lost))
}

// oldest returns a callback for the longest of the present waits, or holds, of each class that has
// been seen to be held; 0 if there is none.
func (o *Observer) oldest(held bool) metric.Float64Callback {
	return func(_ context.Context, to metric.Float64Observer) error {
		longest := map[*class]time.Duration{}
		for _, c := range o.classes.all() {
			longest[c] = 0
		}
		o.blame.Oldest(func(of any, wait, hold time.Duration) {
			switch of := of.(type) {
			case *class: // of one that waits
				if !held {
					longest[of] = max(longest[of], wait)
				}
			case *lock:
				if held {
					longest[of.class] = max(longest[of.class], hold)
				}
			}
		})
		for c, d := range longest {
			to.Observe(d.Seconds(), c.holds.attrs...)
		}
		return nil
	}
}

// observe returns a callback that reports some numbers of every class.
func (cs *classes) observe(of func(*class) []*number) metric.Int64Callback {
	return func(_ context.Context, to metric.Int64Observer) error {
		for _, c := range cs.all() {
			for _, n := range of(c) {
				to.Observe(n.Load(), n.attrs...)
			}
		}
		return nil
	}
}
