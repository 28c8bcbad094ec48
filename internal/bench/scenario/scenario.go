// Package scenario has what is measured of each implementation. A scenario makes one cell at a time, from one
// implementation and one case, on a server and a client of its own; the [Runner] interleaves the cells of a round.
package scenario

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/redisd"
)

// Metrics are what one cell has measured, by the names of columns.
type Metrics map[string]float64

// A Column is a metric in a table.
type Column struct {
	Metric, Title string
	Format        Format
}

// Format is how a metric is written.
type Format int

// The formats.
const (
	Number Format = iota
	Ratio
	Micros // in µs, written in the unit that fits
	Bytes
	Percent
)

// A Scenario is a question about locks.
type Scenario struct {
	Name, Title, Note string

	Limit   string // the participant whose "rate", or "p50" if Inverse, the others are compared with
	Inverse bool   // less is better
	Columns []Column
	Cases   func(quick bool) []int
	Length  func(quick bool) time.Duration // of a cell
	Rounds  int                            // at most; 0 for as many as asked for

	// Run makes a cell of an implementation; Extras make cells that are no locks: limits, and layouts.
	Run    func(ctx context.Context, env *Env, im impl.Impl, n int) (Metrics, error)
	Impls  func() []impl.Impl // default impl.All
	Extras []Extra
}

// An Extra is a participant that is not a lock.
type Extra struct {
	Name, Settings string
	Run            func(ctx context.Context, env *Env, n int) (Metrics, error)
}

// All are the scenarios in their order.
func All() []Scenario {
	return []Scenario{uncontended, contended, processes, handOff, quorumHealthy, quorumKilled, quorumHung, waiters, layout, etcdPairs, etcdHandOff}
}

// Env is what a cell has.
type Env struct {
	Server *redisd.Server
	Length time.Duration
	Quick  bool
	Worker []string // the command line of a process that calls [Work]
}

// warm is how long a cell runs before it is measured: connections, scripts and pools are made then.
func (e *Env) warm() time.Duration { return max(e.Length/5, 20*time.Millisecond) }

// drain is how long a client is waited for when a cell is over.
const drain = 3 * time.Second

// open makes a client, and gives up on one that does not come.
func open(ctx context.Context, im impl.Impl, addr string) (impl.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	c, err := im.Open(ctx, addr)
	if err != nil {
		return nil, fmt.Errorf("%s: open: %w", im.Name, err)
	}
	return c, nil
}

// closing closes a client, but does not wait for one that hangs. That is told, not fatal: it is the library's defect.
func closing(im impl.Impl, c impl.Client) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = c.Close()
	}()
	select {
	case <-done:
	case <-time.After(drain):
		fmt.Fprintf(os.Stderr, "%s: Close did not return in %v\n", im.Name, drain)
	}
}

// perOp adds what the server and the client have spent per operation.
func (m Metrics) perOp(im impl.Impl, c redisd.Counters, client time.Duration, ops float64) {
	if ops == 0 {
		return
	}
	m["sent"] = c.Total(im.Sent...).Calls / ops
	m["executed"] = c.Total().Calls / ops
	m["scpu"] = c.CPU.Seconds() * 1e6 / ops
	m["ccpu"] = client.Seconds() * 1e6 / ops
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
