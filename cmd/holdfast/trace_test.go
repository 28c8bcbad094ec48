package main_test

import (
	"context"
	"encoding/hex"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A sink takes spans by OTLP, over HTTP and gRPC.
type sink struct {
	collector.UnimplementedTraceServiceServer

	mu        sync.Mutex
	names     map[string]int
	instances map[string]bool
	ids       map[string]string
	parents   map[string]string // by the name of the span
	failed    map[string]int    // by the name of the span
	links     []string
}

func newSink() *sink {
	return &sink{
		names: map[string]int{}, instances: map[string]bool{}, ids: map[string]string{},
		parents: map[string]string{}, failed: map[string]int{},
	}
}

func (s *sink) Export(_ context.Context,
	r *collector.ExportTraceServiceRequest,
) (*collector.ExportTraceServiceResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, res := range r.ResourceSpans {
		for _, a := range res.Resource.Attributes {
			if a.Key == "service.instance.id" {
				s.instances[a.Value.GetStringValue()] = true
			}
		}
		for _, scope := range res.ScopeSpans {
			for _, span := range scope.Spans {
				s.names[span.Name]++
				if span.Status.GetCode() == spans.Status_STATUS_CODE_ERROR {
					s.failed[span.Name]++
				}
				s.ids[string(span.SpanId)] = span.Name
				s.parents[span.Name] = hex.EncodeToString(span.ParentSpanId)
				for _, l := range span.Links {
					if strings.HasPrefix(span.Name, "held by ") {
						s.links = append(s.links, string(l.SpanId))
					}
				}
			}
		}
	}
	return &collector.ExportTraceServiceResponse{}, nil
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	req := &collector.ExportTraceServiceRequest{}
	if err != nil || proto.Unmarshal(body, req) != nil || r.URL.Path != "/v1/traces" {
		http.Error(w, "not understood", http.StatusBadRequest)
		return
	}
	_, _ = s.Export(r.Context(), req)
}

func TestDemoTrace(t *testing.T) {
	byHTTP, byGRPC := newSink(), newSink()
	web := httptest.NewServer(byHTTP)
	defer web.Close()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := grpc.NewServer()
	collector.RegisterTraceServiceServer(srv, byGRPC)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	defer func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()

	store := testserver.SharedRedis(t)
	for url, s := range map[string]*sink{web.URL: byHTTP, "grpc://" + l.Addr().String(): byGRPC} {
		r := holdfast(t, "demo", "--json", "--trace", url, "--stock=40", "--backend", store.URL(),
			"--key", "flash-sale-"+t.Name(), "--processes=2", "--workers=3", "--think=20ms").
			want(t, 0).result(t).wantSafe(t).wantSoldOut(t)
		lock, resolved := "lock flash-sale", 0
		for _, id := range s.links {
			if name := s.ids[id]; name == lock || name == "lock.lease" {
				resolved++
			}
		}
		if s.names["buy"] < r.Turns || s.names[lock] < r.Turns ||
			s.names["lock.wait flash-sale"] == 0 || s.names["pay"] != 40 || len(s.instances) != 2 {
			t.Errorf("%s: spans %v of processes %v in %d turns", url, s.names, s.instances, r.Turns)
		}
		if len(s.links) == 0 || resolved != len(s.links) {
			t.Errorf("%s: %d of %d links lead to who held", url, resolved, len(s.links))
		}
	}
}

// A run is a span below the one that its environment names, and its command gets the trace.
func TestRunTrace(t *testing.T) {
	const trace, parent = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
	url := "file://" + filepath.Join(t.TempDir(), "locks")
	s := newSink()
	web := httptest.NewServer(s)
	defer web.Close()
	run := func(status int, env ...string) (child string) {
		t.Helper()
		env = append(env, "TRACEPARENT=00-"+trace+"-"+parent+"-01")
		o := holdfastWith(t, env, "run", "k", "--backend", url, "sh", "-c",
			"echo $TRACEPARENT; "+binary+" inspect k --backend "+url+"; exit "+
				strconv.Itoa(status)).want(t, status)
		child, rest, _ := strings.Cut(o.out, "\n")
		if !strings.HasPrefix(child, "00-"+trace+"-") || !strings.HasSuffix(child, "-01") ||
			!strings.Contains(rest, "trace  "+trace) || o.err != "" {
			t.Errorf("%v: the command has %q, and the lock %s%s", env, child, rest, o.err)
		}
		return child
	}
	for _, env := range [][]string{
		nil,
		{"OTEL_EXPORTER_OTLP_ENDPOINT=" + web.URL, "OTEL_SDK_DISABLED=true"},
	} {
		if child := run(0, env...); !strings.Contains(child, parent) {
			t.Errorf("%v: nothing is sent, and yet the command is below another span: %s", env,
				child)
		}
	}
	s.mu.Lock()
	if len(s.names) > 0 {
		t.Errorf("sent %v", s.names)
	}
	s.mu.Unlock()
	for i, env := range []string{
		"OTEL_EXPORTER_OTLP_ENDPOINT=" + web.URL, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=" + web.URL +
			"/v1/traces", "HOLDFAST_TRACING_ENDPOINT=" + web.URL,
	} {
		child := run(3, env, "OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf", "HOLDFAST_CLASSES=k*")
		s.mu.Lock()
		if s.names["run sh"] != i+1 || s.names["lock k"] != i+1 || s.parents["run sh"] != parent {
			t.Errorf("%s: %v were sent, below %v", env, s.names, s.parents)
		}
		if s.failed["run sh"] != i+1 || s.failed["lock k"] != 0 {
			t.Errorf("%s: after a command that failed, errors are %v", env, s.failed)
		}
		if id := strings.Split(child, "-")[2]; s.ids[decode(t, id)] != "lock k" {
			t.Errorf("%s: the command is below %q", env, s.ids[decode(t, id)])
		}
		s.mu.Unlock()
	}
	web.Close()
	o := holdfastWith(t, []string{"OTEL_EXPORTER_OTLP_ENDPOINT=" + web.URL}, "run", "k",
		"--backend", url, "sh", "-c", "exit 3").want(t, 3)
	if !strings.Contains(o.err, "not all traces were sent") || strings.Count(o.err, "\n") != 1 {
		t.Errorf("nobody listens: %s", o.err)
	}
}

func decode(t *testing.T, id string) string {
	t.Helper()
	raw, err := hex.DecodeString(id)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}

// A collector that is not there does not change the sale, is told of once, and is a failure.
func TestDemoTraceNobodyListens(t *testing.T) {
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close()
	store := testserver.SharedRedis(t)
	for _, args := range []string{"--trace=http://", "--processes=2 --trace=grpc://"} {
		o := holdfast(t, append([]string{
			"demo", "--stock=20", "--backend", store.URL(), "--key",
			t.Name(),
		}, strings.Fields(args+l.Addr().String())...)...).want(t, 1)
		if strings.Count(o.err, "not all traces were sent") != 1 ||
			!strings.Contains(o.err, "refused") || !strings.Contains(o.out, "sold 20 of 20") {
			t.Error(o.err)
		}
	}
	env := []string{"HOLDFAST_TRACING_ENDPOINT=http://" + l.Addr().String()}
	if o := holdfastWith(t, env, "demo", "--stock=20").want(t, 1); !strings.Contains(o.err,
		"not all traces were sent") {
		t.Errorf("the configuration's endpoint was not tried: %s", o.err)
	}
}
