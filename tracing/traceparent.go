package tracing

import (
	"context"
	"encoding/hex"

	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/trace"
)

// traceparent is sc in the W3C form, or "" if it is not valid.
func traceparent(sc trace.SpanContext) string {
	if !sc.IsValid() {
		return ""
	}
	traceID, spanID := sc.TraceID(), sc.SpanID()
	b := make([]byte, 0, 55)
	b = hex.AppendEncode(append(b, "00-"...), traceID[:])
	b = hex.AppendEncode(append(b, '-'), spanID[:])
	return string(hex.AppendEncode(append(b, '-'), []byte{byte(sc.TraceFlags() & trace.FlagsSampled)}))
}

// parseTraceparent reads what another process wrote; what is not a traceparent is an invalid
// SpanContext.
func parseTraceparent(s string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": s})
	return trace.SpanContextFromContext(ctx)
}
