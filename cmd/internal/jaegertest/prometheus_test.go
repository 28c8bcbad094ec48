//go:build jaeger && prometheus

package jaegertest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing"
)

// exposition is what OpenTelemetry's Prometheus exporter would make of the metrics.
func exposition(rm metricdata.ResourceMetrics) []byte {
	var b bytes.Buffer
	write := func(name string, set attribute.Set, value any, more ...string) {
		for _, a := range set.ToSlice() {
			more = append(more, fmt.Sprintf("%s=%q", strings.ReplaceAll(string(a.Key), ".", "_"),
				a.Value.String()))
		}
		fmt.Fprintf(&b, "%s{%s} %v\n", name, strings.Join(more, ","), value)
	}
	for _, m := range rm.ScopeMetrics[0].Metrics {
		name := strings.ReplaceAll(m.Name, ".", "_")
		if m.Unit == "s" {
			name += "_seconds"
		}
		switch data := m.Data.(type) {
		case metricdata.Sum[int64]:
			if data.IsMonotonic {
				name += "_total"
			}
			for _, p := range data.DataPoints {
				write(name, p.Attributes, p.Value)
			}
		case metricdata.Sum[float64]: // seconds that only grow
			for _, p := range data.DataPoints {
				write(name+"_total", p.Attributes, p.Value)
			}
		case metricdata.Gauge[float64]:
			for _, p := range data.DataPoints {
				write(name, p.Attributes, p.Value)
			}
		case metricdata.Histogram[float64]:
			for _, p := range data.DataPoints {
				n := uint64(0)
				for i, count := range p.BucketCounts {
					n += count
					le := "+Inf"
					if i < len(p.Bounds) {
						le = fmt.Sprint(p.Bounds[i])
					}
					write(name+"_bucket", p.Attributes, n, `le="`+le+`"`)
				}
				write(name+"_sum", p.Attributes, p.Sum)
				write(name+"_count", p.Attributes, p.Count)
			}
		}
	}
	return b.Bytes()
}

// The alerts pass their own tests. A real Prometheus that scrapes a process with a lock that is
// held, waited for and lost fires what it should, the first loss included, and has something for
// each panel of the dashboard.
func TestPrometheus(t *testing.T) {
	docs, err := filepath.Abs("../../../docs/metrics")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "promtool", "test", "rules", "alerts_test.yaml")
	cmd.Dir = docs
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("promtool: %v\n%s", err, out)
	}

	reader := metric.NewManualReader()
	obs, err := tracing.NewObserver(
		tracing.Config{Meter: metric.NewMeterProvider(metric.WithReader(reader))})
	if err != nil {
		t.Fatal(err)
	}
	b := membackend.New()
	l, err := locker.New(b, locker.Bare,
		locker.Config{Observer: obs, Classes: []string{"order-*"}, TTL: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Shutdown(context.Background()) }()
	held, err := l.Lock(t.Context(), "order-1")
	if err != nil {
		t.Fatal(err)
	}
	waits := make(chan struct{})
	go func() {
		defer close(waits)
		g, err := l.Lock(t.Context(), "order-1")
		if err != nil {
			t.Error(err)
			return
		}
		_ = g.Unlock()
	}()
	app := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var rm metricdata.ResourceMetrics
		if err := reader.Collect(context.Background(), &rm); err != nil {
			t.Error(err)
		}
		w.Header().Set("Content-Type", "text/plain; version=0.0.4")
		_, _ = w.Write(exposition(rm))
	}))
	defer app.Close()

	dir, addr := t.TempDir(), freePorts(t, 1)[0]
	config := fmt.Sprintf("global: {scrape_interval: 500ms, evaluation_interval: "+
		"500ms}\nrule_files: [%s/alerts.yaml]\n"+
		"scrape_configs: [{job_name: shop, static_configs: [{targets: [%q]}]}]\n", docs,
		strings.TrimPrefix(app.URL, "http://"))
	if err := os.WriteFile(filepath.Join(dir, "prometheus.yaml"), []byte(config),
		0o600); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	server := exec.CommandContext(t.Context(), "prometheus",
		"--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+addr)
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
		if t.Failed() {
			t.Logf("Prometheus printed:\n%s", &log)
		}
	}()
	prom := jaeger{query: "http://" + addr}
	value := func(expr string) (n int, err error) {
		var a struct{ Data struct{ Result []any } }
		err = prom.get("/api/v1/query?query="+url.QueryEscape(expr), &a)
		return len(a.Data.Result), err
	}
	some := func(expr string) {
		t.Helper()
		eventually(t, func() error {
			if n, err := value(expr); err != nil || n == 0 {
				return fmt.Errorf("nothing for %s: %v", expr, err)
			}
			return nil
		})
	}
	// They have begun, and 0 was seen of what is lost.
	some("holdfast_wait_oldest_seconds > 1 and holdfast_hold_longest_seconds > 1")
	some(`holdfast_lost_total{holdfast_cause="store"} == 0`)
	state, err := b.Inspect(t.Context(), "order-1")
	if err != nil {
		t.Fatal(err)
	}
	claim := backend.Claim{Key: "order-1", Owner: state.Holders[0].Owner}
	if _, err := b.Release(t.Context(), claim); err != nil { // as by hand
		t.Fatal(err)
	}
	<-held.Lost()
	<-waits
	some(`ALERTS{alertname="HoldfastLockLost",alertstate="firing",` +
		`holdfast_key_class="order",holdfast_cause="store"}`)
	if n, err := value(`ALERTS{alertname!="HoldfastLockLost",alertstate="firing"}`); n != 0 ||
		err != nil {
		t.Errorf("%d other alerts, %v", n, err)
	}

	text, err := os.ReadFile(filepath.Join(docs, "grafana.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	if err := json.Unmarshal(text, &dashboard); err != nil || len(dashboard.Panels) < 8 {
		t.Fatal(err, len(dashboard.Panels))
	}
	fill := strings.NewReplacer("$job", ".*", "$class", ".*", "$__rate_interval", "1m", "$__range",
		"5m")
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			some(fill.Replace(target.Expr))
		}
	}
}
