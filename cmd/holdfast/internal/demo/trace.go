package demo

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
)

const (
	traceService = "holdfast-demo" // what to look for in Jaeger

	traceLimit   = 3 * time.Second // for a collector to take what is left at the end
	traceBacklog = 1 << 16         // spans; a sale is short and makes many
)

// newExporter reads what --trace is given, and connects when there is something to send. Errors do
// not quote it: a URL may hold a password.
func newExporter(ctx context.Context, text string) (sdktrace.SpanExporter, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, usage("--trace: not a URL, such as http://localhost:4318 or grpc://localhost:4317")
	}
	protocol, secure := strings.CutSuffix(u.Scheme, "s")
	grpc, noPath := protocol == "grpc", strings.Trim(u.Path, "/") == ""
	switch {
	case protocol != "http" && !grpc:
		return nil, usage("--trace: begins with none of http:// https:// grpc:// grpcs://, as in http://localhost:4318")
	case u.Hostname() == "":
		return nil, usage("--trace: names no host, as http://localhost:4318 does")
	case u.User != nil:
		return nil, usage("--trace: holds a user or a password; give the collector's headers in OTEL_EXPORTER_OTLP_HEADERS")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, usage("--trace: a collector's URL has nothing after its path")
	case grpc && !noPath:
		return nil, usage("--trace: gRPC has no path; for OTLP over HTTP write http://")
	}
	port := "4318"
	if grpc {
		port = "4317"
	}
	if u.Port() == "" {
		u.Host = net.JoinHostPort(u.Hostname(), port)
	}
	if u.Scheme = "http"; secure {
		u.Scheme = "https"
	}
	if grpc {
		return otlptracegrpc.New(ctx, otlptracegrpc.WithEndpointURL(u.String()),
			otlptracegrpc.WithTimeout(traceLimit), otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	}
	if noPath {
		u.Path = "/v1/traces"
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()),
		otlptracehttp.WithTimeout(traceLimit), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
}

// A tracer sends the spans of one process of the sale.
type tracer struct {
	to       string
	provider *sdktrace.TracerProvider
	failed   chan error // the first failure to send, until somebody reads it
}

func startTracing(ctx context.Context, to string, process int) (*tracer, error) {
	exporter, err := newExporter(ctx, to)
	if err != nil {
		return nil, err
	}
	t := &tracer{to: to, failed: make(chan error, 1)}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(t.fail)) // which would log in the middle of the report
	t.provider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(traceBacklog), sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(resource.NewSchemaless(
			attribute.String("service.name", traceService),
			attribute.String("service.instance.id", fmt.Sprint(process)),
			attribute.Int("process.pid", os.Getpid()),
		)),
	)
	return t, nil
}

func (t *tracer) fail(err error) {
	select {
	case t.failed <- err:
	default:
	}
}

// watch has the tracer see a store and its clients.
func (t *tracer) watch(st *store) error {
	obs, err := tracing.NewObserver(tracing.Config{Tracer: t.provider})
	if err != nil {
		return err
	}
	system, _, _ := strings.Cut(st.name, ":")
	st.Backend = tracing.Wrap(st.Backend, tracing.Store{Tracer: t.provider, System: systemOf(system)})
	st.cfg.Observer = locker.Observers(st.cfg.Observer, obs)
	return nil
}

// systemOf is the kind of store behind a URL's scheme, as OpenTelemetry names it, or "".
func systemOf(scheme string) string {
	for _, system := range []string{"redis", "etcd"} {
		if strings.Contains(scheme, system) {
			return system
		}
	}
	return ""
}

// close sends what is left. The error is the first that a sending met with, now or before.
func (t *tracer) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), traceLimit)
	defer cancel()
	if err := t.provider.Shutdown(ctx); err != nil {
		t.fail(err)
	}
	select {
	case err := <-t.failed:
		return fmt.Errorf("not all traces were sent to %s: %w", t.to, err)
	default:
		return nil
	}
}

// start begins a span of the sale's own, such as a buyer's turn. Without --trace it is nothing.
func (st *store) start(ctx context.Context, name string) (context.Context, trace.Span) {
	if st == nil || st.trace == nil {
		return ctx, trace.SpanFromContext(context.Background()) // does nothing
	}
	return st.trace.provider.Tracer(traceService).Start(ctx, name)
}

// close closes the backend. The error says if traces did not get through: the sale itself went as
// reported.
func (st *store) close() error {
	_ = st.Close()
	if st.trace == nil {
		return nil
	}
	return st.trace.close()
}

var _ backend.Backend = (*store)(nil)
