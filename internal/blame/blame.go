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

const (
	kept = 64 // holds of a key that are remembered while somebody waits
	most = 16 // that a wait is told of: those that blocked it for the longest
)

// A Hold is one hold of a key.
type Hold struct {
	Meta  backend.Meta // what its claim says of the claimant
	Token uint64       // 0 unknown
	Here  any          // what the user knows of it; nil if it is another process's

	from, to time.Time // zero: from before anybody waited; not over, as far as is known
	waiters  int       // of this process, during the hold
	key      *key
}

// From is since when it is known to hold, by this process's clock; zero if it did before anybody
// waited.
func (h Hold) From() time.Time { return h.from }

// A Culprit is a hold that was in the way of a wait, and for how long.
type Culprit struct {
	Hold
	For time.Duration
}

// Keys knows it of all keys. The zero Keys is ready for use, by many goroutines.
type Keys struct {
	mu   sync.Mutex
	keys map[string]*key
}

// A key is there while somebody of this process waits for it or holds it, so that a hold costs the
// same whether one waits for it or a thousand.
type key struct {
	name  string
	users int
	waits []*Wait
	holds []*Hold // in the order in which they became known
}

// A Wait is one that has begun.
type Wait struct {
	Of any // what the user knows of it

	key   *key
	since time.Time
}

// Len returns how many keys are known.
func (ks *Keys) Len() int {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	return len(ks.keys)
}

// use returns the entry of a key for one more user. The caller has mu.
func (ks *Keys) use(name string) *key {
	k := ks.keys[name]
	if k == nil {
		k = &key{name: name}
		if ks.keys == nil {
			ks.keys = map[string]*key{}
		}
		ks.keys[name] = k
	}
	k.users++
	return k
}

func (ks *Keys) unuse(k *key) {
	if k.users--; k.users == 0 {
		delete(ks.keys, k.name)
	}
}

// Begin takes note of a hold of this process. h must not be changed until End.
func (ks *Keys) Begin(name string, h *Hold) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	h.key, h.from = ks.use(name), time.Now()
	h.waiters = len(h.key.waits)
	h.key.supersede(h.from)
	h.key.add(h)
}

// End ends a hold of this process, and returns how many of this process have waited meanwhile.
func (ks *Keys) End(h *Hold) (waiters int) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	h.to = time.Now()
	ks.unuse(h.key)
	return h.waiters
}

// Wait begins a wait because of named, as far as the store said who that is.
func (ks *Keys) Wait(name string, named backend.Meta, of any) *Wait {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	w := &Wait{of, ks.use(name), time.Now()}
	w.key.waits = append(w.key.waits, w)
	for _, h := range w.key.holds {
		if h.Here != nil && h.to.IsZero() {
			h.waiters++
		}
	}
	w.key.named(named, w.since)
	return w
}

// Done ends a wait, and returns who was in its way, the longest first.
func (ks *Keys) Done(w *Wait) (all []Culprit) {
	now := time.Now()
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, h := range w.key.holds {
		from, to := h.from, h.to
		if from.Before(w.since) {
			from = w.since
		}
		if to.IsZero() {
			to = now
		}
		if to.After(from) {
			all = append(all, Culprit{*h, to.Sub(from)})
		}
	}
	i := slices.Index(w.key.waits, w) // most of the time the first
	w.key.waits = slices.Delete(w.key.waits, i, i+1)
	ks.unuse(w.key)
	slices.SortStableFunc(all, func(a, b Culprit) int { return cmp.Compare(b.For, a.For) })
	return all[:min(len(all), most)]
}

// Named takes note of a holder that the store has named, if somebody waits.
func (ks *Keys) Named(name string, m backend.Meta) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if k := ks.keys[name]; k != nil {
		k.named(m, time.Now())
	}
}

// Told takes note of those who held the key until now, when it was handed over to this process.
func (ks *Keys) Told(name string, before []backend.Past) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k, end, known := ks.keys[name], time.Now(), map[*Hold]bool{}
	if k == nil || len(before) == 0 {
		return
	}
	for _, past := range slices.Backward(before) {
		h := k.find(past.Meta)
		if h != nil && h.Here != nil {
			break // it knows that better, and what was before it
		}
		from := end.Add(-past.For)
		if h == nil {
			h = &Hold{}
			k.add(h)
		}
		h.Meta, h.Token, h.from, h.to = past.Meta, past.Token, from, end
		known[h], end = true, from
	}
	for _, h := range k.holds { // the others were over before
		if h.Here == nil && !known[h] && (h.to.IsZero() || h.to.After(end)) {
			h.to = end
		}
	}
}

// Oldest tells for each key the wait and the hold of this process that began first, if any.
func (ks *Keys) Oldest(f func(of any, waited, held time.Duration)) {
	now := time.Now()
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, k := range ks.keys {
		if len(k.waits) > 0 {
			f(k.waits[0].Of, now.Sub(k.waits[0].since), 0)
		}
		for _, h := range k.holds {
			if h.Here != nil && h.to.IsZero() {
				f(h.Here, 0, now.Sub(h.from))
				break
			}
		}
	}
}

// Holder returns whom k knows as the present holder.
func (ks *Keys) Holder(name string) (h Hold, known bool) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	if k := ks.keys[name]; k != nil {
		for _, h := range slices.Backward(k.holds) {
			if h.to.IsZero() {
				return *h, true
			}
		}
	}
	return h, false
}

// named takes note of a holder. It has held since the one before has ended, or was last heard of.
func (k *key) named(m backend.Meta, now time.Time) {
	if m == (backend.Meta{}) {
		return
	}
	if h := k.find(m); h != nil {
		if h.Here == nil {
			h.Meta, h.to = m, time.Time{}
		}
		return
	}
	h := &Hold{Meta: m}
	if k.supersede(now) {
		h.from = now
	} else {
		for _, other := range k.holds {
			if other.to.After(h.from) {
				h.from = other.to
			}
		}
	}
	k.add(h)
}

// supersede ends the holds of other processes of which the end was not told, and reports whether
// there are any.
func (k *key) supersede(now time.Time) (any bool) {
	for _, h := range k.holds {
		if h.Here == nil && h.to.IsZero() {
			h.to, any = now, true
		}
	}
	return any
}

// find returns the last hold of a claim, or nil. A claim is told from others of its process by when
// it was made and by its trace: its span may change while it waits.
func (k *key) find(m backend.Meta) *Hold {
	for _, h := range slices.Backward(k.holds) {
		if o := h.Meta; o.PID == m.PID && o.Host == m.Host && o.Since.Equal(m.Since) && trace(o) == trace(m) {
			return h
		}
	}
	return nil
}

// trace is the part of a traceparent that names the trace.
func trace(m backend.Meta) string { return m.Traceparent[:min(len(m.Traceparent), 35)] }

func (k *key) add(h *Hold) {
	if len(k.holds) == kept {
		k.holds = append(k.holds[:0], k.holds[1:]...)
	}
	k.holds = append(k.holds, h)
}
