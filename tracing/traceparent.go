package tracing

import (
	"encoding/hex"

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
	if len(s) != 55 || s[:3] != "00-" || s[35] != '-' || s[52] != '-' {
		return trace.SpanContext{}
	}
	traceID, err1 := trace.TraceIDFromHex(s[3:35])
	spanID, err2 := trace.SpanIDFromHex(s[36:52])
	flags, err3 := hex.DecodeString(s[53:])
	if err1 != nil || err2 != nil || err3 != nil {
		return trace.SpanContext{}
	}
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	})
}
