// Command bench measures holdfast against other lock libraries, against the least that such locks
// can cost, and against itself as of another commit, on servers that it starts and ends itself.
// docs/benchmarks.md says how, and is what it wrote last.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/worker"
)

func main() {
	if order := os.Getenv(worker.Env); order != "" {
		worker.Main(order)
	}
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

// settings are the command's flags.
type settings struct {
	quick        bool
	rounds       int
	scenario     string
	only         string
	commit       string
	redis8       string
	jsonFile     string
	page, from   string
	profile      string
	length       time.Duration
	pickScenario *regexp.Regexp
}

func parse(args []string) (s settings, err error) {
	f := flag.NewFlagSet("bench", flag.ContinueOnError)
	f.BoolVar(&s.quick, "quick", false,
		"2 rounds of fewer cells: under 3 minutes, and nothing is decided")
	f.IntVar(&s.rounds, "rounds", 0, "valid rounds (default 5, with -quick 2)")
	f.StringVar(&s.scenario, "scenario", "",
		"only the scenarios that this regular expression matches as a whole: S1|S2.*")
	f.StringVar(&s.only, "only", "",
		"only participants that match this regular expression; floors always run")
	f.StringVar(&s.commit, "before", "", "measure holdfast as of this `commit` beside each of ours")
	f.StringVar(&s.redis8, "redis8", "",
		"the `path` of a server with SET IFEQ, instead of what .ci/redis-versions "+
			"unpacks; - for none")
	f.StringVar(&s.jsonFile, "json", "", "write the raw run to this `file`")
	f.StringVar(&s.page, "page", "",
		"write the page to this `file`, and the picture and the raw run beside it")
	f.StringVar(&s.from, "from", "", "measure nothing: read the raw run from this `file`")
	f.StringVar(&s.profile, "cpuprofile", "",
		"write a CPU profile of the worker that ran last to this `file`")
	f.DurationVar(&s.length, "length", 0,
		"how long each cell is measured, instead of the scenario's own; fewer waiters")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if s.rounds == 0 {
		if s.rounds = valid; s.quick {
			s.rounds = 2
		}
	}
	if s.pickScenario, err = regexp.Compile("^(?:" + cmp.Or(s.scenario, ".*") + ")$"); err == nil {
		_, err = regexp.Compile(s.only)
	}
	part := s.quick || s.scenario != "" || s.only != "" || s.length > 0 || s.rounds < valid
	switch {
	case err != nil:
	case f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case s.page != "" && s.from == "" && part:
		err = errors.New("the page is of a whole run: no -quick, -scenario, -only, -length " +
			"or fewer rounds")
	}
	return s, err
}

// A Report is everything that a run has found.
type Report struct {
	Machine  Machine   `json:"machine"`
	Verdicts []Verdict `json:"goals"`
	Changes  []Change  `json:"changes,omitempty"`
	Results  []*Result `json:"results"`
}

func run(args []string, out io.Writer) error {
	s, err := parse(args)
	if err != nil {
		return err
	}
	report := &Report{}
	if s.from != "" {
		text, err := os.ReadFile(s.from)
		if err != nil {
			return err
		}
		if err := json.Unmarshal(text, report); err != nil {
			return err
		}
		for _, r := range report.Results {
			table(out, r)
		}
	} else if err := measure(s, report, out); err != nil {
		return err
	}
	report.Verdicts, report.Changes = book(report.Results).judge(), changes(report.Results)
	verdicts(out, report)
	if s.jsonFile != "" {
		if err := writeJSON(s.jsonFile, report); err != nil {
			return err
		}
	}
	if s.page != "" {
		return writePage(s.page, report)
	}
	return nil
}

// measure runs the scenarios and writes each table as soon as it is there.
func measure(s settings, report *Report, out io.Writer) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	root, err := filepath.Abs("../..") // of the repository: make and go test run in this directory
	if err != nil {
		return err
	}
	b := &bench{settings: s, self: self, log: os.Stderr}
	b.fleet = &fleet{nodes: map[string][]*node{}, redis8: s.redis8}
	defer b.fleet.stop()
	if s.commit != "" {
		dir, err := os.MkdirTemp("", "holdfast-bench-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		if b.before, err = buildBefore(context.Background(), root, s.commit, dir); err != nil {
			return err
		}
	}
	how := "-redis8"
	if b.fleet.redis8 == "" {
		how = "unpacked by .ci/redis-versions from Debian's packages"
		if b.fleet.redis8, err = unpackRedis8(root); err != nil {
			fmt.Fprintln(b.log, "no server with SET IFEQ:", err)
			b.fleet.redis8 = "-"
		}
	}
	cpus := runtime.NumCPU()
	b.fleet.pinned = cpus > 1 && pin.To(0, clientCPU, serverCPU) == nil
	runtime.GOMAXPROCS(16) // the proxies sleep in system calls, each of which keeps a P for a while
	report.Machine = here(root, cpus, b.fleet.pinned, s.commit)
	if err := b.versions(&report.Machine, how); err != nil {
		return err
	}
	fmt.Fprintln(out, report.Machine.text())
	began := time.Now()
	for _, sc := range scenarios() {
		if !s.pickScenario.MatchString(sc.name) || sc.servers == redis8 && b.fleet.redis8 == "-" {
			continue
		}
		ns := sc.ns
		if s.quick {
			ns = sc.quick
		}
		for _, n := range ns {
			if r := b.run(sc, n); r != nil {
				table(out, r)
				report.Results = append(report.Results, r)
			}
		}
	}
	report.Machine.Took = time.Since(began).Round(time.Second).String()
	return nil
}

// versions asks each kind of server which it is.
func (b *bench) versions(m *Machine, how string) error {
	seven, err := b.fleet.get(redis7, 1)
	if err != nil {
		return err
	}
	m.R7 = seven[0].redis.Version + " (" + redis7Path() + ")"
	if b.fleet.redis8 == "-" {
		m.R8 = "none"
		return nil
	}
	eight, err := b.fleet.get(redis8, 1)
	if err != nil {
		return err
	}
	m.R8 = eight[0].redis.Version + " (" + how + ")"
	return nil
}

func writeJSON(file string, report *Report) error {
	text, err := json.Marshal(report)
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

// writePage writes the page, and the picture and the raw run beside it.
func writePage(file string, report *Report) error {
	base := strings.TrimSuffix(file, filepath.Ext(file))
	return errors.Join(
		os.WriteFile(file, []byte(page(report)), 0o644),
		os.WriteFile(base+".svg", []byte(picture(report.Results)), 0o644),
		writeJSON(base+".json", report),
	)
}

// columns are what tables show of a cell, if it was measured: time is in µs.
var columns = []string{
	"rate", "p50", "p99", "max", "jain", "share", "processes", "sent", "executed", "client",
	"server", "allocs",
	"heap", "stack", "idle", "holder", "conns", "bytes", "seconds", "errors", "faults",
}

// table writes the medians of a result.
func table(w io.Writer, r *Result) {
	shown := slices.DeleteFunc(slices.Clone(columns), func(c string) bool {
		return !slices.ContainsFunc(r.names(), func(name string) bool {
			return r.spread(name, c).N > 0
		})
	})
	fmt.Fprintf(w, "\n## %s, n = %d: %s\n\n%d valid rounds of %d.\n\n", r.Scenario, r.N, r.Title,
		r.valid(), len(r.Rounds))
	rows := [][]string{append([]string{""}, shown...)}
	for _, name := range r.names() {
		row := []string{name}
		for _, c := range shown {
			s := r.spread(name, c)
			switch {
			case s.N == 0:
				row = append(row, "")
			case c == "errors" || c == "faults":
				row = append(row, number(s.High))
			case c == "rate":
				row = append(row, fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Low),
					number(s.High)))
			default:
				row = append(row, number(s.Median))
			}
		}
		rows = append(rows, row)
	}
	markdown(w, rows)
	if n := len(r.Rounds); n > 0 {
		for name, text := range r.Rounds[n-1].Failed {
			fmt.Fprintf(w, "\n%s failed: %s\n", name, text)
		}
	}
}

// verdicts writes every goal, and what has changed.
func verdicts(w io.Writer, report *Report) {
	fmt.Fprint(w, "\n## Goals\n\n")
	rows := [][]string{{"", "n", "who", "metric", "measured", "against", "goal", "verdict"}}
	for _, v := range report.Verdicts {
		sign := "≥ "
		if v.AtMost {
			sign = "≤ "
		}
		rows = append(rows, []string{
			v.Scenario, fmt.Sprint(v.N), v.Who, v.Metric, interval(v.Measured), v.Against, sign +
				number(v.Goal), v.Verdict,
		})
	}
	markdown(w, rows)
	if len(report.Changes) > 0 {
		fmt.Fprintf(w, "\n## Now over before (%s)\n\n", report.Machine.Before)
		markdown(w, changeRows(report.Changes))
	}
	fmt.Fprintf(w, "\nTook %s.\n", report.Machine.Took)
}
