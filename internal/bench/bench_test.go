package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/scenario"
)

// TestMain is also the workers' main: they are this program again.
func TestMain(m *testing.M) {
	if os.Getenv(scenario.WorkerEnv) != "" {
		exit(scenario.Work(os.Args[len(os.Args)-1]))
	}
	os.Exit(m.Run())
}

// TestSmoke runs every scenario for a few milliseconds on a real server, with ourselves and one peer.
func TestSmoke(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	var out strings.Builder
	err := run([]string{"-quick", "-rounds", "1", "-length", "30ms", "-only", "holdfast,rueidislock-noloop", "-json", file}, &out)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report struct {
		Results []*scenario.Result
		Goals   []map[string]any
	}
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if got, want := len(report.Results), len(scenario.All()); got != want {
		t.Errorf("%d scenarios, want %d", got, want)
	}
	if len(report.Goals) == 0 {
		t.Error("no goals were judged")
	}
	for _, r := range report.Results {
		if !strings.Contains(out.String(), "## "+r.Name+":") {
			t.Errorf("no table of %s", r.Name)
		}
		for _, row := range r.Rows {
			checkRow(t, r.Name, row)
		}
	}
}

// checkRow looks for what a row must have whatever the machine does meanwhile.
func checkRow(t *testing.T, name string, row *scenario.Row) {
	if row.Error != "" {
		t.Errorf("%s: %s, n=%d: %s", name, row.Participant, row.Case, row.Error)
	}
	if row.Role == impl.Ours && row.Spread("faults").Max != 0 {
		t.Errorf("%s: %s, n=%d: exclusion or token order was broken", name, row.Participant, row.Case)
	}
	if row.Role == impl.Ours && (name == "S1" || name == "S2" || strings.HasPrefix(name, "S5")) && row.Spread("rate").N == 0 {
		t.Errorf("%s: %s, n=%d: no rate was measured", name, row.Participant, row.Case)
	}
}

// TestImplementations holds the list of what is measured to what a new file in package impl has to give.
func TestImplementations(t *testing.T) {
	seen := map[string]bool{}
	for _, im := range append(impl.All(), impl.Quorums()...) {
		if seen[im.Name] {
			t.Errorf("%s is registered twice", im.Name)
		}
		seen[im.Name] = true
		if im.Settings == "" || im.Open == nil || len(im.Sent) == 0 || len(im.Modules) == 0 {
			t.Errorf("%s is not complete: %+v", im.Name, im)
		}
	}
	if !seen["raw-goredis"] || !seen["holdfast+goredis"] {
		t.Error("the limit, or we ourselves, are missing")
	}
}
