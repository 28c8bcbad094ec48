package history

import (
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// A line is one JSON line of a recorder's file. Times are nanoseconds of [Now].
type line struct {
	Op      string        `json:"op"` // begin, renew, end or killed
	ID      string        `json:"id,omitempty"`
	Process string        `json:"process"`
	Worker  string        `json:"worker,omitempty"`
	Key     string        `json:"key,omitempty"`
	Token   uint64        `json:"token,omitempty"`
	Weight  int           `json:"weight,omitempty"`
	Asked   time.Duration `json:"asked,omitempty"`
	At      time.Duration `json:"at"`
	Until   time.Duration `json:"until,omitempty"`
}

// A Recorder appends to one file. Its methods may be called concurrently, and several recorders,
// also of several processes, may share a file; one file each is easier to read. Nothing is
// buffered.
type Recorder struct {
	file    *os.File
	process string
	// tells this recorder's beliefs from those of an earlier process with the same name
	id    string
	begun atomic.Uint64
}

// NewRecorder opens the file at path for appending, and creates it if need be. process names this
// process in messages and for [Recorder.Killed].
func NewRecorder(path, process string) (*Recorder, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	return &Recorder{file: f, process: process, id: rand.Text()}, nil
}

// Close closes the file. Beliefs that are not ended stay open.
func (r *Recorder) Close() error { return r.file.Close() }

// A Belief is a hold that was begun. Its methods may be called concurrently.
type Belief struct {
	recorder *Recorder
	id       string
}

// Begin records that e.Worker believes to hold e.Key from now, or from e.Start if that is set,
// until the deadline that its guard gives now. e.Process and e.End are not looked at.
func (r *Recorder) Begin(e Event, until time.Duration) (*Belief, error) {
	if until <= 0 {
		return nil, errors.New("history: a belief needs a deadline, or it would never end if its " +
			"process is killed")
	}
	b := &Belief{r, r.id + "." + strconv.FormatUint(r.begun.Add(1), 10)}
	at := e.Start
	if at == 0 {
		at = Now()
	}
	return b, r.write(line{
		Op: "begin", ID: b.id, Worker: e.Worker, Key: e.Key, Token: e.Token, Weight: e.Weight,
		Asked: e.Asked, At: at, Until: until,
	})
}

// Renew records a later deadline. It is needed only where a process may be killed while it holds:
// without it the belief is taken to end at the earlier one, and less is checked.
func (b *Belief) Renew(until time.Duration) error {
	return b.recorder.write(line{Op: "renew", ID: b.id, At: Now(), Until: until})
}

// End records that the belief ends now, or at the deadline until if that is earlier. Call it before
// Unlock. until is the guard's last deadline; with 0 the last one recorded counts.
func (b *Belief) End(until time.Duration) error {
	return b.recorder.write(line{Op: "end", ID: b.id, At: Now(), Until: until})
}

// Killed records that the named process is about to be killed. Call it before the signal is sent,
// in the process that sends it. Beliefs of that process that have no end then end now at the
// latest.
func (r *Recorder) Killed(process string) error {
	return r.writeAs(process, line{Op: "killed", At: Now()})
}

func (r *Recorder) write(l line) error { return r.writeAs(r.process, l) }

// writeAs appends a line in one write, which O_APPEND makes atomic among all who write.
func (r *Recorder) writeAs(process string, l line) error {
	l.Process = process
	b, err := json.Marshal(l)
	if err != nil {
		return fmt.Errorf("history: %w", err)
	}
	if _, err := r.file.Write(append(b, '\n')); err != nil {
		return fmt.Errorf("history: %w", err)
	}
	return nil
}
