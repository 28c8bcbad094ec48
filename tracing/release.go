package tracing

import (
	"context"
	"time"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/locker"
)

// A release is what Unlock does, or the clean-up of a wait that came to nothing.
type release struct {
	context.Context

	span       late
	withdrawal bool

	// When it is over:
	ended time.Time
	key   string
	err   error
}

// beginRelease starts the span of a release. A hold's is a child of the hold, a withdrawn wait's of the wait. A hold that is
// not recorded has none.
func (o *Observer) beginRelease(ctx context.Context) (context.Context, func(locker.Hold, error)) {
	k := holdOf(ctx)
	if k != nil && !k.recorded {
		return ctx, ignore
	}
	r := &release{withdrawal: k == nil}
	r.span = late{Span: &noSpan, o: o, parent: ctx, name: SpanRelease, began: time.Now()}
	if k == nil || !k.late {
		r.span.now(trace.SpanContext{})
	} else {
		r.span.sc = k.span.sc.WithSpanID(newSpanID())
	}
	r.Context = r.span.within(ctx)
	return r, r.end
}

// Value implements [context.Context].
func (r *release) Value(key any) any {
	if spanKey != nil && key == spanKey {
		return r.span.shown()
	}
	return r.Context.Value(key)
}

func (r *release) end(h locker.Hold, err error) {
	r.ended, r.key, r.err = time.Now(), h.Key, err
	r.span.o.notes.add(r)
}

func (r *release) tell() {
	span := r.span.real()
	if r.err != nil {
		result := resultOf(r.err)
		span.SetAttributes(AttrResult.String(result))
		if !r.withdrawal || result != ResultLost { // what was never held is rightly unknown to the store
			r.span.o.fail(span, r.key, result, r.err)
		}
	}
	span.End(trace.WithTimestamp(r.ended))
}
