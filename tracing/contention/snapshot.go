package contention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/internal/blame"
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
}

// A Lock is one that this process holds or waits for, or did.
type Lock struct {
	Key   string        `json:"key"`
	Mode  string        `json:"mode"`
	Since time.Time     `json:"since"`
	For   time.Duration `json:"for"`            // up to now, or to its end; in nanoseconds
	Where string        `json:"where"`          // who called Lock
	Trace string        `json:"trace,omitzero"` // its id

	// Of a hold that lasts.
	Token   uint64 `json:"token,omitzero"`
	Waiters int    `json:"waiters,omitzero"` // in this process, now

	// Of a wait. One that is over has only the Blocker, which was in its way for the longest.
	Attempts int      `json:"attempts,omitzero"`   // made for it, by itself and now by its cohort
	Position int      `json:"position,omitzero"`   // in the store's queue, of its own claim or its cohort's; 1 is next
	Ahead    int      `json:"ahead,omitzero"`      // how many of this process have waited for longer
	Blocker  *Blocker `json:"blocked_by,omitzero"` // nil if not known
}

// A Blocker is who is in the way of a wait: a hold of this process, or whom the store has named.
type Blocker struct {
	Here    bool      `json:"here"`             // this process
	Where   string    `json:"where,omitzero"`   // if so
	Service string    `json:"service,omitzero"` // of another process, as in backend.Meta
	Host    string    `json:"host,omitzero"`
	PID     int       `json:"pid,omitzero"`
	Token   uint64    `json:"token,omitzero"` // if known
	Since   time.Time `json:"since,omitzero"` // when it is known to hold from, by the clock here
	Trace   string    `json:"trace,omitzero"` // if it is traced
}

// String says who is in the way, for people.
func (b *Blocker) String() string {
	switch {
	case b == nil:
		return "not known"
	case b.Here:
		return "this process, at " + b.Where
	}
	return fmt.Sprintf("%s on %s, pid %d", b.Service, b.Host, b.PID)
}

// Snapshot returns what is held and waited for now.
func (t *Tracker) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Snapshot{At: time.Now(), Holds: []Lock{}, Waits: []Lock{}}
	s.LongestWaits, s.LongestHolds = slices.Clone(lately(t.recent[0], s.At)), slices.Clone(lately(t.recent[1], s.At))
	t.blame.Each(func(k *blame.Key) {
		cohort, asks := k.Asks.(*lock)
		if !asks {
			cohort = &lock{}
		}
		for ahead, w := range k.Waits {
			l := w.Of.(*lock) //nolint:errcheck,forcetypeassert // nothing else waits
			one := l.shown(w.Since, s.At)
			one.Ahead, one.Attempts = ahead, l.attempts+cohort.attempts
			one.Position, one.Blocker = cmp.Or(cohort.position, l.position), blockerOf(k.Holder(), w.Since)
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
			return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Ahead, b.Ahead))
		})
	}
	return s
}

// shown is l as it waits or holds since then.
func (l *lock) shown(since, now time.Time) Lock {
	return Lock{
		Key: l.Key, Mode: l.Mode.String(), Since: since, For: now.Sub(since),
		Where: where(l.stack[:]), Trace: traceID(l.trace),
	}
}

// blockerOf is for people what h is, which is in the way of who waits since then.
func blockerOf(h *blame.Hold, since time.Time) *Blocker {
	if h == nil {
		return nil
	}
	b := &Blocker{Token: h.Token, Since: h.From, Trace: traceID(h.Meta.Traceparent)}
	if h.From.IsZero() {
		b.Since = since
	}
	if l, ok := h.Here.(*lock); ok {
		b.Here, b.Where, b.Trace = true, where(l.stack[:]), traceID(l.trace)
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

// remember adds a wait or hold of l to the longest of the last minute, if it is one of them.
func remember(all []Lock, l *lock, since, now time.Time, by []blame.Culprit) []Lock {
	all = lately(all, now)
	i, _ := slices.BinarySearchFunc(all, now.Sub(since), func(a Lock, d time.Duration) int { return cmp.Compare(d, a.For) })
	if i == longest {
		return all
	}
	one := l.shown(since, now)
	if len(by) > 0 {
		one.Blocker = blockerOf(&by[0].Hold, since)
	}
	return slices.Insert(all, i, one)[:min(len(all)+1, longest)]
}

// lately leaves out what ended more than a minute ago.
func lately(all []Lock, now time.Time) []Lock {
	return slices.DeleteFunc(all, func(l Lock) bool { return now.Sub(l.Since.Add(l.For)) > time.Minute })
}

// where is the first frame that is not the lock's.
func where(stack []uintptr) string {
	if all := frames(stack); len(all) > 0 {
		return fmt.Sprintf("%s:%d", all[0].File, all[0].Line)
	}
	return "unknown"
}
