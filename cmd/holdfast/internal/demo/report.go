package demo

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// A result is what came of a sale. Its JSON form is for programs.
type result struct {
	Ended        string   `json:"ended"` // sold out, time is up, interrupted, failed
	Lock         bool     `json:"lock"`
	Backend      string   `json:"backend,omitzero"` // without user information and query
	Key          string   `json:"key"`
	TTLMS        float64  `json:"ttl_ms,omitzero"`
	Processes    int      `json:"processes"`
	Workers      int      `json:"workers"` // in each process
	Stock        int      `json:"stock"`
	Sold         int      `json:"sold"`
	Oversell     int      `json:"oversell"`
	ElapsedMS    float64  `json:"elapsed_ms"`
	Acquisitions int      `json:"acquisitions"`
	PerSecond    float64  `json:"acquisitions_per_second"`
	Waits        waits    `json:"wait_ms"`
	Lost         int      `json:"lost_holds"`
	Refused      int      `json:"refused_writes"` // by the ledger, because of an old token
	Tokens       *tokens  `json:"tokens,omitzero"`
	Fairness     fairness `json:"fairness"`
	Shares       []share  `json:"shares"`
	Kill         *kill    `json:"kill,omitzero"`

	wantKill bool
	failed   error
}

// tokens are the fencing tokens that the ledger saw.
type tokens struct {
	First  uint64 `json:"first"`
	Last   uint64 `json:"last"`
	Rising bool   `json:"rising"`
}

// err is what was wrong with the sale, or nil. Selling too much is wrong only if there was a lock.
func (r *result) err() error {
	var errs []error
	if r.Lock && r.Oversell > 0 {
		errs = append(errs, fmt.Errorf("%d sold too many, although under a lock", r.Oversell))
	}
	if r.Tokens != nil && !r.Tokens.Rising {
		errs = append(errs, errors.New("two holds had the same fencing token"))
	}
	if r.failed != nil {
		errs = append(errs, r.failed)
	}
	if r.Ended == "interrupted" {
		return errors.Join(append(errs, ErrInterrupted)...)
	}
	switch k := r.Kill; {
	case r.wantKill && k == nil && r.failed == nil:
		errs = append(errs, errors.New(
			"nobody was killed: the process that was to be never had the lock; give more --stock"))
	case k != nil && k.NextToken == 0:
		errs = append(errs, fmt.Errorf("after process %d was killed, nobody had the lock any more", k.Process))
	}
	return errors.Join(errs...)
}

// print writes r for people or, as one JSON object, for programs.
func (r *result) print(w io.Writer, asJSON bool) error {
	if asJSON {
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	var b strings.Builder
	r.head(&b)
	r.figures(&b)
	r.shares(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *result) head(w io.Writer) {
	buyers := r.Workers * r.Processes
	fmt.Fprintf(w, "flash sale: %d items, %d %s in %d %s, ",
		r.Stock, buyers, choose(buyers == 1, "buyer", "buyers"),
		r.Processes, choose(r.Processes == 1, "process", "processes"))
	if !r.Lock {
		fmt.Fprint(w, "no lock\n\n")
		return
	}
	fmt.Fprintf(w, "lock %q on %s, TTL %v\n\n", r.Key, r.Backend, duration(r.TTLMS))
}

func (r *result) figures(w io.Writer) {
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	defer func() { _ = tw.Flush() }() // into a builder
	row := func(name, format string, args ...any) { fmt.Fprintf(tw, name+"\t"+format+"\n", args...) }
	row("sold", "%d of %d in %v: %s", r.Sold, r.Stock, duration(r.ElapsedMS), r.Ended)
	row("oversell", "%d", r.Oversell)
	if !r.Lock {
		return
	}
	row("waits", "p50 %v, p99 %v, max %v", duration(r.Waits.P50), duration(r.Waits.P99), duration(r.Waits.Max))
	row("acquisitions", "%d, %.0f/s", r.Acquisitions, r.PerSecond)
	row("tokens", "%d to %d, rising: %s", r.Tokens.First, r.Tokens.Last, choose(r.Tokens.Rising, "yes", "no"))
	row("lost holds", "%d, writes refused by token: %d", r.Lost, r.Refused)
	if k := r.Kill; k != nil {
		row("killed", "process %d (pid %d) while it held the lock with token %d", k.Process, k.PID, k.Token)
		if k.NextToken != 0 {
			row("", "free again after %v (TTL %v), for token %d", duration(k.FreeMS), duration(r.TTLMS), k.NextToken)
		}
	}
}

const (
	barWidth  = 30
	maxBuyers = 32 // that get a line each; of more, the extremes tell
)

func (r *result) shares(w io.Writer) {
	f, most := r.Fairness, 1
	fmt.Fprintf(w, "\nshares of the buyers: min %d, max %d, min/max %.2f\n", f.Min, f.Max, f.Ratio)
	if len(r.Shares) > maxBuyers {
		return
	}
	for _, s := range r.Shares {
		most = max(most, s.Sold)
	}
	for _, s := range r.Shares {
		bar := strings.Repeat("█", (s.Sold*barWidth+most/2)/most)
		if s.Killed {
			bar += " (killed)"
		}
		fmt.Fprintf(w, "  process %d, buyer %2d %5d %s\n", s.Process, s.Worker, s.Sold, bar)
	}
}

// duration is ms as people read it: three digits are enough.
func duration(ms float64) time.Duration {
	d := time.Duration(ms * float64(time.Millisecond))
	for unit := time.Microsecond; unit <= time.Second; unit *= 10 {
		if d < 1000*unit {
			return d.Round(unit)
		}
	}
	return d.Round(time.Second)
}

func choose(is bool, yes, no string) string {
	if is {
		return yes
	}
	return no
}
