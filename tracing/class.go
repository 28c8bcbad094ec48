package tracing

import (
	"strings"
	"sync"
	"sync/atomic"
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

// Class is the default of [Config.KeyClass]: what stands before the first separator (one of : / | # = @ ~ .) or digit,
// without a trailing - or _. "order-17" is "order", "user:jo:cart" is "user", "flash-sale" is itself, "17" is "".
func Class(key string) string { return keyclass.Of(key) }

// A class is what is the same for all locks of one class and mode, made once.
type class struct {
	span    trace.SpanStartEventOption // the attributes of spans
	plain   metricOptions              // of metrics
	results map[string]metricOptions   // with a result
	causes  map[string]metricOptions   // with a cause
}

// metricOptions are one set of attributes in the forms that instruments take.
type metricOptions struct {
	add    []metric.AddOption
	record []metric.RecordOption
}

func optionsOf(attrs ...attribute.KeyValue) metricOptions {
	set := metric.WithAttributeSet(attribute.NewSet(attrs...))
	return metricOptions{[]metric.AddOption{set}, []metric.RecordOption{set}}
}

var (
	allResults = []string{
		ResultGranted, ResultHeld, ResultTimeout, ResultCancelled, ResultDeadlock, ResultClosed, ResultRefused, ResultUnavailable,
		ResultUnanswered, ResultQuarantined, ResultConfirmed, ResultLost,
	}
	allCauses = []string{CauseExpired, CauseStore, CauseLeaked, CauseMaxHold, CauseClosed, CauseOther}
)

func newClass(name string, mode backend.Mode) *class {
	attrs := []attribute.KeyValue{AttrClass.String(name), AttrMode.String(mode.String())}
	c := &class{
		span: trace.WithAttributes(attrs...), plain: optionsOf(attrs...),
		results: map[string]metricOptions{}, causes: map[string]metricOptions{},
	}
	for _, r := range allResults {
		c.results[r] = optionsOf(append(attrs, AttrResult.String(r))...)
	}
	for _, r := range allCauses {
		c.causes[r] = optionsOf(append(attrs, AttrCause.String(r))...)
	}
	return c
}

// classes remembers the classes seen.
type classes struct {
	of    func(key string) string
	known sync.Map // classKey → *class
	names atomic.Int64
}

type classKey struct {
	name string
	mode backend.Mode
}

// class returns the class of a hold's key.
func (cs *classes) class(h locker.Hold) *class {
	name := cs.of(h.Key)
	if c, ok := cs.known.Load(classKey{name, h.Mode}); ok {
		return c.(*class) //nolint:errcheck // nothing else is in there
	}
	return cs.learn(name, h.Mode)
}

// learn adds a class, or puts name with the others if there are enough. The bound may be passed by as many as come at once.
func (cs *classes) learn(name string, mode backend.Mode) *class {
	name = strings.Clone(name) // the key it is a part of need not stay in memory
	if len(name) > longestClass || !utf8.ValidString(name) || cs.names.Load() >= MaxClasses {
		name = OtherClass
	}
	c, known := cs.known.LoadOrStore(classKey{name, mode}, newClass(name, mode))
	if !known && name != OtherClass {
		cs.names.Add(1)
	}
	return c.(*class) //nolint:errcheck // nothing else is in there
}
