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
	kept = 64 // holds of a key that are remembered, at least the present ones
	most = 16 // that a wait is told of: those that blocked it for the longest
)

// A Hold is one hold of a key.
type Hold struct {
	Meta  backend.Meta // what its claim says of the claimant
	Token uint64       // 0 unknown
	Here  any          // what the user knows of it; nil if it is another process's
	From  time.Time    // by this process's clock; zero: from before anybody waited

	to    time.Time // zero: not over, as far as is known
	key   *Key
	waits int // of key that had ended when it began
}

// Over reports whether it has ended.
func (h *Hold) Over() bool { return !h.to.IsZero() }

// A Culprit is a hold that was in the way of a wait, and for how long.
type Culprit struct {
	Hold
	For time.Duration
}

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

	users int // waits and holds of this process
	ended int // waits
}

// A Wait is one that has begun.
type Wait struct {
	Of    any // what the user knows of it
	Since time.Time

	key *Key
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
	h.key.add(h, h.From)
}

// End ends a hold of this process, and returns how many of this process have waited meanwhile.
func (ks *Keys) End(h *Hold, now time.Time) (waiters int) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	h.to = now
	waiters = len(h.key.Waits) + h.key.ended - h.waits
	ks.unuse(h.key)
	return waiters
}

// Wait begins a wait because of named, as far as the store said who that is.
func (ks *Keys) Wait(name string, named backend.Meta, of any) *Wait {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	w := &Wait{of, time.Now(), ks.use(name)}
	w.key.Waits = append(w.key.Waits, w)
	w.key.named(named, w.Since)
	return w
}

// Done ends a wait, and returns who was in its way, the longest first.
func (ks *Keys) Done(w *Wait, now time.Time) (all []Culprit) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	for _, h := range w.key.Holds {
		from, to := h.From, h.to
		if from.Before(w.Since) {
			from = w.Since
		}
		if to.IsZero() {
			to = now
		}
		if to.After(from) {
			all = append(all, Culprit{*h, to.Sub(from)})
		}
	}
	i := slices.Index(w.key.Waits, w) // most of the time the first
	w.key.Waits = slices.Delete(w.key.Waits, i, i+1)
	w.key.ended++
	ks.unuse(w.key)
	slices.SortStableFunc(all, func(a, b Culprit) int { return cmp.Compare(b.For, a.For) })
	return all[:min(len(all), most)]
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

// Told takes note of those who held the key until now, when it was handed over to this process.
func (ks *Keys) Told(name string, before []backend.Past) {
	ks.mu.Lock()
	defer ks.mu.Unlock()
	k, now, known := ks.keys[name], time.Now(), map[*Hold]bool{}
	if k == nil || len(before) == 0 {
		return
	}
	end := now
	for _, past := range slices.Backward(before) {
		h := k.find(past.Meta)
		if h != nil && h.Here != nil {
			break // it knows that better, and what was before it
		}
		if h == nil {
			h = &Hold{}
			k.add(h, now)
		}
		from := end.Add(-past.For)
		h.Meta, h.Token, h.From, h.to = past.Meta, past.Token, from, end
		known[h], end = true, from
	}
	for _, h := range k.Holds { // the others were over before
		if h.Here == nil && !known[h] && (h.to.IsZero() || h.to.After(end)) {
			h.to = end
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

// named takes note of a holder. It has held since the one before has ended, or was last heard of.
func (k *Key) named(m backend.Meta, now time.Time) {
	if m == (backend.Meta{}) {
		return
	}
	h := k.find(m)
	switch {
	case h == nil:
		h = &Hold{Meta: m}
		k.add(h, now)
		for _, other := range k.Holds {
			if other.to.After(h.From) {
				h.From = other.to
			}
		}
	case h.Here == nil:
		h.Meta, h.to = m, time.Time{}
	}
}

// find returns the last hold of a claim, or nil. A claim is told from others of its process by when
// it was made and by its trace: its span may change while it waits.
func (k *Key) find(m backend.Meta) *Hold {
	for _, h := range slices.Backward(k.Holds) {
		if o := h.Meta; o.PID == m.PID && o.Host == m.Host && o.Since.Equal(m.Since) && trace(o) == trace(m) {
			return h
		}
	}
	return nil
}

// trace is the part of a traceparent that names the trace.
func trace(m backend.Meta) string { return m.Traceparent[:min(len(m.Traceparent), 35)] }

// add adds a hold. With it those of other processes are over of which the end was not told.
func (k *Key) add(h *Hold, now time.Time) {
	for _, other := range k.Holds {
		if other.Here == nil && !other.Over() {
			other.to = now
		}
	}
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
