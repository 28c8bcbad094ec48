package tracing

import (
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

const (
	// MaxClasses is how many classes an [Observer] tells apart, and how many services of holders.
	MaxClasses = 200
	// OtherClass is the class of all keys beyond, and in [MetricBlocked] the service of all holders beyond.
	OtherClass = "_other"

	longestClass = 64
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
	c := &class{name: name, lock: strings.TrimSpace(SpanLock + " " + name), wait: strings.TrimSpace(SpanWait + " " + name)}
	c.attrs = []attribute.KeyValue{AttrClass.String(name), AttrMode.String(mode.String())}
	granted := AttrResult.String(ResultGranted)
	c.all, c.granted = c.with(), c.with(granted)
	c.free, c.held = c.with(granted, AttrContended.Bool(false)), c.with(granted, AttrContended.Bool(true))
	onSpan := c.attrs
	if mode == backend.Exclusive {
		onSpan = onSpan[:1] // as most are; every attribute of a span costs
	}
	c.span = []trace.SpanStartOption{trace.WithAttributes(onSpan...)}
	return c
}

// classes remembers the classes seen.
type classes struct {
	mu    sync.Mutex
	known map[string]map[backend.Mode]*class // by name
	asked atomic.Bool                        // somebody was told how to name them

	services map[string]bool // of holders that were waited for
}

// fits reports whether name may be one more value of an attribute that has n.
func fits(name string, n int) bool {
	return n < MaxClasses && len(name) <= longestClass && utf8.ValidString(name)
}

// service returns the name by which a holder's service is counted.
func (cs *classes) service(name string) string {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.services[name] {
		return name
	}
	if !fits(name, len(cs.services)) {
		return OtherClass
	}
	if cs.services == nil {
		cs.services = map[string]bool{}
	}
	cs.services[strings.Clone(name)] = true
	return name
}

// class returns the class of a hold's key.
func (o *Observer) class(h locker.Hold) *class {
	name, cs := h.Class, &o.classes
	if o.cfg.KeyClass != nil {
		name = o.cfg.KeyClass(h.Key)
	}
	if name == "" && cs.asked.CompareAndSwap(false, true) {
		o.cfg.Logger.Info("holdfast: a lock has no class, so spans and metrics do not say what kind it is; " +
			"locker.Config.Classes, such as order-*, or tracing.Config.KeyClass names the kinds")
	}
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.known[name][h.Mode]; c != nil {
		return c
	}
	if cs.known[name] == nil && !fits(name, len(cs.known)) {
		name = OtherClass
	}
	if cs.known[name] == nil {
		name = strings.Clone(name) // the key it is a part of need not stay in memory
		cs.known[name] = map[backend.Mode]*class{}
	}
	c := cs.known[name][h.Mode]
	if c == nil {
		c = newClass(name, h.Mode)
		cs.known[name][h.Mode] = c
		o.metrics.begin(c)
	}
	return c
}
