package scenario

import (
	"context"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// A Runner runs scenarios: all cells of a round before the next round begins, in an order that moves on from round to
// round, so that what else happens on the machine hits everybody alike.
type Runner struct {
	Env    Env
	Rounds int
	Quick  bool
	Length time.Duration // instead of the scenarios' own; for the smoke test
	// Patience is how often a cell is made again because others were at work.
	Patience int

	Wanted func(participant string) bool
	Log    io.Writer
}

// A Row is what the rounds have measured of one participant in one case.
type Row struct {
	Participant string               `json:"participant"`
	Role        impl.Role            `json:"role"`
	Case        int                  `json:"n"`
	Samples     map[string][]float64 `json:"samples"` // by metric, one per round
	Error       string               `json:"error,omitempty"`
}

// Spread is a metric over the rounds.
func (r *Row) Spread(metric string) stats.Spread { return stats.SpreadOf(r.Samples[metric]) }

// Keeps says that no two holders were seen at once, and no token that did not rise.
func (r *Row) Keeps() bool { return r.Spread("faults").Max == 0 && r.Error == "" }

// A Result is a scenario with its rows.
type Result struct {
	Scenario Scenario `json:"-"`
	Name     string   `json:"scenario"`
	Title    string   `json:"title"`
	Rounds   int      `json:"rounds"`
	Seconds  float64  `json:"seconds_per_cell"`
	Rows     []*Row   `json:"rows"`
}

// Row returns a participant's row of a case, or nil.
func (r *Result) Row(participant string, n int) *Row {
	i := slices.IndexFunc(r.Rows, func(row *Row) bool { return row.Participant == participant && row.Case == n })
	if i < 0 {
		return nil
	}
	return r.Rows[i]
}

// A participant is a cell's maker.
type participant struct {
	name string
	role impl.Role
	run  func(ctx context.Context, env *Env, n int) (Metrics, error)
}

func (r *Runner) participants(s Scenario) (all []participant) {
	for _, e := range s.Extras {
		if r.Wanted(e.Name) || e.Name == s.Limit {
			all = append(all, participant{e.Name, impl.Limit, e.Run})
		}
	}
	if s.Run == nil {
		return all
	}
	impls := impl.All
	if s.Impls != nil {
		impls = s.Impls
	}
	for _, im := range impls() {
		if !im.In(s.Name) || r.Quick && im.Extra || !r.Wanted(im.Name) && im.Name != s.Limit {
			continue
		}
		all = append(all, participant{im.Name, im.Role, func(ctx context.Context, env *Env, n int) (Metrics, error) {
			return s.Run(ctx, env, im, n)
		}})
	}
	return all
}

// Run runs a scenario.
func (r *Runner) Run(ctx context.Context, s Scenario) *Result {
	env := r.Env
	if env.Length = r.Length; env.Length == 0 {
		env.Length = s.Length(r.Quick)
	}
	env.Quick = r.Quick
	rounds := r.Rounds
	if s.Rounds > 0 {
		rounds = min(rounds, s.Rounds)
	}
	result := &Result{Scenario: s, Name: s.Name, Title: s.Title, Rounds: rounds, Seconds: env.Length.Seconds()}
	all := r.participants(s)
	for _, n := range s.Cases(r.Quick) {
		for _, p := range all {
			result.Rows = append(result.Rows, &Row{Participant: p.name, Role: p.role, Case: n, Samples: map[string][]float64{}})
		}
	}
	for round := range rounds {
		for _, n := range s.Cases(r.Quick) {
			measured := map[string]Metrics{}
			for i := range all {
				p := all[(i+round)%len(all)]
				measured[p.name] = r.cell(ctx, &env, s, p, n, result.Row(p.name, n))
			}
			result.add(s, n, measured)
		}
		fmt.Fprintf(r.Log, "%s: round %d of %d done\n", s.Name, round+1, rounds)
	}
	return result
}

// serverCPU is the seconds that a cell's own servers have used, which others have not; no column.
const serverCPU = "servers"

// noisy is the share of both CPUs that others may take of a cell before it is measured again.
const noisy = 0.1

// cell makes a cell. If others were at work meanwhile it is made again, as long as there is patience, and the quietest counts.
func (r *Runner) cell(ctx context.Context, env *Env, s Scenario, p participant, n int, row *Row) (best Metrics) {
	for try := 0; try <= r.Patience; try++ {
		m, err := r.once(ctx, env, p, n)
		if err != nil {
			row.Error = err.Error()
			fmt.Fprintf(r.Log, "%s: %s, n=%d: %v\n", s.Name, p.name, n, err)
			return nil
		}
		if best == nil || m["others"] < best["others"] {
			best = m
		}
		if best["others"] <= noisy {
			break
		}
	}
	return best
}

// once makes a cell, and measures what share of the two CPUs others took meanwhile.
func (r *Runner) once(ctx context.Context, env *Env, p participant, n int) (Metrics, error) {
	server, err := env.Server.Counters()
	if err != nil {
		return nil, err
	}
	began, busy, ours := time.Now(), pin.Busy(), pin.Ours()
	m, err := p.run(ctx, env, n)
	if err != nil {
		return nil, err
	}
	wall, used := time.Since(began), pin.Ours()-ours
	busy = pin.Busy() - busy
	after, err := env.Server.Counters()
	if err != nil {
		return nil, err
	}
	m["others"] = max(0, ((busy-used-after.Since(server).CPU).Seconds()-m[serverCPU])/(2*wall.Seconds()))
	delete(m, serverCPU)
	return m, env.Server.Flush()
}

// add takes the cells of a round and a case, and compares them with that round's limit.
func (r *Result) add(s Scenario, n int, measured map[string]Metrics) {
	by := "rate"
	if s.Inverse {
		by = "p50"
	}
	limit := measured[s.Limit][by]
	for name, m := range measured {
		row := r.Row(name, n)
		if limit > 0 && m != nil {
			m["ratio"] = m[by] / limit
		}
		for metric, value := range m {
			row.Samples[metric] = append(row.Samples[metric], value)
		}
	}
}
