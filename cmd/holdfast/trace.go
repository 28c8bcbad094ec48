package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"os"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/cmd/internal/demo"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
	"github.com/holdfast-go/holdfast/tracing"
)

const (
	sendLimit    = time.Second     // for a collector to take what is left at the end of a run
	traceLimit   = 3 * time.Second // the same for a sale
	traceBacklog = 1 << 16         // spans; a sale is short and makes many
)

// A sender sends spans to a collector.
type sender struct {
	*sdktrace.TracerProvider
	failed chan error // the first failure to send
}

func newSender(exporter sdktrace.SpanExporter, res *resource.Resource) *sender {
	s := &sender{failed: make(chan error, 1)}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(s.fail)) // which would log among what is printed
	s.TracerProvider = sdktrace.NewTracerProvider(
		sdktrace.WithBatcher(exporter, sdktrace.WithMaxQueueSize(traceBacklog),
			sdktrace.WithBatchTimeout(time.Second)),
		sdktrace.WithResource(res),
	)
	return s
}

func (s *sender) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

// finish sends what is left, and returns the first failure to send, now or before.
func (s *sender) finish(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	if err := s.Shutdown(ctx); err != nil {
		s.fail(err)
	}
	select {
	case err := <-s.failed:
		return err
	default:
		return nil
	}
}

// A runTracer makes the spans of a run. Without a sender it passes on the trace that the run is
// part of, so that others see it in the lock, and sends nothing.
type runTracer struct {
	*sender
	span trace.Span
}

// startTrace begins the span of a run as the child of the one that TRACEPARENT names, if there is
// any.
func startTrace(ctx context.Context, f config.File,
	name string,
) (context.Context, *runTracer, error) {
	ctx = propagation.TraceContext{}.Extract(ctx, propagation.MapCarrier{
		"traceparent": os.Getenv("TRACEPARENT"), "tracestate": os.Getenv("TRACESTATE"),
	})
	t := &runTracer{span: trace.SpanFromContext(ctx)}
	exporter, err := exporterFor(ctx, f.Tracing.Endpoint)
	if exporter == nil {
		return ctx, t, err
	}
	res, err := resource.New(ctx, resource.WithAttributes(
		attribute.String("service.name", cmp.Or(f.Locker.Service, "holdfast")),
		attribute.Int("process.pid", os.Getpid()),
	), resource.WithFromEnv()) // the environment wins
	if err != nil {
		return ctx, t, usage("OTEL_RESOURCE_ATTRIBUTES: %v", err)
	}
	t.sender = newSender(exporter, res)
	ctx, t.span = t.Tracer("holdfast").Start(ctx, name)
	return ctx, t, nil
}

// exporterFor sends to the endpoint of the configuration, else to that of OpenTelemetry's
// variables, which its packages read themselves. It is nil if there is neither.
func exporterFor(ctx context.Context, configured config.URL) (sdktrace.SpanExporter, error) {
	of := func(name string) string {
		return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_"+name),
			os.Getenv("OTEL_EXPORTER_OTLP_"+name))
	}
	switch {
	case strings.EqualFold(os.Getenv("OTEL_SDK_DISABLED"), "true"),
		os.Getenv("OTEL_TRACES_EXPORTER") == "none":
		return nil, nil
	case !configured.IsZero():
		return newExporter(ctx, configured.Reveal())
	case of("ENDPOINT") == "":
		return nil, nil
	case of("PROTOCOL") == "grpc":
		// No sending is tried again: the process ends soon.
		return otlptracegrpc.New(ctx, otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
}

// newExporter reads what --trace is given, and connects when there is something to send. Errors do
// not quote it: a URL may hold a password.
func newExporter(ctx context.Context, text string) (sdktrace.SpanExporter, error) {
	u, err := url.Parse(text)
	if err != nil {
		return nil, demo.Usage("--trace: not a URL, " +
			"such as http://localhost:4318 or grpc://localhost:4317")
	}
	protocol, secure := strings.CutSuffix(u.Scheme, "s")
	grpc, noPath := protocol == "grpc", strings.Trim(u.Path, "/") == ""
	switch {
	case protocol != "http" && !grpc:
		return nil, demo.Usage("--trace: begins with none of http:// https:// grpc:// grpcs://, " +
			"as in http://localhost:4318")
	case u.Hostname() == "":
		return nil, demo.Usage("--trace: names no host, as http://localhost:4318 does")
	case u.User != nil:
		return nil, demo.Usage("--trace: holds a user or a password; " +
			"give the collector's headers in OTEL_EXPORTER_OTLP_HEADERS")
	case u.RawQuery != "" || u.Fragment != "":
		return nil, demo.Usage("--trace: a collector's URL has nothing after its path")
	case grpc && !noPath:
		return nil, demo.Usage("--trace: gRPC has no path; for OTLP over HTTP write http://")
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
			otlptracegrpc.WithTimeout(traceLimit),
			otlptracegrpc.WithRetry(otlptracegrpc.RetryConfig{}))
	}
	if noPath {
		u.Path = "/v1/traces"
	}
	return otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(u.String()),
		otlptracehttp.WithTimeout(traceLimit), otlptracehttp.WithRetry(otlptracehttp.RetryConfig{}))
}

// observer makes spans of what happens to the lock, below that of the run.
func (t *runTracer) observer() locker.Observer {
	if !t.span.SpanContext().IsValid() {
		return nil
	}
	// What it would say is no output of a run.
	cfg := tracing.Config{Logger: slog.New(slog.DiscardHandler)}
	if t.sender != nil {
		cfg.Tracer = t
	}
	o, err := tracing.NewObserver(cfg)
	if err != nil { // of the global meter, which does nothing
		panic(err)
	}
	return o
}

// traceEnv is what a command below the lock with the context ctx is to find in its environment.
func traceEnv(ctx context.Context) (env []string) {
	found := propagation.MapCarrier{}
	propagation.TraceContext{}.Inject(ctx, found)
	for name, value := range found {
		env = append(env, strings.ToUpper(name)+"="+value)
	}
	return env
}

// close ends the span of a run that ended with err, and sends what is left. The error is the first
// that a sending met with.
func (t *runTracer) close(err error) error {
	if t.sender == nil {
		return nil
	}
	var exit *exitError
	switch {
	case errors.As(err, &exit):
		t.span.SetAttributes(attribute.Int("process.exit.code", exit.status))
		if exit.err == nil { // CMD's own status
			// safeguard: run-span-failed
			t.span.SetStatus(codes.Error, fmt.Sprintf("exit status %d", exit.status))
			break
		}
		fallthrough
	case err != nil:
		t.span.SetStatus(codes.Error, err.Error())
	}
	t.span.End()
	if err := t.finish(sendLimit); err != nil {
		return fmt.Errorf("not all traces were sent: %w", err)
	}
	return nil
}
