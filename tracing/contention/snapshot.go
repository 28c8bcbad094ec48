package contention

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/blame"
	"github.com/holdfast-go/holdfast/locker"
)

// A Snapshot is what a process holds and waits for at one moment, the oldest first. It is what the
// page shows.
type Snapshot struct {
	At    time.Time `json:"at"` // when
	Holds []Lock    `json:"holds"`
	Waits []Lock    `json:"waits"`

	// The longest that ended in the last minute, the longest first.
	LongestHolds []Lock `json:"longest_holds"`
	LongestWaits []Lock `json:"longest_waits"`

	Deadlocks []Deadlock `json:"deadlocks"` // the last 20 that a wait here was in, the latest first
}

// A Deadlock is waits that were found to wait for each other: each for what the next one holds, and
// the last for what the first holds.
type Deadlock struct {
	At    time.Time        `json:"at"` // when it was found, last
	Waits []locker.Waiting `json:"waits"`
}

// A Lock is one that this process holds or waits for, or did.
type Lock struct {
	Key   string        `json:"key"`
	Mode  string        `json:"mode"`
	Since time.Time     `json:"since"`
	For   time.Duration `json:"for"`            // up to now, or to its end; in nanoseconds
	Where string        `json:"where"`          // who called Lock: file and line
	Func  string        `json:"func"`           // and the function, with its package
	Trace string        `json:"trace,omitzero"` // its id
	Note  string        `json:"note,omitzero"`  // why, by locker.Note

	// Of a hold that lasts.
	Token   uint64 `json:"token,omitzero"`
	Waiters int    `json:"waiters,omitzero"` // in this process, now

	// Of a wait. One that is over has only the Blocker, which was in its way for the longest, and
	// Held.
	Attempts int `json:"attempts,omitzero"` // made for it, by itself and now by its cohort
	// in the store's queue, of its own claim or its cohort's; 1 is next
	Position int `json:"position,omitzero"`
	// how many of this process have waited for longer
	Ahead   int      `json:"ahead,omitzero"`
	Blocker *Blocker `json:"blocked_by,omitzero"` // nil if not known
	Held    []Held   `json:"held,omitzero"`       // meanwhile, as far as is known; 16 at most
}

// A Held is the part of a wait in which somebody is known to have held the lock.
type Held struct {
	By   *Blocker  `json:"by"` // never nil
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
}

// A Blocker is who is in the way of a wait: a hold of this process, or whom the store has named.
type Blocker struct {
	Here    bool      `json:"here"`             // this process
	Where   string    `json:"where,omitzero"`   // if so: file and line
	Func    string    `json:"func,omitzero"`    // and the function
	Service string    `json:"service,omitzero"` // of another process, as in backend.Meta
	Host    string    `json:"host,omitzero"`
	PID     int       `json:"pid,omitzero"`
	Token   uint64    `json:"token,omitzero"` // if known
	Since   time.Time `json:"since,omitzero"` // when it is known to hold from, by the clock here
	Trace   string    `json:"trace,omitzero"` // if it is traced
	Note    string    `json:"note,omitzero"`  // why, by locker.Note
}

// String says who is in the way, for people.
func (b *Blocker) String() string {
	switch {
	case b == nil:
		return "not known"
	case b.Here:
		return "this process, in " + b.Func
	}
	return fmt.Sprintf("%s on %s, pid %d", b.Service, b.Host, b.PID)
}

// Snapshot returns what is held and waited for now.
func (t *Tracker) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Snapshot{At: time.Now(), Holds: []Lock{}, Waits: []Lock{}}
	t.longestWaits, t.longestHolds = lately(t.longestWaits, s.At), lately(t.longestHolds, s.At)
	s.LongestWaits, s.LongestHolds = slices.Clone(t.longestWaits), slices.Clone(t.longestHolds)
	s.Deadlocks = slices.Clone(t.deadlocks)
	for i, w := range s.LongestWaits {
		s.LongestWaits[i].Held = slices.Clone(w.Held)
	}
	t.blame.Each(func(k *blame.Key) {
		cohort, asks := k.Asks.(*lock)
		if !asks {
			cohort = &lock{}
		}
		for ahead, w := range k.Waits {
			l := w.Of.(*lock) //nolint:errcheck,forcetypeassert // nothing else waits
			one := l.shown(w.Since, s.At)
			one.Ahead, one.Attempts = ahead, l.attempts+cohort.attempts
			one.Position, one.Blocker = cmp.Or(cohort.position, l.position), blockerOf(k.Holder())
			s.Waits = append(s.Waits, one)
		}
		for _, h := range k.Holds {
			if l, here := h.Here.(*lock); here && !h.Over() {
				one := l.shown(h.From, s.At)
				one.Token, one.Waiters = h.Token, len(k.Waits)
				s.Holds = append(s.Holds, one)
			}
		}
	})
	for _, all := range [][]Lock{s.Waits, s.Holds} {
		slices.SortFunc(all, func(a, b Lock) int {
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key),
				cmp.Compare(a.Ahead, b.Ahead))
		})
	}
	return s
}

// shown is l as it waits or holds since then.
func (l *lock) shown(since, now time.Time) Lock {
	fn, where := place(l.stack[:])
	return Lock{
		Key: l.Key, Mode: l.Mode.String(), Since: since, For: now.Sub(since),
		Where: where, Func: fn, Trace: traceID(l.trace), Note: l.Note,
	}
}

// blockerOf describes, for people, a hold that is in the way of a wait.
func blockerOf(h *blame.Hold) *Blocker {
	if h == nil {
		return nil
	}
	b := &Blocker{
		Token: h.Token, Since: h.From, Trace: traceID(h.Meta.Traceparent),
		Note: h.Meta.Note,
	}
	if l, ok := h.Here.(*lock); ok {
		b.Here, b.Trace = true, traceID(l.trace)
		b.Func, b.Where = place(l.stack[:])
	} else {
		b.Service, b.Host, b.PID = h.Meta.Service, h.Meta.Host, h.Meta.PID
	}
	return b
}

// traceID is that of a traceparent, or "".
func traceID(traceparent string) string {
	if len(traceparent) != 55 {
		return ""
	}
	return traceparent[3:35]
}

// longest is how many of the last minute are kept.
const longest = 20

// remember adds a wait or a hold that is over to the longest of the last minute, if it is one of
// them. by is who was in the way of a wait, the longest first.
func remember(all []Lock, l *lock, since, end time.Time, by []blame.Interval) []Lock {
	all = lately(all, end)
	i, _ := slices.BinarySearchFunc(all, end.Sub(since), func(a Lock, d time.Duration) int {
		return cmp.Compare(d, a.For)
	})
	if i == longest {
		return all
	}
	one := l.shown(since, end)
	for j := range by {
		of := &by[j]
		one.Held = append(one.Held, Held{blockerOf(&of.Who), of.From, of.To})
	}
	if len(by) > 0 {
		one.Blocker = one.Held[0].By
	}
	return slices.Insert(all, i, one)[:min(len(all)+1, longest)]
}

// lately leaves out what ended more than a minute ago.
func lately(all []Lock, now time.Time) []Lock {
	return slices.DeleteFunc(all, func(l Lock) bool {
		return now.Sub(l.Since.Add(l.For)) > time.Minute
	})
}

// place is the first frame that is not the lock's: its function, with the last part of its package,
// and the line in the source.
func place(stack []uintptr) (fn, where string) {
	if all := frames(stack); len(all) > 0 {
		return path.Base(all[0].Function), fmt.Sprintf("%s:%d", all[0].File, all[0].Line)
	}
	return "unknown", "unknown"
}
