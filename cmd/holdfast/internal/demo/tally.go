package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// A tally counts what the buyers of all processes tell, while they work. What was sold is counted
// in the ledger.
type tally struct {
	mu    sync.Mutex // guards what follows
	since time.Time  // when the buyers began
	waits []time.Duration
	sold  int
	lost  int
	kill  *kill

	unsent error // why not all traces of other processes were sent
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

func newTally() *tally { return &tally{since: time.Now()} }

// begin sets the clock when all processes are ready.
func (t *tally) begin() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.since = time.Now()
}

// add counts one turn.
func (t *tally) add(e event) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e.Token != 0 {
		t.waits = append(t.waits, e.Wait)
	}
	if e.Sold {
		t.sold++
	}
	if e.Lost {
		t.lost++
	}
	if k := t.kill; k != nil && k.NextToken == 0 && e.Token > k.Token {
		k.NextToken = e.Token
		k.FreeMS = ms(time.Since(k.at) - e.Held)
	}
}

// notSent notes the first failure to send traces that another process tells of.
func (t *tally) notSent(why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.unsent == nil {
		t.unsent = errors.New(why)
	}
}

// killed notes that a process is about to be killed.
func (t *tally) killed(process, pid int, token uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kill = &kill{Process: process, PID: pid, Token: token, at: time.Now()}
}

func (t *tally) wasKilled(process int) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.kill != nil && t.kill.Process == process
}

// progress writes a line to w each second until ctx ends.
func (t *tally) progress(ctx context.Context, w io.Writer, stock int) {
	for pause(ctx, time.Second) == nil {
		fmt.Fprintln(w, t.line(stock))
	}
}

func (t *tally) line(stock int) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	rate := per(len(t.waits), time.Since(t.since))
	line := fmt.Sprintf("sold %d of %d, %.0f acquisitions/s, %d lost", t.sold, stock, rate, t.lost)
	if t.kill != nil && t.kill.NextToken == 0 {
		line += ", waiting for the lease of the killed process to end"
	}
	return line
}
