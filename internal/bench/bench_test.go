package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/worker"
)

// TestMain is also the workers' main: they are this program again.
func TestMain(m *testing.M) {
	if order := os.Getenv(worker.Env); order != "" {
		worker.Main(order)
	}
	os.Exit(m.Run())
}

// TestSmoke runs every scenario for a few milliseconds on real servers, with ourselves and a peer.
func TestSmoke(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	var out strings.Builder
	if err := run([]string{
		"-rounds", "1", "-length", "30ms", "-redis8", "-", "-json", file,
		"-only", "holdfast|rueidislock|redsync-5|concurrency",
	}, &out); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	for _, s := range scenarios() {
		for _, n := range s.ns {
			if s.servers != redis8 {
				checkResult(t, book(report.Results).find(s.name, n), s, n)
			}
		}
	}
	if len(report.Verdicts) == 0 {
		t.Error("no goals were judged")
	}
	for _, v := range report.Verdicts {
		if v.Verdict != undecided && !book(report.Results).find(v.Scenario, v.N).Counts &&
			v.Metric != "max" {
			t.Errorf("one round decided %s", v.text())
		}
	}
	page, picture := page(&report), picture(report.Results)
	for _, l := range lines {
		if !strings.Contains(page, l.work) && !strings.HasSuffix(l.scenario, redis8) {
			t.Errorf("the page lacks %q", l.work)
		}
	}
	if n := strings.Count(picture, "<rect"); n < 2*len(bars)-2 {
		t.Errorf("the picture has %d bars", n)
	}
}

// checkResult looks for what a result must have whatever the machine does meanwhile.
func checkResult(t *testing.T, r *Result, s scenario, n int) {
	t.Helper()
	if r == nil || len(r.Rounds) == 0 {
		t.Errorf("%s, n=%d: nothing was measured", s.name, n)
		return
	}
	for _, round := range r.Rounds {
		for name, why := range round.Failed {
			if name == "rueidislock" && strings.Contains(why, silent) {
				// package peers has a test of its lost wake-ups.
				t.Logf("%s, n=%d: %s: %s", s.name, n, name, why)
				continue
			}
			t.Errorf("%s, n=%d: %s failed: %s", s.name, n, name, why)
		}
		for name, m := range round.Cells {
			if strings.HasPrefix(name, "holdfast") && m["faults"] != 0 {
				t.Errorf("%s, n=%d: %s: exclusion or token order was broken", s.name, n, name)
			}
			if _, ok := m["rate"]; !ok && s.mode == worker.Load {
				t.Errorf("%s, n=%d: %s has no rate", s.name, n, name)
			}
		}
	}
}

// TestNames holds goals and the picture to participants that their scenarios have.
func TestNames(t *testing.T) {
	has := func(scenario string, n int, name string) bool {
		for _, s := range scenarios() {
			if s.name == scenario {
				return slices.Contains(s.ns, n) && slices.Contains(s.who, name)
			}
		}
		return false
	}
	for _, l := range lines {
		for _, client := range l.each() {
			for _, c := range append(l.checks,
				check{ns: []int{l.n}, ours: l.ours, against: l.floor}) {
				scenario, ours := c.scenario, c.ours
				if scenario == "" {
					scenario = l.scenario
				}
				if ours == "" {
					ours = l.ours
				}
				for _, n := range c.ns {
					if !has(scenario, n, with(client, ours)) {
						t.Errorf("%s: %s, n=%d, has no %s", l.work, scenario, n, with(client, ours))
					}
					if c.against != "" && c.against != best &&
						!has(scenario, n, with(client, c.against)) {
						t.Errorf("%s: %s, n=%d, has no %s", l.work, scenario, n,
							with(client, c.against))
					}
				}
			}
		}
	}
	for _, b := range bars {
		if name := with(impl.Goredis, b.ours); !has(b.scenario, b.n, name) {
			t.Errorf("the picture: %s, n=%d, has no %s", b.scenario, b.n, name)
		}
	}
	seen := map[string]bool{}
	for _, im := range impl.All() {
		if seen[im.Name] {
			t.Errorf("%s is registered twice", im.Name)
		}
		seen[im.Name] = true
		if im.Settings == "" || im.Open == nil || im.Client != "" && im.Versions() == "" &&
			!testing.Testing() {
			t.Errorf("%s is not complete: %+v", im.Name, im)
		}
	}
}

// TestBefore builds the last commit and compares with it.
func TestBefore(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bench.json")
	var out strings.Builder
	if err := run([]string{
		"-before", "HEAD", "-scenario", "S1-pause", "-rounds", "1", "-length", "30ms", "-redis8",
		"-", "-json", file,
	}, &out); err != nil {
		t.Fatal(err)
	}
	if text := out.String(); !strings.Contains(text, "Now over before (HEAD)") ||
		!strings.Contains(text, beforePrefix+"holdfast+goredis") {
		t.Errorf("no comparison:\n%s", text)
	}
}

// rounds has a cell of each participant in each round.
func rounds(cells ...map[string]Metrics) (all []Round) {
	for _, c := range cells {
		all = append(all, Round{Valid: true, Cells: c})
	}
	return all
}

// pairs has rounds of ours and another's rate.
func pairs(other string, rates ...[2]float64) []Round {
	var all []Round
	for _, r := range rates {
		all = append(all, rounds(map[string]Metrics{
			"holdfast+goredis": {"rate": r[0]},
			other:              {"rate": r[1]},
		})...)
	}
	return all
}

func TestVerdicts(t *testing.T) {
	const floor = "raw+goredis"
	l := line{scenario: "S1", ours: oursPlain, clients: []string{impl.Goredis}}
	for _, tt := range []struct {
		name   string
		rounds []Round
		check  check
		want   string
	}{
		{
			"every ratio is above",
			pairs(floor, [2]float64{11, 10}, [2]float64{110, 100}, [2]float64{12, 10},
				[2]float64{1.1, 1}, [2]float64{13, 10}),
			check{metric: "rate", against: raw, goal: 1},
			met,
		},
		{
			"every ratio is below",
			pairs(floor, [2]float64{9, 10}, [2]float64{90, 100}, [2]float64{8, 10},
				[2]float64{0.9, 1}, [2]float64{7, 10}),
			check{metric: "rate", against: raw, goal: 1},
			notMet,
		},
		{
			"the interval contains the goal",
			pairs(floor, [2]float64{11, 10}, [2]float64{90, 100}, [2]float64{12, 10},
				[2]float64{1.1, 1}, [2]float64{13, 10}),
			check{metric: "rate", against: raw, goal: 1},
			undecided,
		},
		{
			"four rounds decide nothing",
			pairs(floor, [2]float64{11, 10}, [2]float64{110, 100}, [2]float64{12, 10},
				[2]float64{1.1, 1}),
			check{metric: "rate", against: raw, goal: 1},
			undecided,
		},
		{
			"ratios are made within a round: medians of both would say 1",
			pairs(floor, [2]float64{10, 20}, [2]float64{20, 40}, [2]float64{40, 80},
				[2]float64{80, 160}, [2]float64{40, 79}),
			check{metric: "rate", against: raw, goal: 0.6},
			notMet,
		},
		{
			"at most",
			pairs(floor, [2]float64{1, 1}, [2]float64{2, 1}, [2]float64{3, 1}, [2]float64{2, 1},
				[2]float64{2, 1}),
			check{metric: "rate", most: true, goal: 3},
			met,
		},
		{
			"a difference",
			pairs(floor, [2]float64{9, 1}, [2]float64{10, 1}, [2]float64{10, 1}, [2]float64{10, 1},
				[2]float64{10, 1}),
			check{metric: "rate", against: raw, minus: true, most: true, goal: 7},
			notMet,
		},
		{
			"once is enough for what may not happen",
			pairs(floor, [2]float64{1, 1}, [2]float64{1, 1}, [2]float64{9, 1}),
			check{metric: "rate", most: true, worst: true, goal: 8},
			notMet,
		},
	} {
		c := tt.check
		v, ok := book{{Scenario: "S1", N: 1, Rounds: tt.rounds}}.check(l, c, impl.Goredis, 1)
		if !ok || v.Verdict != tt.want {
			t.Errorf("%s: %q (%v), want %q", tt.name, v.Verdict, v.Measured, tt.want)
		}
	}
	thrown := pairs(floor, [2]float64{11, 10}, [2]float64{11, 10}, [2]float64{11, 10},
		[2]float64{11, 10}, [2]float64{11, 10}, [2]float64{1, 10})
	thrown[5].Valid = false
	v, _ := book{{Scenario: "S1", N: 1, Rounds: thrown}}.check(l,
		check{metric: "rate", against: raw, goal: 1}, impl.Goredis, 1)
	if v.Verdict != met || v.Measured.N != 5 {
		t.Errorf("a round that was thrown away counts: %+v", v)
	}
	thrown[4].Valid = false
	v, _ = book{{Scenario: "S1", N: 1, Rounds: thrown}}.check(l,
		check{metric: "rate", against: raw, goal: 1}, impl.Goredis, 1)
	if v.Verdict != undecided {
		t.Errorf("four valid rounds of six decide: %+v", v)
	}
}

func TestBestPeer(t *testing.T) {
	r := &Result{Scenario: "S2", N: 64, Rounds: rounds(map[string]Metrics{
		"bsm-redislock":    {"rate": 900, "jain": 0.3},
		"redsync+goredis":  {"rate": 500, "jain": 0.995},
		"redsync+rueidis":  {"rate": 700, "jain": 0.999},
		"rueidislock":      {"rate": 800, "jain": 1, "faults": 1},
		"holdfast+goredis": {"rate": 999, "jain": 1},
	})}
	if fair, unfair := r.bestPeers(impl.Goredis, "rate"); fair != "redsync+goredis" ||
		unfair != "bsm-redislock" {
		t.Errorf("of go-redis: %q, and %q is not fair", fair, unfair)
	}
	if fair, unfair := r.bestPeers("", "rate"); fair != "redsync+rueidis" ||
		unfair != "bsm-redislock" {
		t.Errorf("of all: %q, and %q is not fair", fair, unfair)
	}
	r.Scenario = "S1"
	if fair, _ := r.bestPeers(impl.Goredis, "rate"); fair != "bsm-redislock" {
		t.Errorf("with a key each, %q", fair)
	}
}

func TestChanges(t *testing.T) {
	for _, tt := range []struct {
		rates [][2]float64
		want  string
	}{
		{[][2]float64{{11, 10}, {12, 10}, {13, 10}, {110, 100}, {14, 10}}, "better"},
		{[][2]float64{{9, 10}, {8, 10}, {7, 10}, {90, 100}, {6, 10}}, "worse"},
		{[][2]float64{{9, 10}, {8, 10}, {7, 10}, {90, 100}, {11, 10}}, "same"},
		{[][2]float64{{9, 10}, {8, 10}, {7, 10}, {90, 100}}, undecided},
	} {
		r := &Result{
			Scenario: "S1", N: 1,
			Rounds: pairs(beforePrefix+"holdfast+goredis", tt.rates...),
		}
		if all := changes([]*Result{r}); len(all) != 1 || all[0].Verdict != tt.want {
			t.Errorf("%v: %+v, want one that is %s", tt.rates, all, tt.want)
		}
	}
}

// TestPage holds the page in docs to what its raw run says.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	report.Verdicts, report.Changes = book(report.Results).judge(), changes(report.Results)
	for file, want := range map[string]string{
		"benchmarks.md":  page(&report),
		"benchmarks.svg": picture(report.Results),
	} {
		if got, err := os.ReadFile("../../docs/" + file); err != nil || string(got) != want {
			t.Errorf("docs/%s is not what the program writes: go run . -from "+
				"../../docs/benchmarks.json -page ../../docs/benchmarks.md (%v)", file, err)
		}
	}
}

// TestCodes holds the page to explain each scenario by the part of its name before the first dash,
// and to begin with what a user gets.
func TestCodes(t *testing.T) {
	for _, s := range scenarios() {
		code, _, _ := strings.Cut(s.name, "-")
		if !strings.Contains(codes, "**"+code+"**") {
			t.Errorf("the page does not explain %s", code)
		}
	}
	text, err := os.ReadFile("../../docs/benchmarks.json")
	if err != nil {
		t.Fatal(err)
	}
	var report Report
	if err := json.Unmarshal(text, &report); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(summary(report.Results), ".\n\n"); n != 3 {
		t.Errorf("%d sentences say what a user gets, not 3: %s", n, summary(report.Results))
	}
	if got := summary(nil); got != "" {
		t.Errorf("a run that measured nothing says %q", got)
	}
}
