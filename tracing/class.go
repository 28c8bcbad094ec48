package tracing

import (
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/keyclass"
	"github.com/holdfast-go/holdfast/locker"
)

const (
	// MaxClasses is how many classes an [Observer] tells apart.
	MaxClasses = 200
	// OtherClass is the class of all keys beyond.
	OtherClass = "_other"

	longestClass = 64
)

// Class is the default of [Config.KeyClass]: what stands before the first separator (one of : / | #
// = @ ~ .) or digit, without a trailing - or _. "order-17" is "order", "user:jo:cart" is "user",
// "flash-sale" is itself, "17" is "".
func Class(key string) string { return keyclass.Of(key) }

// A class is what is the same for all locks of one class and mode, made once.
type class struct {
	name    string
	lock    string                  // the name of the span
	span    []trace.SpanStartOption // with the attributes of spans
	attrs   []attribute.KeyValue    // of metrics
	all     metric.MeasurementOption
	granted metric.MeasurementOption // those that were
}

// with returns the class and more as attributes of a measurement. That costs more than to count it:
// what every lock counts is made once.
func (c *class) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(slices.Concat(c.attrs, more)...))
}

func newClass(name string, mode backend.Mode) *class {
	c := &class{name: name, lock: strings.TrimSpace(SpanLock + " " + name)}
	c.attrs = []attribute.KeyValue{AttrClass.String(name), AttrMode.String(mode.String())}
	c.all, c.granted = c.with(), c.with(AttrResult.String(ResultGranted))
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
}

// class returns the class of a hold's key.
func (o *Observer) class(h locker.Hold) *class {
	name := o.cfg.KeyClass(h.Key)
	cs := &o.classes
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c := cs.known[name][h.Mode]; c != nil {
		return c
	}
	if cs.known[name] == nil && (len(cs.known) >= MaxClasses || len(name) > longestClass || !utf8.ValidString(name)) {
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
