package main_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
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
	links     []string
}

func newSink() *sink {
	return &sink{names: map[string]int{}, instances: map[string]bool{}, ids: map[string]string{}}
}

func (s *sink) Export(_ context.Context, r *collector.ExportTraceServiceRequest) (*collector.ExportTraceServiceResponse, error) {
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
				s.ids[string(span.SpanId)] = span.Name
				for _, l := range span.Links {
					if span.Name == "lock.wait" {
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
		r := holdfast(t, "demo", "--json", "--trace", url, "--stock=40", "--backend", store.URL(), "--key", t.Name(), "--processes=2", "--workers=3").
			want(t, 0).result(t).wantSafe(t).wantSoldOut(t)
		lock, resolved := "lock "+t.Name(), 0
		for _, id := range s.links {
			if name := s.ids[id]; name == lock || name == "lock.lease" {
				resolved++
			}
		}
		if s.names["buy"] < r.Turns || s.names[lock] < r.Turns || s.names["lock.wait"] == 0 || s.names["pay"] != 40 || len(s.instances) != 2 {
			t.Errorf("%s: spans %v of processes %v in %d turns", url, s.names, s.instances, r.Turns)
		}
		if len(s.links) == 0 || resolved != len(s.links) {
			t.Errorf("%s: %d of %d links lead to who held", url, resolved, len(s.links))
		}
	}
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
		o := holdfast(t, append([]string{"demo", "--stock=20", "--backend", store.URL(), "--key", t.Name()}, strings.Fields(args+l.Addr().String())...)...).want(t, 1)
		if strings.Count(o.err, "not all traces were sent") != 1 || !strings.Contains(o.err, "refused") || !strings.Contains(o.out, "sold out") {
			t.Error(o.err)
		}
	}
	env := []string{"HOLDFAST_TRACING_ENDPOINT=http://" + l.Addr().String()}
	if o := holdfastWith(t, env, "demo", "--stock=20").want(t, 1); !strings.Contains(o.err, "not all traces were sent") {
		t.Errorf("the configuration's endpoint was not tried: %s", o.err)
	}
}
