package tracing

import (
	"log/slog"
	"time"

	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"
)

// Config adjusts an [Observer]. The zero value is ready for use.
type Config struct {
	Tracer trace.TracerProvider // default: otel.GetTracerProvider()
	Meter  metric.MeterProvider // default: otel.GetMeterProvider()

	// KeyClass returns what kind of lock a key is, such as "order" for "order-17", or "" for none.
	// It is called for each lock, and must be quick and not lock anything itself. Default: what
	// locker.Config.Classes says. Classes beyond the first [MaxClasses] are shown as [OtherClass],
	// so that a class that is a key after all does not become a million time series.
	KeyClass func(key string) string

	// ShowKeys puts the whole key into spans. Metrics never have it.
	ShowKeys bool

	// SpansOver makes spans only of waits and holds that take at least as long, and of what goes
	// wrong; metrics are of all. They are made when they end, so what is done under the lock
	// belongs to the caller's span, and that is what holders are linked by. 0: a span for each
	// lock.
	SpansOver time.Duration

	// BarsOver is how long a wait must take for its holders to be drawn: each as a span of its own
	// below that of the wait, see [SpanHeldBy]. 0: 10 milliseconds; negative: every wait.
	BarsOver time.Duration

	// LogOver has Logger, by default slog.Default(), told of each wait that takes at least as
	// long, at level Warn: who held, and for how long. 0: none. The first lock
	// without a class is told of once, at level Info.
	LogOver time.Duration
	Logger  *slog.Logger
}
