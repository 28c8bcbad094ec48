package scenario

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
)

// S3 has so many processes, all on the clients' CPU.
const nProcesses = 4

var processes = Scenario{
	Name: "S3", Title: "contended: 4 processes of n goroutines each, one key, empty critical section",
	Limit: "PUBLISH",
	Note:  "the limit is one signal from client to client through the server, one after the other",
	Columns: []Column{
		{"rate", "acq/s", Number},
		{"ratio", "× signal", Ratio},
		{"p50", "wait p50", Micros},
		{"p99", "wait p99", Micros},
		{"max", "wait max", Micros},
		{"pmaxmin", "processes max/min", Ratio},
		{"maxmin", "goroutines max/min", Ratio},
		{"jain", "Jain", Ratio},
		{"sent", "sent/acq", Ratio},
		{"executed", "executed/acq", Ratio},
		{"ccpu", "client CPU/acq", Micros},
		{"scpu", "server CPU/acq", Micros},
		{"errors", "errors", Number},
		{"faults", "faults", Number},
	},
	Cases:  func(bool) []int { return []int{4} },
	Length: lengths(700*time.Millisecond, 1500*time.Millisecond),
	Extras: []Extra{{"PUBLISH", "two connections, no library", runSignal(0)}},
	Run:    runProcesses,
}

func runProcesses(_ context.Context, env *Env, im impl.Impl, n int) (Metrics, error) {
	dir, err := os.MkdirTemp("", "holdfast-bench-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	shared := filepath.Join(dir, "judge")
	all, unmap, err := judges(shared, 1)
	if err != nil {
		return nil, err
	}
	defer unmap()
	var crew []*worker
	defer func() {
		for _, w := range crew {
			w.stop()
		}
	}()
	for range nProcesses {
		w, err := startWorker(env, order{Mode: "load", Impl: im.Name, Addr: env.Server.Addr, N: n, Shared: shared})
		if err != nil {
			return nil, err
		}
		crew = append(crew, w)
	}
	return measureCrew(env, im, crew, all)
}

// measureCrew lets the workers begin and end together.
func measureCrew(env *Env, im impl.Impl, crew []*worker, all []judge) (Metrics, error) {
	for _, w := range crew {
		if err := w.ready(10 * time.Second); err != nil {
			return nil, err
		}
	}
	time.Sleep(env.warm())
	before, err := env.Server.Counters()
	if err != nil {
		return nil, err
	}
	if err := tell(crew); err != nil {
		return nil, err
	}
	time.Sleep(env.Length)
	after, err := env.Server.Counters()
	if err != nil {
		return nil, err
	}
	if err := tell(crew); err != nil {
		return nil, err
	}
	results := make([]loadResult, len(crew))
	var used time.Duration
	for i, w := range crew {
		if err := w.answer(&results[i]); err != nil {
			return nil, err
		}
		used += results[i].CPU
	}
	m, ops := metrics(results...)
	m.perOp(im, after.Since(before), used, ops)
	violations, disorder := faults(all)
	m["faults"] = violations + disorder
	return m, nil
}

func tell(crew []*worker) error {
	for _, w := range crew {
		if err := w.next(); err != nil {
			return err
		}
	}
	return nil
}
