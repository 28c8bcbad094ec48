package tracing

import (
	"maps"
	"slices"
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

// Class is the default of [Config.KeyClass]: what stands before the first separator (one of : / | #
// = @ ~ .) or digit, without a trailing - or _. "order-17" is "order", "user:jo:cart" is "user",
// "flash-sale" is itself, "17" is "".
func Class(key string) string { return keyclass.Of(key) }

// A class is what is the same for all locks of one class and mode, made once, and the numbers that
// are counted of them. Numbers are atomic integers that the meter reads when it collects: on the
// way of a lock an instrument would cost ten times as much.
type class struct {
	lock string                     // the name of the span
	span trace.SpanStartEventOption // the attributes of spans
	hold []metric.RecordOption
	wait map[string][]metric.RecordOption // by result

	waiters, holds, contended, passes, quarantined *number
	acquisitions, renewals, lost                   map[string]*number // by result, or cause
}

// A number is one time series.
type number struct {
	atomic.Int64
	attrs []metric.ObserveOption
}

var (
	allResults = []string{
		ResultGranted, ResultHeld, ResultTimeout, ResultCancelled, ResultDeadlock, ResultClosed,
		ResultRefused, ResultUnavailable, ResultUnanswered, ResultQuarantined, ResultConfirmed, ResultLost,
	}
	allCauses = []string{CauseExpired, CauseStore, CauseLeaked, CauseMaxHold, CauseClosed, CauseOther}
)

func newClass(name string, mode backend.Mode) *class {
	attrs := []attribute.KeyValue{AttrClass.String(name), AttrMode.String(mode.String())}
	plain := func() *number { return newNumber(attrs...) }
	by := func(key attribute.Key, values []string) map[string]*number {
		m := map[string]*number{}
		for _, v := range values {
			m[v] = newNumber(append(slices.Clone(attrs), key.String(v))...)
		}
		return m
	}
	onSpan := attrs
	if mode == backend.Exclusive {
		onSpan = attrs[:1] // as most are; every attribute of a span costs
	}
	c := &class{
		lock: strings.TrimSpace(SpanLock + " " + name),
		span: trace.WithAttributes(onSpan...),
		hold: []metric.RecordOption{metric.WithAttributeSet(attribute.NewSet(attrs...))},
		wait: map[string][]metric.RecordOption{},

		waiters: plain(), holds: plain(), contended: plain(), passes: plain(), quarantined: plain(),
		acquisitions: by(AttrResult, allResults), renewals: by(AttrResult, allResults),
		lost: by(AttrCause, allCauses),
	}
	for _, r := range allResults {
		set := attribute.NewSet(append(slices.Clone(attrs), AttrResult.String(r))...)
		c.wait[r] = []metric.RecordOption{metric.WithAttributeSet(set)}
	}
	return c
}

func newNumber(attrs ...attribute.KeyValue) *number {
	return &number{attrs: []metric.ObserveOption{metric.WithAttributeSet(attribute.NewSet(attrs...))}}
}

// classes remembers the classes seen.
type classes struct {
	of    func(key string) string
	known atomic.Pointer[map[classKey]*class] // is replaced and not changed: reading costs less than a sync.Map
	mu    sync.Mutex                          // held while it is
	names int
}

type classKey struct {
	name string
	mode backend.Mode
}

// all returns the classes seen so far, not to be changed.
func (cs *classes) all() map[classKey]*class {
	if known := cs.known.Load(); known != nil {
		return *known
	}
	return nil
}

// class returns the class of a hold's key.
func (cs *classes) class(h locker.Hold) *class {
	name := cs.of(h.Key)
	if c := cs.all()[classKey{name, h.Mode}]; c != nil {
		return c
	}
	return cs.learn(name, h.Mode)
}

// learn adds a class, or puts name with the others if there are enough.
func (cs *classes) learn(name string, mode backend.Mode) *class {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	name = strings.Clone(name) // the key it is a part of need not stay in memory
	if len(name) > longestClass || !utf8.ValidString(name) {
		name = OtherClass
	}
	known := cs.all()
	if known[classKey{name, mode}] == nil && cs.names >= MaxClasses {
		name = OtherClass
	}
	c := known[classKey{name, mode}]
	if c != nil {
		return c
	}
	if name != OtherClass {
		cs.names++
	}
	c = newClass(name, mode)
	more := map[classKey]*class{{name, mode}: c}
	maps.Copy(more, known)
	cs.known.Store(&more)
	return c
}
