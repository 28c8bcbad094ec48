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
	Holds []Hold    `json:"holds"`
	Waits []Wait    `json:"waits"`

	// The longest that ended in the last minute, the longest first.
	LongestWaits []Past `json:"longest_waits"`
	LongestHolds []Past `json:"longest_holds"`
}

// A Hold is a lock that this process holds.
type Hold struct {
	Key     string    `json:"key"`
	Mode    string    `json:"mode"`
	Token   uint64    `json:"token,omitzero"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"`   // for how long the first lease was good
	Renewed time.Time `json:"renewed,omitzero"` // when the last renewal was confirmed
	Where   string    `json:"where"`            // who called Lock
	Waiters int       `json:"waiters"`          // in this process
	Trace   string    `json:"trace,omitzero"`   // its id
}

// A Wait is a Lock that others make wait.
type Wait struct {
	Key      string    `json:"key"`
	Mode     string    `json:"mode"`
	Since    time.Time `json:"since"`
	Where    string    `json:"where"`
	Attempts int       `json:"attempts"`          // made for it, by itself and now by its cohort
	Position int       `json:"position,omitzero"` // in the store's queue, of its own claim or its cohort's; 1 is next
	Ahead    int       `json:"ahead"`             // how many of this process have waited for longer
	Blocker  *Blocker  `json:"blocked_by"`        // nil if not known
	Trace    string    `json:"trace,omitzero"`
}

// A Past is a wait or a hold that is over.
type Past struct {
	Key     string        `json:"key"`
	Began   time.Time     `json:"began"`
	For     time.Duration `json:"for"`
	Where   string        `json:"where"`
	Blocker *Blocker      `json:"blocked_by,omitzero"` // of a wait: who was in its way for the longest
	Trace   string        `json:"trace,omitzero"`
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
	s := Snapshot{At: time.Now(), Holds: []Hold{}, Waits: []Wait{}}
	s.LongestWaits, s.LongestHolds = slices.Clone(lately(t.recent[0], s.At)), slices.Clone(lately(t.recent[1], s.At))
	t.blame.Each(func(k *blame.Key) {
		cohort, asks := k.Asks.(*lock)
		if !asks {
			cohort = &lock{}
		}
		for ahead, w := range k.Waits {
			l := w.Of.(*lock) //nolint:errcheck,forcetypeassert // nothing else waits
			s.Waits = append(s.Waits, Wait{
				Key: l.Key, Mode: l.Mode.String(), Since: w.Since, Where: where(l.stack[:]), Ahead: ahead,
				Attempts: l.attempts + cohort.attempts, Position: cmp.Or(cohort.position, l.position),
				Blocker: blockerOf(k.Holder(), w.Since), Trace: traceID(l.trace),
			})
		}
		for _, h := range k.Holds {
			if l, here := h.Here.(*lock); here && !h.Over() {
				s.Holds = append(s.Holds, Hold{
					Key: l.Key, Mode: l.Mode.String(), Token: h.Token, Since: h.From, Until: l.until,
					Renewed: l.renewed, Where: where(l.stack[:]), Waiters: len(k.Waits), Trace: traceID(l.trace),
				})
			}
		}
	})
	slices.SortFunc(s.Waits, func(a, b Wait) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Ahead, b.Ahead))
	})
	slices.SortFunc(s.Holds, func(a, b Hold) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key)) })
	return s
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
func remember(all []Past, l *lock, since, now time.Time, by []blame.Culprit) []Past {
	all = lately(all, now)
	one := Past{Key: l.Key, Began: since, For: now.Sub(since), Trace: traceID(l.trace)}
	i, _ := slices.BinarySearchFunc(all, one, func(a, b Past) int { return cmp.Compare(b.For, a.For) })
	if i == longest {
		return all
	}
	if one.Where = where(l.stack[:]); len(by) > 0 {
		one.Blocker = blockerOf(&by[0].Hold, since)
	}
	return slices.Insert(all, i, one)[:min(len(all)+1, longest)]
}

// lately leaves out what ended more than a minute ago.
func lately(all []Past, now time.Time) []Past {
	return slices.DeleteFunc(all, func(p Past) bool { return now.Sub(p.Began.Add(p.For)) > time.Minute })
}

// where is the first frame that is not the lock's.
func where(stack []uintptr) string {
	if all := frames(stack); len(all) > 0 {
		return fmt.Sprintf("%s:%d", all[0].File, all[0].Line)
	}
	return "unknown"
}
