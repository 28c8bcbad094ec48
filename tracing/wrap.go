package tracing

import (
	"context"
	"fmt"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// A Store says how to show a backend. The zero value is ready for use.
type Store struct {
	Tracer trace.TracerProvider // default: otel.GetTracerProvider()

	// Name tells backends apart, such as the nodes of a quorum. Default: the backend's package. System is the store's kind as
	// OpenTelemetry names it (redis, etcd), for db.system.name; default none.
	Name, System string

	// Unblock is how long a lock must have been held for its holder to look, before it releases, who is next in the store's
	// line, and to link to it. Looking is one more round trip. Default 100 ms; negative: never.
	Unblock time.Duration
}

const defaultUnblock = 100 * time.Millisecond

// Wrap returns b with a span for each question to the store. It forwards everything, and closes b when it is closed. Wrap the
// nodes of a quorum one by one to see each one's answer. Whoever knows b by its type must look at it before wrapping.
func Wrap(b backend.Backend, s Store) backend.Backend {
	if s.Tracer == nil {
		s.Tracer = otel.GetTracerProvider()
	}
	if s.Name == "" {
		s.Name, _, _ = strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", b), "*"), ".")
	}
	if s.Unblock == 0 {
		s.Unblock = defaultUnblock
	}
	attrs := []attribute.KeyValue{AttrStore.String(s.Name)}
	if s.System != "" {
		attrs = append(attrs, AttrSystem.String(s.System))
	}
	return &wrapped{Backend: b, store: s, tracer: s.Tracer.Tracer(scope), attrs: attrs}
}

// wrapped is a backend seen through.
type wrapped struct {
	backend.Backend
	store  Store
	tracer trace.Tracer
	attrs  []attribute.KeyValue
}

// ask starts the span of one question.
func (b *wrapped) ask(ctx context.Context, name, operation string) (context.Context, trace.Span) {
	attrs := append(append(make([]attribute.KeyValue, 0, 3), b.attrs...), AttrOperation.String(operation))
	return b.tracer.Start(ctx, name, trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

// An answer is how a question to the store ended.
type answer struct {
	span    trace.Span
	key     string
	token   uint64 // of a grant
	acquire bool   // is what was asked
	err     error
	ended   time.Time
}

// answered ends the span of a question, or has it ended later if ctx is of an Observer's operation.
func answered(ctx context.Context, span trace.Span, key string, acquire bool, g backend.Grant, err error) {
	if !span.IsRecording() {
		return
	}
	a := &answer{span: span, key: key, token: g.Token, acquire: acquire, err: err, ended: time.Now()}
	if o := observerOf(ctx); o != nil {
		o.notes.add(a)
	} else {
		a.tell()
	}
}

// tell ends the span. Its text leaves the key out: the span around it says what kind of key it is.
func (a *answer) tell() {
	result := renewalOf(a.err)
	if a.acquire {
		result = resultOf(a.err)
	}
	attrs := append(make([]attribute.KeyValue, 0, 2), AttrResult.String(result))
	if a.token != 0 {
		attrs = append(attrs, token(locker.Hold{Token: a.token}))
	}
	a.span.SetAttributes(attrs...)
	if failed(result) && result != ResultLost { // an answer, and after a withdrawal the usual one
		a.span.SetAttributes(AttrError.String(result))
		a.span.SetStatus(codes.Error, withoutKey(a.err.Error(), a.key))
	}
	a.span.End(trace.WithTimestamp(a.ended))
}

// TryAcquire implements [backend.Backend].
func (b *wrapped) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	ctx, span := b.ask(ctx, SpanStoreAcquire, "TryAcquire")
	g, err := b.Backend.TryAcquire(ctx, c)
	answered(ctx, span, c.Key, true, g, err)
	return g, err
}

// Renew implements [backend.Backend].
func (b *wrapped) Renew(ctx context.Context, c backend.Claim) error {
	ctx, span := b.ask(ctx, SpanStoreRenew, "Renew")
	err := b.Backend.Renew(ctx, c)
	answered(ctx, span, c.Key, false, backend.Grant{}, err)
	return err
}

// Release implements [backend.Backend].
func (b *wrapped) Release(ctx context.Context, c backend.Claim) error {
	if k := b.outlasting(ctx, c); k != nil {
		b.linkNext(ctx, k, c)
	}
	ctx, span := b.ask(ctx, SpanStoreRelease, "Release")
	err := b.Backend.Release(ctx, c)
	answered(ctx, span, c.Key, false, backend.Grant{}, err)
	return err
}

// Watch implements [backend.Backend]. The span is about subscribing; wake-ups are events of the wait.
func (b *wrapped) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	asked, span := b.ask(ctx, SpanStoreWatch, "Watch")
	wakes, err := b.Backend.Watch(asked, c)
	answered(ctx, span, c.Key, false, backend.Grant{}, err)
	return wakes, err
}

// Inspect implements [backend.Backend].
func (b *wrapped) Inspect(ctx context.Context, key string) (backend.State, error) {
	ctx, span := b.ask(ctx, SpanStoreInspect, "Inspect")
	state, err := b.Backend.Inspect(ctx, key)
	answered(ctx, span, key, false, backend.Grant{}, err)
	return state, err
}

// outlasting returns the hold that is about to be released if it is a long one on a store with a line, and nobody has looked yet who is
// next; else nil.
func (b *wrapped) outlasting(ctx context.Context, c backend.Claim) *hold {
	k := holdOf(ctx)
	if k == nil || b.store.Unblock < 0 || !c.Queue || !k.span.IsRecording() || time.Since(k.span.began) < b.store.Unblock ||
		!b.Capabilities().Inspect || !k.linked.CompareAndSwap(false, true) {
		return nil
	}
	return k
}

// linkNext links a hold that is about to be released with whoever of another process is next in line. It is for people and
// never in the way: it is asked once per hold, of long holds only, and its failure is nobody's concern.
func (b *wrapped) linkNext(ctx context.Context, k *hold, c backend.Claim) {
	ctx, cancel := context.WithTimeout(ctx, b.store.Unblock) // a look may not cost more than the hold itself did
	defer cancel()
	state, err := b.Inspect(ctx, c.Key)
	if err != nil || len(state.Waiters) == 0 {
		return
	}
	next := state.Waiters[0].Meta.Traceparent
	if sc := parseTraceparent(next); sc.IsValid() {
		k.span.AddLink(link(sc, LinkUnblocked))
		if !k.span.o.ours(next) { // another process's: it is who those who wait in this one wait for from now on
			k.next = &sc
		}
	}
}
