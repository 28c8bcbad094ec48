//go:build jaeger

package jaegertest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// config has Jaeger keep traces in memory, and listen on loopback alone. The ports are, in order:
// query HTTP and gRPC, OTLP gRPC; before them are the names of processors, and behind them what
// they are.
const config = `
service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], processors: [%s], exporters: [jaeger_storage_exporter]}
  telemetry: {metrics: {level: none}, logs: {level: error}}
extensions:
  jaeger_query: {storage: {traces: mem}, http: {endpoint: %q}, grpc: {endpoint: %q}}
  jaeger_storage: {backends: {mem: {memory: {max_traces: 100000}}}}
receivers:
  otlp: {protocols: {grpc: {endpoint: %q}}}
exporters:
  jaeger_storage_exporter: {trace_storage: mem}
%s`

// A jaeger is a running one.
type jaeger struct{ query, otlp string }

func startJaeger(t *testing.T) jaeger {
	t.Helper()
	return startJaegerWith(t, "", "")
}

// startJaegerWith has a processor between what comes and what is kept.
func startJaegerWith(t *testing.T, processor, is string) jaeger {
	t.Helper()
	binary := os.Getenv("HOLDFAST_JAEGER")
	if binary == "" {
		t.Fatal("HOLDFAST_JAEGER does not name a Jaeger: run make test-jaeger")
	}
	ports := freePorts(t, 3)
	file := filepath.Join(t.TempDir(), "jaeger.yaml")
	if err := os.WriteFile(file, fmt.Appendf(nil, config, processor, ports[0], ports[1], ports[2],
		is), 0o600); err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	cmd := exec.CommandContext(t.Context(), binary, "--config", file)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("Jaeger printed:\n%s", &log)
		}
	})
	j := jaeger{query: "http://" + ports[0], otlp: ports[2]}
	eventually(t, func() error {
		var services struct{}
		return j.get("/api/services", &services)
	})
	return j
}

func freePorts(t *testing.T, n int) (addrs []string) {
	t.Helper()
	var open []net.Listener // together, so that they differ
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, l)
		addrs = append(addrs, l.Addr().String())
	}
	for _, l := range open {
		_ = l.Close()
	}
	return addrs
}

// eventually repeats what another process may not be ready for.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (j jaeger) get(path string, into any) error {
	resp, err := http.Get(j.query + path)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	if err != nil {
		return err
	}
	return json.Unmarshal(body, into)
}

// A span is the part of Jaeger's form that the test looks at.
type span struct {
	TraceID, SpanID, OperationName, ProcessID string

	Duration   int64 // microseconds
	StartTime  int64
	References []struct{ RefType, TraceID, SpanID string }
	Tags       []struct {
		Key   string
		Value any
	}
	Logs []struct {
		Timestamp int64
		Fields    []struct {
			Key   string
			Value any
		}
	}
	service string
}

func (s span) took() time.Duration { return time.Duration(s.Duration) * time.Microsecond }

type answer struct {
	Data []struct {
		Spans     []span
		Processes map[string]struct{ ServiceName string }
	}
}

// spans asks for all spans of a service, by their ids, until there are as many of a name ("" for
// all) as there should be.
func (j jaeger) spans(t *testing.T, service, name string, n int) map[string]span {
	t.Helper()
	var all map[string]span
	eventually(t, func() (err error) {
		if all, err = j.kept(service); err != nil {
			return err
		}
		found := 0
		for _, s := range all {
			if s.OperationName == name || name == "" {
				found++
			}
		}
		if found != n {
			return fmt.Errorf("%d spans %s of %s, want %d", found, name, service, n)
		}
		return nil
	})
	return all
}

// kept asks for all spans of a service that there are, by their ids.
func (j jaeger) kept(service string) (map[string]span, error) {
	var a answer
	all := map[string]span{}
	err := j.get("/api/traces?limit=100000&service="+service, &a)
	for _, trace := range a.Data {
		for _, s := range trace.Spans {
			s.service = trace.Processes[s.ProcessID].ServiceName
			all[s.SpanID] = s
		}
	}
	return all, err
}

// A worker is another process.
type worker struct {
	in  io.WriteCloser
	out *json.Decoder
}

func startWorker(t *testing.T, o order) worker {
	t.Helper()
	spec, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), workerEnv+"="+string(spec))
	cmd.Stderr = os.Stderr
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // a worker ends with its input
		_ = in.Close()
		_ = cmd.Wait()
	})
	return worker{in, json.NewDecoder(bufio.NewReader(out))}
}

// next is what the worker says next.
func (w worker) next(t *testing.T) line {
	t.Helper()
	var l line
	if err := w.out.Decode(&l); err != nil || l.Error != "" {
		t.Fatal(l.Error, err)
	}
	return l
}
