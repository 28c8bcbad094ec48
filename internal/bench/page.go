package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// A Machine is where and with what was measured. It names nobody's host.
type Machine struct {
	Date   string `json:"date"`
	CPU    string `json:"cpu"`
	CPUs   int    `json:"cpus"`
	Kernel string `json:"kernel"`
	Go     string `json:"go"`
	R7     string `json:"r7"`
	R8     string `json:"r8"`
	Commit string `json:"commit"`
	Before string `json:"before,omitempty"`
	Pinned bool   `json:"pinned"`
	Took   string `json:"took"`
}

// here describes this machine.
func here(root string, cpus int, pinned bool, before string) Machine {
	m := Machine{
		Date: time.Now().UTC().Format("2006-01-02"), CPUs: cpus, Go: strings.TrimPrefix(runtime.Version(), "go"),
		CPU: runtime.GOARCH, Commit: "unknown", Before: before, Pinned: pinned,
	}
	kernel, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	m.Kernel, _, _ = strings.Cut(strings.TrimSpace(string(kernel)), "-")
	info, _ := os.ReadFile("/proc/cpuinfo")
	for l := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(l, ":"); ok && strings.TrimSpace(name) == "model name" {
			m.CPU = strings.TrimSpace(value)
			break
		}
	}
	if out, err := exec.CommandContext(context.Background(), "git", "-C", root, "describe", "--always", "--dirty").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	return m
}

func (m Machine) text() string {
	where := "servers on one CPU, clients on another"
	if !m.Pinned {
		where = "NOT PINNED, so that a round trip takes as long as the scheduler likes"
	}
	return fmt.Sprintf("holdfast %s, %s, %s (%d CPUs), Linux %s, Go %s; %s. R7 is %s, R8 is %s.",
		m.Commit, m.Date, m.CPU, m.CPUs, m.Kernel, m.Go, where, m.R7, m.R8)
}

const intro = `# Benchmarks

Written by ` + "`make bench-page`" + `; its program is [internal/bench](../internal/bench), a module of its own. The raw run is
[benchmarks.json](benchmarks.json).

`

const howTo = `
## How to run it

` + "```sh" + `
make bench-quick # under 3 minutes: for a look, nothing is decided
make bench       # all of it: 20 minutes on 2 idle CPUs
make bench-page  # the same, and writes this page; BENCHFLAGS="-before COMMIT" compares with another commit
make bench BENCHFLAGS=-scenario=S2.* # some of it; -only=bsm: some participants; -json=FILE: the raw run
` + "```" + `

It needs Linux and two CPUs. It starts and ends its own servers, without persistence: the redis-server in PATH (R7), one
with ` + "`SET … IFEQ`" + ` that ` + "`.ci/redis-versions`" + ` unpacks (R8; ` + "`-redis8 PATH`" + ` names another), and etcd.

## How it is measured

* Each cell runs in processes of its own, on CPU 0; the servers have CPU 1. "At 1 ms" is behind a proxy that adds half of
  it to each way.
* **Only ratios within one round count.** A round runs every participant once, one after the other, in an order that moves
  on. One in which others, or the machine's host, took over 5 % of the two CPUs is thrown away.
* Figures are medians; a verdict is by the interval of at least 5 valid rounds that holds the true median with 93 %:
  *met*, *not met*, or *undecided* if the interval contains the goal.
* **Floors** are the same work by the same client library with nothing of what keeps it safe: *raw* is ` + "`SET NX PX`" + ` and a
  compare-and-delete script; *floor-fenced* adds a token and a wake-up; *floor-native* is ` + "`SET IFEQ`" + ` both ways;
  *floor-hand-off* is a queue in one string; *raw-redlock* is a FIFO and batches for each of five servers. *PING*, a *signal*
  (PUBLISH until received) and a Go *channel* are what an acquisition is made of.
* The best peer is the best with the same client library. Of a contended key it is the best *fair* one: Jain's index of the
  goroutines' shares is 0.99 or more. Who is not is in parentheses. Peers have the settings of their READMEs.
* Every acquisition is judged: two holders at once, or a token that does not rise, is a fault, and disqualifies.
* CPU is what client and server used, in µs a pair: it survives noise that rates do not.

To look into one cell: ` + "`-scenario S1 -only holdfast.goredis -rounds 1 -cpuprofile cpu.out`" + `. To add an implementation, register it in
` + "`internal/bench/impl`" + ` and name it in ` + "`scenarios.go`" + `; goals are in ` + "`goals.go`" + `.
`

// page is docs/benchmarks.md.
func page(report *Report) string {
	var w strings.Builder
	if report.Machine.Date == "" {
		return intro + "No run has been recorded.\n" + howTo
	}
	w.WriteString(intro + report.Machine.text() + " It took " + report.Machine.Took + ".\n\n")
	fmt.Fprint(&w, "![ours and the best peer, as multiples of the floor](benchmarks.svg)\n\n")
	rows := [][]string{{"work", "ours", "best peer", "floor", "goal", "verdict"}}
	for _, l := range lines {
		if r := book(report.Results).find(l.scenario, l.n); r != nil {
			rows = append(rows, []string{
				fmt.Sprintf("%s (n = %d)", l.work, l.n), l.show(r, l.ours), l.showPeers(r), l.show(r, l.floor),
				l.goal, l.verdict(report.Verdicts),
			})
		}
	}
	markdown(&w, rows)
	w.WriteString("\nRates are a second; beside them, in parentheses, µs of CPU a pair of client + server.\n")
	missed := slices.DeleteFunc(slices.Clone(report.Verdicts), func(v Verdict) bool { return v.Verdict != notMet })
	if len(missed) > 0 {
		fmt.Fprintf(&w, "\n<details><summary>The %d of %d goals that are not met</summary>\n\n", len(missed), len(report.Verdicts))
		for _, v := range missed {
			fmt.Fprintf(&w, "* %s\n", v.text())
		}
		w.WriteString("\n</details>\n")
	}
	if len(report.Changes) > 0 {
		w.WriteString(changed(report))
	}
	w.WriteString(howTo)
	return w.String()
}

// show writes a line's metric of a participant, with each client library if its name has one.
func (l line) show(r *Result, name string) string {
	var all []string
	for _, client := range l.each() {
		text := r.figure(with(client, name), l.metric)
		switch {
		case text == "":
			continue
		case !strings.Contains(name, "%"):
			return name + " " + text
		case len(l.each()) > 1:
			text = clientNames[client] + " " + text
		}
		all = append(all, text)
	}
	if len(all) == 0 {
		return "–"
	}
	return strings.Join(all, "<br>")
}

func (l line) showPeers(r *Result) string {
	var all []string
	if l.metric == "client" {
		return "–" // what is compared is with and without
	}
	for _, client := range l.each() {
		fair, unfair := r.bestPeers(client, l.metric)
		var both []string
		if fair != "" {
			both = append(both, fair+" "+r.figure(fair, l.metric))
		}
		if unfair != "" {
			both = append(both, "(unfair: "+unfair+" "+r.figure(unfair, l.metric)+")")
		}
		if len(both) > 0 {
			all = append(all, strings.Join(both, " "))
		}
	}
	if len(all) == 0 {
		return "–"
	}
	return strings.Join(all, "<br>")
}

// figure writes a metric; beside a rate, the CPU.
func (r *Result) figure(name, metric string) string {
	s := r.spread(name, metric)
	switch {
	case s.N == 0:
		return ""
	case metric == "rate":
		return fmt.Sprintf("%s (%s + %s)", number(s.Median), number(r.spread(name, "client").Median),
			number(r.spread(name, "server").Median))
	case metric == "p50" || metric == "max" || metric == "cpu" || metric == "client":
		return micro(s.Median)
	}
	return number(s.Median)
}

// verdict sums up a line's checks.
func (l line) verdict(all []Verdict) string {
	counts := map[string]int{}
	for _, v := range all {
		if v.Line == l.work {
			counts[v.Verdict]++
		}
	}
	var parts []string
	for _, v := range []string{notMet, undecided, met} {
		if len(counts) == 1 && counts[v] > 0 {
			return "**" + v + "**"
		}
		if counts[v] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", counts[v], v))
		}
	}
	return strings.Join(parts, ", ")
}

// changed is the page's part about another commit.
func changed(report *Report) string {
	counts, apart := map[string]int{}, []Change{}
	for _, c := range report.Changes {
		if counts[c.Verdict]++; c.Verdict == "worse" {
			apart = append(apart, c)
		}
	}
	var w strings.Builder
	fmt.Fprintf(&w, "\n## Before and after\n\nholdfast as of %s ran in the same rounds. Of %d comparisons %d are better, "+
		"%d the same within the spread, %d undecided and %d worse", report.Machine.Before, len(report.Changes),
		counts["better"], counts["same"], counts[undecided], counts["worse"])
	if len(apart) == 0 {
		return w.String() + ".\n"
	}
	w.WriteString(":\n\n")
	markdown(&w, changeRows(apart))
	return w.String()
}

func changeRows(all []Change) [][]string {
	rows := [][]string{{"", "n", "who", "metric", "now over before", "verdict"}}
	for _, c := range all {
		rows = append(rows, []string{c.Scenario, fmt.Sprint(c.N), c.Who, c.Metric, interval(c.Now), c.Verdict})
	}
	return rows
}

func interval(s stats.Spread) string {
	return fmt.Sprintf("%s (%s–%s)", number(s.Median), number(s.Low), number(s.High))
}

// number writes a figure with three digits.
func number(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.3gM", x/1e6)
	case x >= 1e5:
		return fmt.Sprintf("%.0fk", x/1e3)
	case x >= 1e4:
		return fmt.Sprintf("%.1fk", x/1e3)
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

// micro writes µs in the unit that fits.
func micro(x float64) string {
	switch {
	case x >= 1e6:
		return fmt.Sprintf("%.2f s", x/1e6)
	case x >= 1e4:
		return fmt.Sprintf("%.0f ms", x/1e3)
	case x >= 1e3:
		return fmt.Sprintf("%.1f ms", x/1e3)
	}
	return fmt.Sprintf("%.3g µs", x)
}

// markdown writes a table that is also aligned for a terminal.
func markdown(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, c := range row {
			width[i] = max(width[i], utf8.RuneCountInString(c), 3)
		}
	}
	write := func(row []string, fill string) {
		for i, c := range row {
			fmt.Fprintf(w, "| %s%s ", c, strings.Repeat(fill, width[i]-utf8.RuneCountInString(c)))
		}
		fmt.Fprintln(w, "|")
	}
	write(rows[0], " ")
	write(make([]string, len(width)), "-")
	for _, row := range rows[1:] {
		write(row, " ")
	}
}

// A bar is a row of the picture.
type bar struct {
	label, scenario string
	n               int
	metric          string
	ours, floor     string
}

var bars = []bar{
	{"S1, n = 1", "S1", 1, "rate", oursPlain, raw},
	{"S1, n = 16", "S1", 16, "rate", oursPlain, raw},
	{"S1, n = 128", "S1", 128, "rate", oursPlain, raw},
	{"S1, n = 1000", "S1", 1000, "rate", oursPlain, raw},
	{"S1 at 1 ms, n = 64", "S1-1ms", 64, "rate", oursPlain, raw},
	{"S1, R8, n = 128", "S1-R8", 128, "rate", oursPlain, raw},
	{"S2 strict", "S2", 64, "rate", oursStrict, "ping"},
	{"S3 strict", "S3", 4, "rate", oursStrict, "signal"},
	{"S4", "S4", 2, "p50", oursPlain, "signal"},
	{"S5 at 1 ms", "S5-1ms", 16, "rate", oursQuorum, "raw-redlock"},
	{"S5, one killed", "S5-killed-1ms", 16, "rate", oursQuorum, "raw-redlock"},
	{"S5, one hung", "S5-hung-1ms", 16, "rate", oursQuorum, "raw-redlock"},
}

// picture draws ours and the best peer, fair or not, as multiples of the floor.
func picture(results []*Result) string {
	const left, right, row, top, least, most = 130.0, 560.0, 34.0, 40.0, 0.05, 2.0
	var w strings.Builder
	x := func(ratio float64) float64 {
		ratio = min(max(ratio, least), most)
		return left + (right-left)*math.Log(ratio/least)/math.Log(most/least)
	}
	height := top + row*float64(len(bars)) + 10
	fmt.Fprintf(&w, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 700 %.0f" width="700" height="%.0f" `+
		"font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"700\" height=\"%.0f\" fill=\"white\"/>\n", height, height, height)
	for i, l := range []struct{ color, text string }{
		{"#1f6fb2", "holdfast, go-redis"}, {"#7db8e8", "holdfast, rueidis"}, {"#b0b0b0", "best peer"},
	} {
		fmt.Fprintf(&w, "<rect x=\"%d\" y=\"6\" width=\"10\" height=\"10\" fill=\"%s\"/><text x=\"%d\" y=\"15\">%s</text>\n",
			130+i*130, l.color, 144+i*130, l.text)
	}
	for _, tick := range []float64{0.05, 0.1, 0.2, 0.5, 1, 2} {
		color := "#dddddd"
		if tick == 1 {
			color = "#d04040"
		}
		fmt.Fprintf(&w, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.0f\" y2=\"%.0f\" stroke=\"%s\"/><text x=\"%.1f\" y=\"32\" "+
			"text-anchor=\"middle\">%g</text>\n", x(tick), x(tick), top-4, height-6, color, x(tick), tick)
	}
	for i, b := range bars {
		y := top + row*float64(i)
		fmt.Fprintf(&w, "<text x=\"4\" y=\"%.0f\">%s</text>\n", y+18, b.label)
		r := book(results).find(b.scenario, b.n)
		if r == nil {
			continue
		}
		fair, unfair := r.bestPeers("", b.metric)
		peer := fair
		if peer == "" {
			peer = unfair
		}
		im, _ := impl.Named(peer)
		for j, bar := range []struct{ who, client, color string }{
			{with(impl.Goredis, b.ours), impl.Goredis, "#1f6fb2"},
			{with(impl.Rueidis, b.ours), impl.Rueidis, "#7db8e8"},
			{peer, im.Client, "#b0b0b0"},
		} {
			s := stats.SpreadOf(r.values(func(x Round) (float64, bool) {
				own, ok := x.Cells[bar.who][b.metric]
				floor, ok2 := x.Cells[with(bar.client, b.floor)][b.metric]
				if b.metric != "rate" { // less is better
					own, floor = floor, own
				}
				return own / max(floor, 1e-9), ok && ok2
			}))
			if s.N == 0 {
				continue
			}
			text := fmt.Sprintf("%.3g", s.Median)
			if bar.who == peer {
				text += " " + peer
			}
			at := y + float64(j)*9
			fmt.Fprintf(&w, "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"8\" fill=\"%s\"/><text x=\"%.1f\" y=\"%.1f\" "+
				"font-size=\"8\">%s</text>\n", left, at, max(x(s.Median)-left, 1), bar.color, x(s.Median)+3, at+7, text)
		}
	}
	w.WriteString("</svg>\n")
	return w.String()
}
