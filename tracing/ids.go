package tracing

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"strconv"

	"go.opentelemetry.io/otel/trace"
)

// IDs generates the ids of spans at random, except that it honours one that this package has reserved. Give it to the tracer
// provider with sdktrace.WithIDGenerator. The zero value is ready for use.
type IDs struct {
	// Otherwise generates the ids that are not reserved, such as those that a vendor wants to look a certain way. Nil: at
	// random.
	Otherwise interface {
		NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID)
		NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID
	}
}

// NewIDs is called for a span without a parent.
func (g IDs) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if r := reservationOf(ctx); r != nil {
		return r.sc.TraceID(), r.sc.SpanID()
	}
	if g.Otherwise != nil {
		return g.Otherwise.NewIDs(ctx)
	}
	var id trace.TraceID
	binary.NativeEndian.PutUint64(id[:8], rand.Uint64())
	binary.NativeEndian.PutUint64(id[8:], rand.Uint64()|1) // all zeros is no id
	return id, newSpanID()
}

// NewSpanID is called for a span with a parent.
func (g IDs) NewSpanID(ctx context.Context, traceID trace.TraceID) trace.SpanID {
	if r := reservationOf(ctx); r != nil {
		r.by = &g
		return r.sc.SpanID()
	}
	if g.Otherwise != nil {
		return g.Otherwise.NewSpanID(ctx, traceID)
	}
	return newSpanID()
}

func newSpanID() (id trace.SpanID) {
	binary.NativeEndian.PutUint64(id[:], rand.Uint64()|1)
	return id
}

// A reservation is of the ids of one span. It is the ctx that the span is started under.
type reservation struct {
	context.Context
	sc trace.SpanContext
	by *IDs // who has honoured it
}

type reservedKey struct{}

// Value implements [context.Context].
func (r *reservation) Value(key any) any {
	if key == (reservedKey{}) {
		return r
	}
	return r.Context.Value(key)
}

func reservationOf(ctx context.Context) *reservation {
	r, _ := ctx.Value(reservedKey{}).(*reservation)
	return r
}

// startAs starts a span that is to have the ids of sc, if they are valid. Only the span sees the reservation: its children
// must not.
func startAs(ctx context.Context, t trace.Tracer, sc trace.SpanContext, name string, opts ...trace.SpanStartOption) trace.Span {
	if sc.IsValid() {
		ctx = &reservation{Context: ctx, sc: sc}
	}
	_, span := t.Start(ctx, name, opts...)
	return span
}

// generator returns the [IDs] that t's provider generates ids by, or nil. The span it tries with has a parent that is not
// sampled, so with most samplers it is not recorded; it never ends, so it is not exported in any case.
func generator(t trace.Tracer) *IDs {
	parent := trace.NewSpanContext(trace.SpanContextConfig{TraceID: trace.TraceID{1}, SpanID: trace.SpanID{1}, Remote: true})
	r := &reservation{Context: trace.ContextWithSpanContext(context.Background(), parent), sc: parent.WithSpanID(newSpanID())}
	_, span := t.Start(r, "holdfast.probe")
	if span.SpanContext().SpanID() != r.sc.SpanID() {
		return nil
	}
	return r.by
}

// child returns the ids of a span under parent, or of a root.
func (g IDs) child(ctx context.Context, parent trace.SpanContext, sampled bool) trace.SpanContext {
	flags := parent.TraceFlags().WithSampled(sampled)
	if parent.IsValid() {
		return parent.WithSpanID(g.NewSpanID(ctx, parent.TraceID())).WithTraceFlags(flags).WithRemote(false)
	}
	traceID, id := g.NewIDs(ctx)
	return trace.NewSpanContext(trace.SpanContextConfig{TraceID: traceID, SpanID: id, TraceFlags: flags})
}

const hexDigits = "0123456789abcdef"

// traceparent is sc in the W3C form, or "" if it is not valid.
func traceparent(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	b := make([]byte, 0, 55)
	b = append(b, "00-"...)
	tid, sid := sc.TraceID(), sc.SpanID()
	b = appendHex(b, tid[:]...)
	b = append(b, '-')
	b = appendHex(b, sid[:]...)
	b = append(b, '-')
	return string(appendHex(b, byte(sc.TraceFlags()&trace.FlagsSampled)))
}

func appendHex(b []byte, raw ...byte) []byte {
	for _, c := range raw {
		b = append(b, hexDigits[c>>4], hexDigits[c&15])
	}
	return b
}

// parseTraceparent reads what another process wrote; what is not a traceparent is an invalid SpanContext.
func parseTraceparent(s string) trace.SpanContext {
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return trace.SpanContext{}
	}
	tid, err1 := trace.TraceIDFromHex(s[3:35])
	sid, err2 := trace.SpanIDFromHex(s[36:52])
	flags, err3 := strconv.ParseUint(s[53:], 16, 8)
	if err1 != nil || err2 != nil || err3 != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: tid, SpanID: sid, TraceFlags: trace.TraceFlags(flags) & trace.FlagsSampled, Remote: true,
	})
}
