package contention

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A Snapshot is what a process holds and waits for at one moment, the oldest first. It is what the
// page shows.
type Snapshot struct {
	At    time.Time `json:"at"` // when
	Holds []Hold    `json:"holds"`
	Waits []Wait    `json:"waits"`
}

// A Hold is a lock that this process holds.
type Hold struct {
	Key     string    `json:"key"`
	Mode    string    `json:"mode"`
	Token   uint64    `json:"token,omitzero"`
	Since   time.Time `json:"since"`
	Until   time.Time `json:"until,omitzero"`   // for how long the first lease was good
	Renewed time.Time `json:"renewed,omitzero"` // when the last renewal was confirmed
	Where   string    `json:"where"`            // who called Lock: file:line
	Waiters int       `json:"waiters"`          // in this process
}

// A Wait is a Lock that others make wait.
type Wait struct {
	Key      string    `json:"key"`
	Mode     string    `json:"mode"`
	Since    time.Time `json:"since"`
	Where    string    `json:"where"`
	Attempts int       `json:"attempts"`          // made for it, by itself and now by its cohort
	Position int       `json:"position,omitzero"` // in the store's queue, of its own claim or its cohort's; 1 is next
	Blocker  *Blocker  `json:"blocked_by"`        // nil if not known
}

// A Blocker is who is in the way of a wait: a hold of this process, or whom the store has named.
type Blocker struct {
	Here  bool      `json:"here"`            // this process
	Where string    `json:"where,omitzero"`  // if so
	Token uint64    `json:"token,omitzero"`  // if so
	Since time.Time `json:"since,omitzero"`  // since when; by its own clock, of its claim, if it says so
	Meta  *Identity `json:"holder,omitzero"` // of another process
}

// An Identity is what a holder says of itself.
type Identity struct {
	Service     string `json:"service,omitzero"`
	Host        string `json:"host,omitzero"`
	PID         int    `json:"pid,omitzero"`
	Traceparent string `json:"traceparent,omitzero"` // its span, if it is traced
}

// BlockedBy says who is in the way, for people.
func (w Wait) BlockedBy() string {
	switch b := w.Blocker; {
	case b == nil:
		return "not known"
	case b.Here:
		return "this process, at " + b.Where
	default:
		return fmt.Sprintf("%s on %s, pid %d", b.Meta.Service, b.Meta.Host, b.Meta.PID)
	}
}

// Snapshot returns what is held and waited for now.
func (t *Tracker) Snapshot() Snapshot {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := Snapshot{At: time.Now(), Holds: []Hold{}, Waits: []Wait{}}
	local := map[string]*lock{} // the latest of this process
	for k := range t.holds {
		s.Holds = append(s.Holds, Hold{
			Key: k.Key, Mode: k.Mode.String(), Token: k.Token, Since: k.since, Until: k.until, Renewed: k.renewed,
			Where: where(k.stack[:]), Waiters: t.named[k.Key].waiters,
		})
		if l := local[k.Key]; l == nil || l.since.Before(k.since) {
			local[k.Key] = k
		}
	}
	asking := map[string]request{} // for a cohort
	for l := range t.asking {
		asking[l.key] = l.request
	}
	for w := range t.waits {
		cohort := asking[w.Key]
		s.Waits = append(s.Waits, Wait{
			Key: w.Key, Mode: w.Mode.String(), Since: w.since, Where: where(w.stack[:]),
			Attempts: w.attempts + cohort.attempts, Position: cmp.Or(cohort.position, w.position),
			Blocker: blocker(local[w.Key], t.named[w.Key].meta),
		})
	}
	slices.SortFunc(s.Holds, func(a, b Hold) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key)) })
	slices.SortFunc(s.Waits, func(a, b Wait) int { return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Key, b.Key)) })
	return s
}

func blocker(local *lock, named backend.Meta) *Blocker {
	switch {
	case local != nil:
		return &Blocker{Here: true, Where: where(local.stack[:]), Token: local.Token, Since: local.since}
	case named != backend.Meta{}:
		id := Identity{named.Service, named.Host, named.PID, named.Traceparent}
		return &Blocker{Since: named.Since, Meta: &id}
	}
	return nil
}

// where is the first frame that is not the lock's.
func where(stack []uintptr) string {
	if all := frames(stack); len(all) > 0 {
		return fmt.Sprintf("%s:%d", all[0].File, all[0].Line)
	}
	return "unknown"
}
