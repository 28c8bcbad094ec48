package tracing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
)

// A Store says how to show a backend. The zero value is ready for use.
type Store struct {
	Tracer trace.TracerProvider // default: otel.GetTracerProvider()

	// Name tells backends apart, such as the nodes of a quorum. Default: the backend's package.
	// System is the store's kind as OpenTelemetry names it (redis, etcd), for db.system.name;
	// default none.
	Name, System string

	// of the server, host or host:port, for server.address and server.port; default none
	Address string
}

// Wrap returns b with a span for each request to the store, but for heartbeats and for releases of
// what several gave up, which are nobody's in particular. It forwards everything, and closes b when
// it is closed. Wrap the nodes of a quorum one by one to see each one's answer. Whoever knows b by
// its type must look at it before wrapping.
func Wrap(b backend.Backend, s Store) backend.Backend {
	if s.Name == "" {
		s.Name, _, _ = strings.Cut(strings.TrimPrefix(fmt.Sprintf("%T", b), "*"), ".")
	}
	attrs := []attribute.KeyValue{AttrStore.String(s.Name)}
	if s.System != "" {
		attrs = append(attrs, AttrSystem.String(s.System))
	}
	if s.Address != "" {
		host, port, err := net.SplitHostPort(s.Address)
		if err != nil {
			host = s.Address
		}
		attrs = append(attrs, AttrServer.String(host))
		if n, err := strconv.Atoi(port); err == nil {
			attrs = append(attrs, AttrPort.Int(n))
		}
	}
	return &wrapped{Backend: b, tracer: tracerOf(s.Tracer), attrs: attrs}
}

func tracerOf(tp trace.TracerProvider) trace.Tracer {
	tp = cmp.Or(tp, otel.GetTracerProvider())
	return tp.Tracer(scope, trace.WithInstrumentationVersion(version()),
		trace.WithSchemaURL(schema))
}

// version is this module's in the program that it is part of.
var version = sync.OnceValue(func() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if strings.HasPrefix(scope, m.Path+"/") {
				return m.Version
			}
		}
	}
	return ""
})

// wrapped is a backend seen through.
type wrapped struct {
	backend.Backend
	tracer trace.Tracer
	attrs  []attribute.KeyValue
}

// start starts the span of one request.
func (b *wrapped) start(ctx context.Context, request string) (context.Context, trace.Span) {
	attrs := append(append(make([]attribute.KeyValue, 0, 5), b.attrs...),
		AttrOperation.String(request))
	return b.tracer.Start(ctx, SpanStore+request,
		trace.WithSpanKind(trace.SpanKindClient), trace.WithAttributes(attrs...))
}

// end ends the span of a request. The span around it says what kind of key it is.
func end(span trace.Span, key, result string, err error) {
	span.SetAttributes(AttrResult.String(result))
	if failed(result) && result != ResultLost { // an answer, and after a withdrawal the usual one
		span.SetAttributes(AttrError.String(result))
		span.SetStatus(codes.Error, withoutKey(err.Error(), key))
	}
	span.End()
}

func (b *wrapped) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	ctx, span := b.start(ctx, "acquire")
	defer func() { end(span, c.Key, resultOf(err, ResultGranted), err) }()
	if g, err = b.Backend.TryAcquire(ctx, c); g.Token != 0 {
		span.SetAttributes(token(g.Token))
	}
	return g, err
}

func (b *wrapped) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) ([]backend.Grant, error) {
	return several(ctx, b, "acquire", claims, b.Backend.TryAcquireAll, ResultGranted)
}

func (b *wrapped) TryReleaseAll(ctx context.Context, claims []backend.Claim) ([]bool, error) {
	return several(ctx, b, "release", claims, b.Backend.TryReleaseAll, ResultConfirmed)
}

// several makes a request about claims of several keys, in a span of all of them, unless the store
// has none.
func several[A any](
	ctx context.Context, b *wrapped, request string, claims []backend.Claim,
	send func(context.Context, []backend.Claim) ([]A, error), good string,
) ([]A, error) {
	if _, err := send(ctx, nil); errors.Is(err, errors.ErrUnsupported) { // it asks nobody
		return nil, err
	}
	ctx, span := b.start(ctx, request)
	span.SetAttributes(AttrBatch.Int(len(claims)))
	answers, err := send(ctx, claims)
	if len(answers) < len(claims) {
		good = ResultHeld
	}
	result := resultOf(err, good)
	end(span, "", result, errors.New(result)) // the error may name any of the keys
	// safeguard: answers-as-they-are
	return answers, err
}

func (b *wrapped) Renew(ctx context.Context, c backend.Claim) (err error) {
	ctx, span := b.start(ctx, "renew")
	defer func() { end(span, c.Key, resultOf(err, ResultConfirmed), err) }()
	return b.Backend.Renew(ctx, c)
}

func (b *wrapped) Release(ctx context.Context, c backend.Claim) (r backend.Released, err error) {
	ctx, span := b.start(ctx, "release")
	defer func() { end(span, c.Key, resultOf(err, ResultConfirmed), err) }()
	return b.Backend.Release(ctx, c)
}

// Watch has a span of subscribing; wake-ups are events of the wait.
func (b *wrapped) Watch(ctx context.Context, c backend.Claim) (_ <-chan backend.Wake, err error) {
	ctx, span := b.start(ctx, "watch")
	defer func() { end(span, c.Key, resultOf(err, ResultConfirmed), err) }()
	return b.Backend.Watch(ctx, c)
}

func (b *wrapped) Inspect(ctx context.Context, key string) (_ backend.State, err error) {
	ctx, span := b.start(ctx, "inspect")
	defer func() { end(span, key, resultOf(err, ResultConfirmed), err) }()
	return b.Backend.Inspect(ctx, key)
}
