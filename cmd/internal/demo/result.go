package demo

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/tracing/contention"
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
	Kill         *kill    `json:"kill,omitzero"`
	Slowest      *slowest `json:"slowest,omitzero"`

	wantKill bool
	failed   error
}

// tokens are the fencing tokens that the ledger saw.
type tokens struct {
	First  uint64 `json:"first"`
	Last   uint64 `json:"last"`
	Rising bool   `json:"rising"`
}

// waits says how long buyers waited for the lock.
type waits struct {
	P50 float64 `json:"p50"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func waitsOf(all []time.Duration) waits {
	if len(all) == 0 {
		return waits{}
	}
	sorted := slices.Sorted(slices.Values(all))
	// rank is the smallest that a share q of them does not exceed.
	rank := func(q float64) float64 { return ms(sorted[int(math.Ceil(q*float64(len(all))))-1]) }
	return waits{rank(0.5), rank(0.99), rank(1)}
}

// A kill is what became of the process that was killed in mid-hold, and of its lock.
type kill struct {
	Process   int     `json:"process"`
	PID       int     `json:"pid"`
	Token     uint64  `json:"token"`         // of the hold it was killed in
	FreeMS    float64 `json:"free_after_ms"` // until somebody else had the lock; 0 if nobody did
	NextToken uint64  `json:"next_token"`    // of that hold

	at time.Time
}

// A slowest is the purchase that waited for the longest, and who had the lock meanwhile.
type slowest struct {
	Who   string  `json:"who"`
	ForMS float64 `json:"for_ms"`
	Held  []held  `json:"held"` // the earliest first
}

// A held is a part of that wait.
type held struct {
	By     string  `json:"by"`
	PID    int     `json:"pid,omitzero"` // of another process
	FromMS float64 `json:"from_ms"`      // since the wait began
	ToMS   float64 `json:"to_ms"`
}

// result puts together what the ledger knows, when nothing moves any more.
func (s Spec) result(st *Store, books account, elapsed time.Duration) *result {
	r := &result{
		Ended: "sold out", Lock: !s.NoLock, Key: s.Key, Processes: s.Processes, Workers: s.Workers,
		Stock: s.Stock, Sold: books.sold, Oversell: books.oversell(s.Stock), ElapsedMS: ms(elapsed),
		Kill: books.kill, Slowest: books.slow, wantKill: s.Kill,
	}
	if st != nil {
		r.Backend, r.TTLMS = st.Name, ms(st.Config.TTL)
		r.Waits, r.Acquisitions = waitsOf(books.waits), len(books.waits)
		r.PerSecond = math.Round(float64(len(books.waits)) / max(elapsed.Seconds(), 1e-6))
		r.Lost, r.Refused = books.lost, books.refused
		r.Tokens = &tokens{books.first, books.highest, !books.doubled}
	}
	if r.Slowest != nil {
		for i, h := range r.Slowest.Held {
			if n := books.pids[h.PID]; n != 0 {
				r.Slowest.Held[i].By = fmt.Sprintf("process %d, pid %d", n, h.PID)
			}
		}
	}
	return r
}

// name is how a buyer of the process is called.
func (s Spec) name(buyer int) string {
	if s.Processes > 1 {
		return fmt.Sprintf("process %d, buyer %d", s.Process, buyer)
	}
	return fmt.Sprintf("buyer %d", buyer)
}

// slowest returns the longest wait of a process, or nil.
func (s Spec) slowest(seen contention.Snapshot) *slowest {
	if len(seen.LongestWaits) == 0 {
		return nil
	}
	wait := seen.LongestWaits[0]
	name := func(trace string) string {
		n, _ := strconv.ParseUint(trace, 16, 63)
		return s.name(int(n))
	}
	slow := &slowest{Who: name(wait.Trace), ForMS: ms(wait.For)}
	earlier := func(a, b contention.Held) int { return a.From.Compare(b.From) }
	slices.SortStableFunc(wait.Held, earlier)
	for _, h := range wait.Held {
		by := h.By.String()
		if h.By.Here {
			by = name(h.By.Trace)
		}
		slow.Held = append(slow.Held,
			held{by, h.By.PID, ms(h.From.Sub(wait.Since)), ms(h.To.Sub(wait.Since))})
	}
	return slow
}

// draw draws it in so many columns.
func (s *slowest) draw(width int) string {
	bars := make([]bar, len(s.Held))
	for i, h := range s.Held {
		bars[i] = bar{h.By, span(h.FromMS), span(h.ToMS)}
	}
	return drawBars(s.Who+" waits", span(s.ForMS), bars, width)
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
		errs = append(errs, fmt.Errorf(
			"after process %d was killed, nobody had the lock any more", k.Process))
	}
	return errors.Join(errs...)
}

// title says what kind of sale it is.
func (r *result) title() string {
	title := count(r.Processes*r.Workers, "buyer", "buyers") + " in " +
		count(r.Processes, "process", "processes")
	if !r.Lock {
		return title + ", no lock."
	}
	return fmt.Sprintf("%s, lock %q on %s, TTL %v.", title, r.Key, r.Backend, brief(r.TTLMS))
}

// story says the rest, in sentences.
func (r *result) story() string {
	var said []string
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	took := brief(r.ElapsedMS)
	if r.Oversell > 0 {
		say("%s too many, in %v: "+
			"buyers who look at the same moment see the same number, and sell the same item.",
			count(r.Oversell, "item", "items"), took)
	} else {
		say("Nothing was sold twice, in %v.", took)
	}
	if r.Ended != "sold out" {
		say("It ended early: %s.", r.Ended)
	}
	if k := r.Kill; k != nil {
		say("Process %d (pid %d) was killed while it held the lock.", k.Process, k.PID)
		if k.NextToken != 0 {
			say("The lock was free again after %v, with a TTL of %v.",
				brief(k.FreeMS), brief(r.TTLMS))
		}
	}
	if r.Lock {
		say("A buyer waited %v for a turn, %v at most.", brief(r.Waits.P50), brief(r.Waits.Max))
		if r.Lost+r.Refused > 0 {
			say("%s lost, and late holders were refused %s by token.",
				count(r.Lost, "hold was", "holds were"), count(r.Refused, "write", "writes"))
		}
	}
	return strings.Join(said, " ")
}

// count is n of something.
func count(n int, one, many string) string {
	if n != 1 {
		one = many
	}
	return fmt.Sprintf("%d %s", n, one)
}

// ms is d in milliseconds, to the microsecond.
func ms(d time.Duration) float64 {
	return float64(d.Round(time.Microsecond)) / float64(time.Millisecond)
}

// span is the time of so many milliseconds.
func span(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }

// brief is so many milliseconds for people.
func brief(ms float64) time.Duration { return blame.Brief(span(ms)) }
