package tracing

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/locker"
)

const (
	// MaxClasses is how many classes an [Observer] tells apart, and how many services of holders.
	MaxClasses = blame.MostNames
	// OtherClass is the class of all keys beyond, and in [MetricBlocked] the service of all holders
	// beyond.
	OtherClass = blame.OtherName
)

// A class is what is the same for all locks of one class and mode, made once.
type class struct {
	name    string
	lock    string // the names of the spans
	wait    string
	span    []trace.SpanStartOption // with the attributes of spans
	attrs   []attribute.KeyValue    // of metrics
	all     metric.MeasurementOption
	granted metric.MeasurementOption // those that were
	free    metric.MeasurementOption // and found the key free, or held:
	held    metric.MeasurementOption
}

// with returns the class and more as attributes of a measurement. That costs more than to count it:
// what every lock counts is made once.
func (c *class) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(slices.Concat(c.attrs, more)...))
}

func newClass(name string, mode backend.Mode) *class {
	c := &class{
		name: name, lock: strings.TrimSpace(SpanLock + " " + name),
		wait: strings.TrimSpace(SpanWait + " " + name),
	}
	c.attrs = []attribute.KeyValue{AttrClass.String(name), AttrMode.String(mode.String())}
	granted := AttrResult.String(ResultGranted)
	c.all, c.granted = c.with(), c.with(granted)
	c.free = c.with(granted, AttrContended.Bool(false))
	c.held = c.with(granted, AttrContended.Bool(true))
	onSpan := c.attrs
	if mode == backend.Exclusive {
		onSpan = onSpan[:1] // as most are; every attribute of a span costs
	}
	c.span = []trace.SpanStartOption{trace.WithAttributes(onSpan...)}
	return c
}

// classes remembers the classes seen.
type classes struct {
	names blame.Names
	asked atomic.Bool // somebody was told how to name them

	mu    sync.Mutex
	known map[kind]*class
}

// A kind is what makes a class.
type kind struct {
	name string
	mode backend.Mode
}

// class returns the class of a hold's key.
func (o *Observer) class(h locker.Hold) *class {
	name, cs := h.Class, &o.classes
	if o.cfg.KeyClass != nil {
		name = o.cfg.KeyClass(h.Key)
	}
	if name == "" && cs.asked.CompareAndSwap(false, true) {
		o.cfg.Logger.Info("holdfast: a lock has no class, so spans and metrics do not say " +
			"what kind it is; " +
			"locker.Config.Classes, such as order-*, or tracing.Config.KeyClass names the kinds")
	}
	of := kind{cs.names.Of(name), h.Mode}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	c := cs.known[of]
	if c == nil {
		c = newClass(of.name, of.mode)
		cs.known[of] = c
		o.metrics.begin(c)
	}
	return c
}
