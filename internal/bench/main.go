// Command bench measures holdfast against other lock libraries and against bare clients, on a redis-server that it starts
// and ends itself. docs/benchmarks.md says how to read what it prints.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/redisd"
	"github.com/holdfast-go/holdfast/internal/bench/report"
	"github.com/holdfast-go/holdfast/internal/bench/scenario"
)

func main() {
	if os.Getenv(scenario.WorkerEnv) != "" && len(os.Args) > 1 {
		exit(scenario.Work(os.Args[len(os.Args)-1]))
	}
	exit(run(os.Args[1:], os.Stdout))
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// settings are the command's flags.
type settings struct {
	quick           bool
	rounds          int
	patience        int
	scenarios, only string
	jsonFile, cpu   string
	length          time.Duration
}

func parse(args []string) (s settings, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&s.quick, "quick", false, "shorter cells, fewer cases and peers: under 3 minutes")
	f.IntVar(&s.rounds, "rounds", 0, "rounds (default 5, with -quick 2)")
	f.IntVar(&s.patience, "patience", 1, "how often a cell is measured again if others took over 10 % of the two CPUs")
	f.StringVar(&s.scenarios, "scenario", "", "only these, by commas: S1,S2,S3,S4,S5,S5-killed,S5-hung,S6,layout,E1,E4")
	f.StringVar(&s.only, "only", "", "only participants whose name contains one of these, by commas; limits always run")
	f.StringVar(&s.jsonFile, "json", "", "write every sample to this `file` too")
	f.StringVar(&s.cpu, "cpuprofile", "", "write a CPU profile of the clients in this process to this `file`")
	f.DurationVar(&s.length, "length", 0, "how long each cell is measured, instead of the scenario's own")
	if err = f.Parse(args); err == nil && f.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if s.rounds == 0 {
		if s.rounds = 5; s.quick {
			s.rounds = 2
		}
	}
	return s, err
}

func (s settings) wants(list, name string, exact bool) bool {
	if list == "" {
		return true
	}
	return slices.ContainsFunc(strings.Split(list, ","), func(w string) bool {
		return w == name || !exact && strings.Contains(name, w)
	})
}

func run(args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	server, err := redisd.Start()
	if err != nil {
		return err
	}
	defer server.Stop()
	defer scenario.StopEtcd()
	defer scenario.StopQuorum()
	cpus := runtime.NumCPU()
	pinned := cpus > 1 && pin.To(server.Pid(), 1) == nil && pin.To(0, 0) == nil
	if pinned {
		runtime.GOMAXPROCS(1) // pools are made for as many CPUs as there are for us
	}
	if s.cpu != "" {
		f, err := os.Create(s.cpu)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	return measure(s, server, report.Here(server.Version, cpus, pinned), out)
}

// measure runs the scenarios and writes each table as soon as it is there.
func measure(s settings, server *redisd.Server, machine report.Machine, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	r := &scenario.Runner{
		Env:    scenario.Env{Server: server, Worker: []string{self}},
		Rounds: s.rounds, Quick: s.quick, Length: s.length, Patience: s.patience, Log: os.Stderr,
		Wanted: func(name string) bool { return s.wants(s.only, name, false) },
	}
	report.Header(out, machine)
	began := time.Now()
	var results []*scenario.Result
	for _, sc := range scenario.All() {
		if s.wants(s.scenarios, sc.Name, true) {
			result := r.Run(context.Background(), sc)
			report.Table(out, result)
			results = append(results, result)
		}
	}
	verdicts := report.Goals(results)
	report.Verdicts(out, verdicts)
	fmt.Fprintf(out, "Took %v.\n", time.Since(began).Round(time.Second))
	if s.jsonFile == "" {
		return nil
	}
	text, err := json.MarshalIndent(map[string]any{"machine": machine, "results": results, "goals": verdicts}, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.jsonFile, append(text, '\n'), 0o644)
}
