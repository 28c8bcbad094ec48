package tracing_test

import (
	"testing"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/tracing"
)

// A hold's ctx has the hold's span, the release's parent, whether operations answer for their span themselves or there is a ctx of package
// trace around them.
func TestSpanOfContext(t *testing.T) {
	if !tracing.AnswersForSpan() {
		t.Error("package trace asks a ctx in a way that is not understood; see spankey.go")
	}
	again := func() {}
	defer func() { again() }()
	for _, itself := range []bool{true, false} {
		if !itself {
			again = tracing.ForgetSpanKey()
		}
		for _, sure := range []bool{true, false} {
			p := startProcess(t, membackend.New(), setup{sure: sure})
			ctx, outer := p.tp.Tracer("test").Start(t.Context(), "outer")
			g, err := p.Lock(ctx, "k")
			if err != nil {
				t.Fatal(err)
			}
			held := trace.SpanContextFromContext(g.Context())
			_, inner := p.tp.Tracer("test").Start(g.Context(), "inner")
			inner.End()
			_ = g.Unlock()
			hold := p.one(t, tracing.SpanHold)
			if id(hold) != held.SpanID() || hold.Parent.SpanID() != outer.SpanContext().SpanID() {
				t.Errorf("itself=%v sure=%v: the hold is %v under %v", itself, sure, id(hold), hold.Parent.SpanID())
			}
			for child, parent := range map[string]string{
				"inner": tracing.SpanHold, tracing.SpanRelease: tracing.SpanHold,
				tracing.SpanStoreAcquire: tracing.SpanWait, tracing.SpanStoreRelease: tracing.SpanRelease,
			} {
				if got, want := p.one(t, child).Parent.SpanID(), id(p.one(t, parent)); got != want {
					t.Errorf("itself=%v sure=%v: %s is under %v, want %s", itself, sure, child, got, parent)
				}
			}
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	}
}
