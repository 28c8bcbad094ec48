package history

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"time"
)

// Read joins the files of any number of recorders into events, in order of their start. A last line
// that was cut short is ignored: its writer was killed before it could act on it. Anything else
// that is not understood is an error.
func Read(paths ...string) ([]Event, error) {
	j := joiner{open: map[string]*open{}, killed: map[string][]time.Duration{}}
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		for n := 1; ; n++ {
			text, rest, whole := bytes.Cut(data, []byte("\n"))
			if !whole {
				break
			}
			if err := j.line(text); err != nil {
				return nil, fmt.Errorf("history: %s:%d: %w", path, n, err)
			}
			data = rest
		}
	}
	return j.events()
}

// open is a belief while its lines are read, which come in any order if files overlap.
type open struct {
	begin line
	begun bool
	ended time.Duration // when End was called; 0 if it was not
	until time.Duration // the latest deadline recorded
}

type joiner struct {
	open   map[string]*open
	killed map[string][]time.Duration // of each process, in any order
}

func (j *joiner) line(text []byte) error {
	var l line
	if err := json.Unmarshal(text, &l); err != nil {
		return err
	}
	if l.Op == "killed" {
		j.killed[l.Process] = append(j.killed[l.Process], l.At)
		return nil
	}
	o := j.open[l.ID]
	if o == nil {
		o = &open{}
		j.open[l.ID] = o
	}
	o.until = max(o.until, l.Until)
	switch {
	case l.Op == "begin" && !o.begun:
		o.begin, o.begun = l, true
	case l.Op == "end" && o.ended == 0:
		o.ended = l.At
	case l.Op == "renew":
	default:
		return fmt.Errorf("belief %s has a second or unknown %q", l.ID, l.Op)
	}
	return nil
}

func (j *joiner) events() ([]Event, error) {
	events := make([]Event, 0, len(j.open))
	for id, o := range j.open {
		if !o.begun {
			return nil, fmt.Errorf("history: belief %s has no beginning: is a file missing?", id)
		}
		b := o.begin
		events = append(events, Event{
			Process: b.Process, Worker: b.Worker, Key: b.Key, Token: b.Token, Weight: b.Weight,
			Asked: b.Asked,
			Start: b.At, End: j.end(o),
		})
	}
	slices.SortFunc(events, byStart)
	return events, nil
}

// end is when the belief was over: at its deadline unless something ended it earlier.
func (j *joiner) end(o *open) time.Duration {
	if o.ended != 0 {
		return min(o.ended, o.until)
	}
	end := o.until
	for _, at := range j.killed[o.begin.Process] {
		if at >= o.begin.At { // an earlier kill was of an earlier process of that name
			end = min(end, at)
		}
	}
	return end
}
