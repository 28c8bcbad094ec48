package tracing

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"
)

// A late span is one whose id is known and which the SDK is told of later, or as soon as somebody does anything with it: it is
// in the ctx that callers work under. The id is reserved; see [IDs].
type late struct {
	*noop.Span // for what later versions of the interface ask

	o      *Observer
	parent context.Context
	beside trace.Span // whose child it is; nil: that of parent
	name   string
	attrs  trace.SpanStartEventOption // nil: none
	began  time.Time
	sc     trace.SpanContext
	prompt bool // was not put off

	mu   sync.Mutex
	span trace.Span // once it is there
}

var _ trace.Span = (*late)(nil)

var noSpan noop.Span

// shown is what a ctx has.
func (s *late) shown() trace.Span {
	if s.prompt {
		return s.span // by itself: the SDK knows its own by type
	}
	return s
}

// real is the SDK's span. If it does not turn out as promised, because the provider was replaced or the sampler decides
// otherwise than it always has, there are no more promises.
func (s *late) real() trace.Span {
	span, _ := s.realWith(nil)
	return span
}

// realWith is real, with other attributes unless they are late: the span was there before.
func (s *late) realWith(attrs trace.SpanStartEventOption) (span trace.Span, have bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if have = s.span == nil; have {
		if attrs != nil {
			s.attrs = attrs
		}
		s.span = s.start(s.sc)
		if got := s.span.SpanContext(); !same(got, s.sc) {
			s.o.reserving.Store(reservesNot)
		} else if got.IsSampled() != s.sc.IsSampled() || s.span.IsRecording() != s.sc.IsSampled() {
			s.o.promptly.Store(true)
		}
	}
	return s.span, have
}

// now makes the SDK's span at once, with the ids of sc if that is valid.
func (s *late) now(sc trace.SpanContext) trace.Span {
	s.span, s.prompt = s.start(sc), true
	s.sc = s.span.SpanContext()
	if sc.IsValid() && !same(s.sc, sc) {
		s.o.reserving.Store(reservesNot)
	}
	return s.span
}

func same(a, b trace.SpanContext) bool { return a.SpanID() == b.SpanID() && a.TraceID() == b.TraceID() }

func (s *late) start(sc trace.SpanContext) trace.Span {
	ctx, opts := s.parent, append(make([]trace.SpanStartOption, 0, 2), trace.WithTimestamp(s.began))
	if s.beside != nil {
		ctx = trace.ContextWithSpan(ctx, s.beside)
	}
	if s.attrs != nil {
		opts = append(opts, s.attrs)
	}
	return startAs(ctx, s.o.tracer, sc, s.name, opts...)
}

// SpanContext implements [trace.Span], as do all that follow.
func (s *late) SpanContext() trace.SpanContext { return s.sc }

// IsRecording reports what is expected until there is a span to be asked.
func (s *late) IsRecording() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.span == nil {
		return s.sc.IsSampled()
	}
	return s.span.IsRecording()
}

// End ends the span.
func (s *late) End(opts ...trace.SpanEndOption) { s.real().End(opts...) }

// AddEvent adds an event.
func (s *late) AddEvent(name string, opts ...trace.EventOption) { s.real().AddEvent(name, opts...) }

// AddLink adds a link.
func (s *late) AddLink(l trace.Link) { s.real().AddLink(l) }

// RecordError adds an event for err.
func (s *late) RecordError(err error, opts ...trace.EventOption) { s.real().RecordError(err, opts...) }

// SetStatus sets the status.
func (s *late) SetStatus(code codes.Code, description string) { s.real().SetStatus(code, description) }

// SetName changes the name.
func (s *late) SetName(name string) { s.real().SetName(name) }

// SetAttributes sets attributes.
func (s *late) SetAttributes(attrs ...attribute.KeyValue) { s.real().SetAttributes(attrs...) }

// TracerProvider returns the SDK's.
func (s *late) TracerProvider() trace.TracerProvider { return s.real().TracerProvider() }
