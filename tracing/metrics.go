package tracing

import (
	"errors"
	"fmt"

	"go.opentelemetry.io/otel/metric"
)

type metrics struct {
	wait, hold                                                   metric.Float64Histogram
	acquisitions, contended, lost, renewals, passes, quarantined metric.Int64Counter
	waiters, holds                                               metric.Int64UpDownCounter
}

// newMetrics makes the instruments.
func newMetrics(m metric.Meter) (metrics, error) {
	var (
		all  metrics
		errs []error
	)
	histogram := func(to *metric.Float64Histogram, name, about string) {
		h, err := m.Float64Histogram(name, metric.WithUnit("s"), metric.WithDescription(about), metric.WithExplicitBucketBoundaries(Buckets...))
		*to, errs = h, append(errs, err)
	}
	counter := func(to *metric.Int64Counter, name, unit, about string) {
		c, err := m.Int64Counter(name, metric.WithUnit(unit), metric.WithDescription(about))
		*to, errs = c, append(errs, err)
	}
	upDown := func(to *metric.Int64UpDownCounter, name, unit, about string) {
		c, err := m.Int64UpDownCounter(name, metric.WithUnit(unit), metric.WithDescription(about))
		*to, errs = c, append(errs, err)
	}
	histogram(&all.wait, MetricWait, "How long Lock and TryLock took")
	histogram(&all.hold, MetricHold, "How long locks were held")
	counter(&all.acquisitions, MetricAcquisitions, "{acquisition}", "What came of Lock and TryLock")
	counter(&all.contended, MetricContended, "{acquisition}", "Lock and TryLock that found the key held")
	counter(&all.lost, MetricLost, "{hold}", "Holds that ended otherwise than by Unlock")
	counter(&all.renewals, MetricRenewals, "{renewal}", "Renewals of leases")
	counter(&all.passes, MetricPasses, "{pass}", "Leases handed on inside the process")
	counter(&all.quarantined, MetricQuarantined, "{attempt}", "Attempts that a store in quarantine refused")
	upDown(&all.waiters, MetricWaiters, "{acquisition}", "Lock and TryLock under way")
	upDown(&all.holds, MetricHolds, "{hold}", "Locks held")
	if err := errors.Join(errs...); err != nil {
		return all, fmt.Errorf("holdfast: tracing: instruments: %w", err)
	}
	return all, nil
}
