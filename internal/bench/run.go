package main

import (
	"fmt"
	"io"
	"regexp"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
	"github.com/holdfast-go/holdfast/internal/bench/worker"
)

// A bench measures.
type bench struct {
	settings
	fleet  *fleet
	self   string // this program
	before string // the program of another commit; "" without
	log    io.Writer
}

// noisy is the share of the two CPUs that others, or the machine's host, may take of a round.
const noisy = 0.05

// valid is how many rounds a verdict needs.
const valid = 5

// A Result is a scenario with n.
type Result struct {
	Scenario string  `json:"scenario"`
	N        int     `json:"n"`
	Title    string  `json:"title"`
	Counts   bool    `json:"counts,omitempty"` // one round is enough
	Relay    bool    `json:"relay,omitempty"`  // what counts is p50
	Rounds   []Round `json:"rounds"`
}

// A Round is one cell of every participant, one after the other. Ratios are made within it.
type Round struct {
	Others float64            `json:"others"` // what share of the two CPUs went to others
	Valid  bool               `json:"valid"`
	Cells  map[string]Metrics `json:"cells"`
	Failed map[string]string  `json:"failed,omitempty"`
}

// round measures all participants, in an order that moves on from round to round.
func (b *bench) round(s scenario, n, number int, all []participant) Round {
	r := Round{Cells: map[string]Metrics{}, Failed: map[string]string{}}
	began, busy, ours := time.Now(), pin.Busy(), pin.Ours()+b.fleet.cpu()
	for i := range all {
		p := all[(i+number)%len(all)]
		m, err := b.cell(s, n, p)
		if err != nil {
			r.Failed[p.name] = err.Error()
			fmt.Fprintf(b.log, "%s, n=%d, %s: %v\n", s.name, n, p.name, err)
			continue
		}
		r.Cells[p.name] = m
	}
	others := (pin.Busy() - busy) - (pin.Ours() + b.fleet.cpu() - ours)
	r.Others = max(0, others.Seconds()/(2*time.Since(began).Seconds()))
	r.Valid = r.Others <= noisy || s.counts
	return r
}

// run measures a scenario with n, until it has as many valid rounds as asked for, or twice as many
// in all. With -quick or -length none is made again.
func (b *bench) run(s scenario, n int) *Result {
	result := &Result{
		Scenario: s.name, N: n, Title: s.title, Counts: s.counts,
		Relay: s.mode == worker.Relay,
	}
	all := b.participants(s)
	if len(all) == 0 {
		return nil
	}
	if b.length > 0 {
		s.length = b.length
	}
	want, good := b.rounds, 0
	if s.counts {
		want = 1
	}
	most := 2 * want
	if b.quick || b.length > 0 {
		most = want
	}
	for number := 0; good < want && number < most; number++ {
		r := b.round(s, n, number, all)
		result.Rounds = append(result.Rounds, r)
		verdict := "thrown away"
		if r.Valid {
			good++
			verdict = "valid"
		}
		fmt.Fprintf(b.log, "%s n=%d: round %d %s, others took %.1f %%\n", s.name, n, number+1,
			verdict, 100*r.Others)
	}
	return result
}

// participants are who takes part in a scenario, each of ours next to itself before.
func (b *bench) participants(s scenario) (all []participant) {
	wanted := regexp.MustCompile(b.only)
	for _, name := range s.who {
		im, ok := impl.Named(name)
		if !ok {
			panic("no implementation " + name)
		}
		if im.Role != impl.Floor && !wanted.MatchString(name) {
			continue
		}
		all = append(all, participant{name, im, b.self})
		if b.before != "" && im.Role == impl.Ours {
			all = append(all, participant{beforePrefix + name, im, b.before})
		}
	}
	return all
}

// good are the rounds that count: the valid ones, or all if there is none.
func (r *Result) good() []Round {
	ok := slices.DeleteFunc(slices.Clone(r.Rounds), func(x Round) bool { return !x.Valid })
	if len(ok) == 0 {
		return r.Rounds
	}
	return ok
}

// valid is how many rounds are valid.
func (r *Result) valid() (n int) {
	for _, x := range r.Rounds {
		if x.Valid {
			n++
		}
	}
	return n
}

// values are what f says of each round that counts, if it says something.
func (r *Result) values(f func(Round) (float64, bool)) (all []float64) {
	if r == nil {
		return nil
	}
	for _, round := range r.good() {
		if x, ok := f(round); ok {
			all = append(all, x)
		}
	}
	return all
}

// spread is that of a participant's metric.
func (r *Result) spread(who, metric string) stats.Spread {
	return stats.SpreadOf(r.values(func(x Round) (float64, bool) {
		v, ok := x.Cells[who][metric]
		return v, ok
	}))
}

// names are the participants that were measured.
func (r *Result) names() (all []string) {
	for _, round := range r.Rounds {
		for name := range round.Cells {
			if !slices.Contains(all, name) {
				all = append(all, name)
			}
		}
	}
	order := func(name string) int {
		return slices.IndexFunc(impl.All(), func(im impl.Impl) bool {
			return im.Name == current(name)
		})
	}
	slices.SortStableFunc(all, func(a, b string) int {
		if d := order(a) - order(b); d != 0 {
			return d
		}
		return len(a) - len(b)
	})
	return all
}
