// Package blame finds out who was in the way of those who wait for a lock in this process, and for
// how long: holds of this process, which are known exactly, and those of other processes that the
// store named in a refusal, or that were told of when the key was handed over.
package blame

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

const kept = 64 // holds of a key that are remembered, at least the present ones

// A Hold is one hold of a key.
type Hold struct {
	Meta  backend.Meta // what its claim says of the claimant
	Token uint64       // 0 unknown
	Here  any          // what the user knows of it; nil if it is another process's
	Alone bool         // it is one of this process, and exclusive
	From  time.Time    // since when it is known to hold, by this process's clock
	Told  bool         // another process's, whose end was told when the key was handed over
	Knew  bool         // and it knew that somebody waited

	Lapsed bool // its lease ran out, and nobody had released it

	to    time.Time // zero: not over, as far as is known
	seen  time.Time // of another process's: until when it is known to have held
	key   *Key
	waits int // of key that had ended when it began
}

// Over reports whether it has ended.
func (h *Hold) Over() bool { return !h.to.IsZero() }

// An Interval is the part of a wait in which a hold was in its way.
type Interval struct {
	Who      Hold
	From, To time.Time // within the wait
}

// For is how long that was.
func (i *Interval) For() time.Duration { return i.To.Sub(i.From) }

// Keys knows it of all keys. The zero Keys is ready for use, by many goroutines.
type Keys struct {
	mu    sync.Mutex
	keys  map[string]*Key
	spare *Key // for the next key; most keys are used by one lock and not contended
}

// A Key is there while somebody of this process waits for it or holds it, so that a hold costs the
// same whether one waits for it or a thousand.
type Key struct {
	Name  string
	Waits []*Wait // of this process, the oldest first
	Holds []*Hold // in the order in which they became known
	Asks  any     // who has asked for all of them since a hold of this process began

	users  int // waits and holds of this process
	ended  int // waits
	joined int // of Waits, that have no claim of their own at the store
}

// A Wait is one that has begun.
type Wait struct {
	Of    any // what the user knows of it
	Since time.Time

	key    *Key
	joined bool
}

// use returns the entry of a key for one more user. The caller has mu.
func (ks *Keys) use(name string) *Key {
	k := ks.keys[name]
	if k == nil {
		if ks.keys == nil {
			ks.keys = map[string]*Key{}
		}
		if k, ks.spare = ks.spare, nil; k == nil {
			k = &Key{}
		}
		k.Name = name
		ks.keys[name] = k
	}
	k.users++
	return k
}

func (ks *Keys) unuse(k *Key) {
	if k.users--; k.users == 0 {
		delete(ks.keys, k.Name)
		clear(k.Holds)
		*k = Key{Waits: k.Waits, Holds: k.Holds[:0]}
		ks.spare = k
	}
}

// Begin takes note of a hold of this process since h.From. h must not be changed until End.
func (ks *Keys) Begin(name string, h *Hold) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	h.key = ks.use(name)
	h.waits, h.key.Asks = h.key.ended, nil
	h.key.add(h)
}

// End ends a hold of this process, and returns how many of this process have waited meanwhile, and
// how many of those that still do the store does not know of.
func (ks *Keys) End(h *Hold, now time.Time) (waiters, joined int) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	h.to = now
	waiters, joined = len(h.key.Waits)+h.key.ended-h.waits, h.key.joined
	ks.unuse(h.key)
	return waiters, joined
}

// Wait begins a wait because of named, as far as the store said who that is. joined says that the
// store was not asked for it, as it joined others of this process.
func (ks *Keys) Wait(name string, named backend.Meta, of any, joined bool) *Wait {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	w := &Wait{of, time.Now(), ks.use(name), joined}
	if joined {
		w.key.joined++
	}
	w.key.Waits = append(w.key.Waits, w)
	w.key.named(named, w.Since)
	return w
}

// Done ends a wait, and returns who was in its way and when, the longest first. Of another
// process's hold that is what is known: one that was named once, and never told of, is an interval
// of no length.
func (ks *Keys) Done(w *Wait, now time.Time) (all []Interval) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, h := range w.key.Holds {
		from, to := later(h.From, w.Since), h.to
		switch {
		case h.Here != nil && !h.Over():
			to = now
		case h.Here == nil && !h.Over():
			to = later(h.seen, w.Since)
		}
		if to.Before(w.Since) || !to.After(from) && (h.Here != nil || h.Told) {
			continue // not in its way
		}
		all = append(all, Interval{*h, from, to})
	}
	i := slices.Index(w.key.Waits, w) // most of the time the first
	w.key.Waits = slices.Delete(w.key.Waits, i, i+1)
	w.key.ended++
	if w.joined {
		w.key.joined--
	}
	ks.unuse(w.key)
	all = apart(all)
	slices.SortStableFunc(all, func(a, b Interval) int { return cmp.Compare(b.For(), a.For()) })
	return all
}

// apart has nobody be in the way beside an exclusive hold of this process: that ends when its
// Unlock is told of, which may be after the next one has begun, and what the store has said of
// another may be told of late. Such a hold within another is by the same owner.
func apart(all []Interval) []Interval {
	var alone []*Interval // one after the other
	slices.SortStableFunc(all, func(a, b Interval) int { return a.From.Compare(b.From) })
	for i := range all {
		b := &all[i]
		switch n := len(alone); {
		case !b.Who.Alone:
		case n > 0 && !b.To.After(alone[n-1].To):
			b.To = b.From
		default:
			if n > 0 && b.From.Before(alone[n-1].To) {
				alone[n-1].To = b.From // safeguard: bars-apart
			}
			alone = append(alone, b)
		}
	}
	for i := range all {
		b := &all[i]
		for _, a := range alone {
			switch {
			case b.Who.Alone || !b.To.After(a.From) || !b.From.Before(a.To):
			case b.From.Before(a.From):
				b.To = a.From
			default:
				b.From, b.To = a.To, later(a.To, b.To)
			}
		}
	}
	return slices.DeleteFunc(all, func(i Interval) bool { return i.Who.Alone && i.For() == 0 })
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// Gaps says how much of a wait nobody held, as one lease or the key was handed on meanwhile, and of
// how much nothing is known. passed says that the wait ended with such a lease, and not by an
// answer of the store.
func Gaps(all []Interval, since, end time.Time, passed bool) (unheld, unknown time.Duration) {
	all = slices.SortedFunc(slices.Values(all), func(a, b Interval) int {
		return a.From.Compare(b.From)
	})
	var last *Hold
	for i := range all {
		who := &all[i].Who
		if gap := all[i].From.Sub(since); gap > 0 {
			if last != nil && (last.Told && who.Told || last.Here != nil && who.Here != nil &&
				last.Meta == who.Meta) {
				unheld += gap
			} else {
				unknown += gap
			}
		}
		if !all[i].To.Before(since) {
			since, last = all[i].To, who
		}
	}
	if gap := end.Sub(since); gap > 0 {
		if last != nil && (last.Told || last.Here != nil && passed) {
			unheld += gap
		} else {
			unknown += gap
		}
	}
	return unheld, unknown
}

// Named takes note of a holder that the store has named, if somebody waits: with asks, to one who
// asks for all of this process.
func (ks *Keys) Named(name string, m backend.Meta, asks any) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if k := ks.keys[name]; k != nil {
		k.named(m, time.Now())
		if asks != nil {
			k.Asks = asks
		}
	}
}

// Told takes note of those who held the key until now, when it was handed over to this process, as
// far as they told it: for how long each held, but not when, so the times are counted back from
// now. queued says that this process was in the store's queue, of which releases are told.
//
// Who was named by the store held then already. So it ended no later than after as long, and what
// is told of from before it was over when it was named.
func (ks *Keys) Told(name string, before []backend.Past, queued bool) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k, now := ks.keys[name], time.Now()
	if k == nil || len(before) == 0 {
		return
	}
	end, known, next := now, slices.Clone(k.Holds), uint64(0)
	for _, past := range slices.Backward(before) {
		end, next = end.Add(-gap(past, next)), past.Token
		h, from := k.find(past.Meta), end.Add(-past.For)
		for _, other := range known {
			if other != h { // the store named it, or it held here, before
				from = later(from, later(other.to, other.seen))
			}
		}
		if h != nil && h.Here != nil {
			break // it knows that better, and what was before it
		}
		named := h != nil
		if !named {
			h = &Hold{}
			k.add(h)
		} else {
			if h.From.Before(from) {
				from = h.From
			}
			if most := from.Add(past.For); most.Before(end) {
				end = later(most, h.seen)
			}
		}
		h.Meta, h.Token, h.From, h.to, h.seen, h.Told, h.Knew = past.Meta, past.Token, from, end,
			end, true, queued
		if named {
			break
		}
		end = from
	}
	k.close()
}

// gap is how long a hand-over took, from the end of a hold to the grant of the next token, if that
// can be told: tokens of Redis, of a folder and of memory are readings of their clock in
// microseconds.
func gap(past backend.Past, next uint64) time.Duration {
	const most = 100 * time.Millisecond // more is another kind of token, or one that was lifted
	if past.Token == 0 || next <= past.Token {
		return 0
	}
	//nolint:gosec // a clock's difference
	if d := time.Duration(next-past.Token)*time.Microsecond - past.For; d > 0 && d < most {
		return d
	}
	return 0
}

// Lapsed takes note that the lease of the hold of m ran out before it was released.
func (ks *Keys) Lapsed(name string, m backend.Meta) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if k := ks.keys[name]; k != nil {
		if h := k.find(m); h != nil && h.Here == nil {
			h.Lapsed = true
		}
	}
}

// Each calls f for every key. What f is given must not be changed, nor looked at later.
func (ks *Keys) Each(f func(*Key)) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, k := range ks.keys {
		f(k)
	}
}

// Holder returns the present holder, as far as is known, or nil.
func (k *Key) Holder() *Hold {
	for _, h := range slices.Backward(k.Holds) {
		if !h.Over() {
			return h
		}
	}
	return nil
}

// named takes note of a holder, which holds now.
func (k *Key) named(m backend.Meta, now time.Time) {
	if m == (backend.Meta{}) {
		return
	}
	h := k.find(m)
	if h != nil && h.Here == nil && h != k.Holds[len(k.Holds)-1] { // safeguard: bars-named-again
		h = nil // another has held since, and what this one held meanwhile is not known
	}
	switch {
	case h == nil:
		k.add(&Hold{Meta: m, From: now, seen: now})
	case h.Here == nil: // also if a wake-up was taken for its end
		h.Meta, h.to, h.seen, h.Told, h.Knew = m, time.Time{}, now, false, false
	}
}

// find returns the last hold of a claim, or nil.
func (k *Key) find(m backend.Meta) *Hold {
	for _, h := range slices.Backward(k.Holds) {
		if same(h.Meta, m) {
			return h
		}
	}
	return nil
}

// same reports whether two claims are one: a claim is told from others of its process by when it
// was made and by its trace, as its span may change while it waits.
func same(a, b backend.Meta) bool {
	return a.PID == b.PID && a.Host == b.Host && a.Since.Equal(b.Since) && trace(a) == trace(b)
}

// trace is the part of a traceparent that names the trace.
func trace(m backend.Meta) string { return m.Traceparent[:min(len(m.Traceparent), 35)] }

// add adds a hold. With it those of other processes are over of which the end was not told.
func (k *Key) add(h *Hold) {
	k.close()
	if many := len(k.Holds) - kept + 1; many > 0 {
		k.Holds = slices.DeleteFunc(k.Holds, func(h *Hold) bool {
			gone := many > 0 && h.Over()
			if gone {
				many--
			}
			return gone
		})
	}
	k.Holds = append(k.Holds, h)
}

// close ends the holds of other processes that were named and not told of, at what is known of
// them.
func (k *Key) close() {
	for _, h := range k.Holds {
		if h.Here == nil && !h.Over() {
			h.to = h.seen
		}
	}
}
