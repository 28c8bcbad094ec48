package locker

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// What is done about deadlocks. A Lock under a guard's context knows what its caller holds. While
// it waits it is in nestedWaits, where those of this process find each other at once. After
// deadlockAfter it also leaves a record in the store for each of those holds: a lock of its own,
// whose metadata says which key the holder waits for. By these records it follows from holder to
// holder.
//
// Safety: a record is a claim on a key that nobody else asks for, so no lock depends on one. It is
// released before Lock returns, or behind it if the store is slow, and is a lease, which ends by
// itself.
//
// It is not written into the hold: a renewal carries no metadata, and a hold that is acquired once
// more only for that has an attempt in flight which may be executed after its release. Nor are the
// keys that are held written into the place in the queue: one place is for all goroutines of a
// process, and those of one who gave up would be in it until the next attempt.

const (
	deadlockAfter = time.Second // how long a wait lasts before the store is asked
	// Until it is asked again, then twice that, and so on, up to a third of recordTTL.
	deadlockEvery = 2 * time.Second

	// Of a record, or the longest that the store grants; it is repeated each third.
	recordTTL = 30 * time.Second

	// deadlockLooks bounds the keys of one look, as one may have thousands of shared holds.
	deadlockLooks = 32
)

// A Waiting is one of those who wait for each other in a deadlock. Keys are as the store has them,
// with their namespaces.
type Waiting struct {
	Holds string `json:"holds"` // the key that the one before it waits for
	// of that hold: of several under one lease the first one's, unless they are of one process
	Token uint64       `json:"token"`
	For   string       `json:"for"`   // the key that it waits for itself
	Where string       `json:"where"` // who called Lock for it: file and line
	Who   backend.Meta `json:"who"`   // its service, host and process
}

// String says who holds what and waits for what, for people.
func (w Waiting) String() string {
	return fmt.Sprintf("%q on %q, pid %d, holds %q (token %d) and waits for %q in %s",
		w.Who.Service, w.Who.Host, w.Who.PID, w.Holds, w.Token, w.For, w.Where)
}

// A DeadlockError is [ErrDeadlock] with those who wait for each other: the first waits for the
// second, and the last for the first, which is the Lock that fails.
type DeadlockError struct {
	Cycle []Waiting // never empty
}

// Error says how many they are, without their keys.
func (e *DeadlockError) Error() string {
	return fmt.Sprintf("%v: %d that wait for each other, of which this one gives up", ErrDeadlock,
		len(e.Cycle))
}

// Is makes errors.Is(err, ErrDeadlock) true.
func (e *DeadlockError) Is(target error) bool { return target == ErrDeadlock }

// A storeKey is a key in a store.
type storeKey struct {
	b   backend.Backend
	key string
}

// nestedWaits are the waits of this process, of all its Clients, under contexts of guards, by what
// they wait for. It is empty in a program that takes one lock at a time.
var nestedWaits = struct {
	mu sync.Mutex // before it no other, and after it only lease.mu
	of map[storeKey][]*nestedWait
}{of: map[storeKey][]*nestedWait{}}

// A nestedWait is the wait of a Lock whose caller holds other locks.
type nestedWait struct {
	core   *core
	ctx    context.Context // the wait's
	cancel context.CancelCauseFunc
	at     storeKey
	info   Hold
	owner  string  // of a re-entrant claim; else ""
	holds  []*hold // its caller's, the innermost first
	stack  [16]uintptr

	// The watch's: of one goroutine at a time.
	records []backend.Claim // one for each hold in this store
	written map[string]bool // the owners of those that the store has confirmed
	wrote   time.Time       // when all of them were answered, last
	told    string          // the cycle that was told last
	looks   int             // at the store, in a row, that found nothing new

	// Guarded by nestedWaits.mu.
	timer    *time.Timer   // for the next watch
	watching chan struct{} // closed when the watch under way has ended; nil if none is
	found    []Waiting     // a cycle in this process that is to be told
	over     bool          // it has ended
}

// enterNested notes a wait for key under ctx, and tells of a deadlock in this process that it
// makes. Under the context that it returns the wait ends when that is broken. It returns nil if ctx
// belongs to no hold that others could wait for.
func (c *core) enterNested(ctx context.Context, key, owner string,
	info Hold,
) (context.Context, *nestedWait) {
	// Of several permits another may be given back.
	if ctx.Value(holdKey{}) == nil || info.Mode == backend.Permit {
		return ctx, nil
	}
	holds := holdsOf(ctx)
	if len(holds) == 0 {
		return ctx, nil
	}
	w := &nestedWait{core: c, at: storeKey{c.b, key}, info: info, owner: owner, holds: holds}
	runtime.Callers(2, w.stack[:])
	w.ctx, w.cancel = context.WithCancelCause(ctx)
	nestedWaits.mu.Lock()
	defer nestedWaits.mu.Unlock()
	w.timer = time.AfterFunc(deadlockAfter, w.watch)
	nestedWaits.of[w.at] = append(nestedWaits.of[w.at], w)
	w.tellAll(w.search(w, nil, map[*nestedWait]bool{w: true}))
	return w.ctx, w
}

// holdsOf returns the holds that ctx belongs to, of any Client, the innermost first.
func holdsOf(ctx context.Context) (all []*hold) {
	for {
		c, ok := ctx.Value(holdKey{}).(holdContext)
		if !ok {
			return all
		}
		if c.h.info.Mode != backend.Permit {
			all = append(all, c.h)
		}
		ctx = c.h.parent
	}
}

// exit ends what enterNested began, and returns what the wait fails with. When it returns nothing
// of the wait is in the store, or its release is pending: it does not wait long for a store that is
// slow to answer the watch under way.
func (w *nestedWait) exit(err error) error {
	if w == nil {
		return err
	}
	nestedWaits.mu.Lock()
	w.over = true
	w.timer.Stop()
	others := slices.DeleteFunc(nestedWaits.of[w.at], func(o *nestedWait) bool { return o == w })
	if nestedWaits.of[w.at] = others; len(others) == 0 {
		delete(nestedWaits.of, w.at)
	}
	watching := w.watching
	nestedWaits.mu.Unlock()
	var broken *DeadlockError
	if errors.As(context.Cause(w.ctx), &broken) && err != nil {
		err = &causes{[]error{broken, err}}
	}
	w.cancel(nil)
	if watching == nil {
		w.end()
		return err
	}
	w.core.add() // Lock is counted itself until now
	behind(func() {
		defer w.core.done()
		<-watching
		w.end()
	})
	return err
}

// end tells what is still to be told of a wait that is over, and withdraws its records, all at
// once.
func (w *nestedWait) end() {
	if w.found != nil { // and it ended before the watch came to it
		w.tell(w.found, false)
	}
	tried := make([]<-chan struct{}, len(w.records))
	for i := range w.records {
		tried[i] = w.core.pending.add(w.ctx, &w.records[i], w.info) // safeguard: deadlock-record
	}
	for _, done := range tried {
		w.core.pending.await(done)
	}
}

// A blocker is a wait and the hold of its caller that the one before it waits for.
type blocker struct {
	wait *nestedWait
	hold *hold
}

// search returns the way from w back to itself, through those who wait for what x holds and so on;
// nil if there is none. The caller has nestedWaits.mu, so that all of it is true at one moment.
func (w *nestedWait) search(x *nestedWait, way []blocker, seen map[*nestedWait]bool) []blocker {
	for _, h := range x.holds {
		if !h.lasts() {
			continue
		}
		at := storeKey{h.lease.core.b, h.lease.claim.Key}
		if x != w && at == w.at && w.waitsFor(h) {
			return append(way, blocker{x, h})
		}
		for _, y := range nestedWaits.of[at] {
			// One that has failed is about to end.
			if seen[y] || y.ctx.Err() != nil || !y.waitsFor(h) {
				continue
			}
			seen[y] = true
			if all := w.search(y, append(way, blocker{x, h}), seen); all != nil {
				return all
			}
		}
	}
	return nil
}

// waitsFor reports whether h, of the key that w waits for, is in its way. Of shared ones it is not
// sure: who was behind a writer may have been let in by now.
func (w *nestedWait) waitsFor(h *hold) bool {
	claim := &h.lease.claim
	return (w.info.Mode != backend.Shared || h.info.Mode != backend.Shared) &&
		(!claim.Reentrant || claim.Owner != w.owner)
}

// lasts reports whether the hold is good, and not being unlocked.
func (h *hold) lasts() bool {
	now := h.lease.core.now()
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	return h.state == holdGood && now < h.lease.until
}

// stuck reports whether the wait is still one of those of this process that wait for each other.
func (w *nestedWait) stuck() bool {
	nestedWaits.mu.Lock()
	defer nestedWaits.mu.Unlock()
	return !w.over && w.search(w, nil, map[*nestedWait]bool{w: true}) != nil
}

// tellAll has each wait of a cycle told, if way is one. The caller has nestedWaits.mu.
func (w *nestedWait) tellAll(way []blocker) {
	cycle := make([]Waiting, len(way))
	if len(way) > 0 {
		slices.Reverse(way[1:]) // each waited for the one before it; now it waits for the next
	}
	for i, b := range way {
		cycle[i] = Waiting{
			b.hold.lease.claim.Key, b.hold.info.Token, b.wait.at.key,
			outside(b.wait.stack[:]), b.wait.core.meta,
		}
	}
	for i, b := range way {
		b.wait.found = slices.Concat(cycle[i:], cycle[:i])
		if b.wait.watching == nil {
			b.wait.timer.Reset(0)
		}
	}
}

// watch tells of the cycle that was found, or looks for one in the store. It is called by the
// timer.
func (w *nestedWait) watch() {
	nestedWaits.mu.Lock()
	if w.over || w.watching != nil {
		nestedWaits.mu.Unlock()
		return
	}
	w.watching = make(chan struct{})
	cycle := w.found
	w.found = nil
	nestedWaits.mu.Unlock()
	next := deadlockEvery
	if cycle != nil {
		w.tell(cycle, true)
		next = deadlockAfter
	} else if caps := &w.core.caps; caps.Queue && caps.Inspect && w.record() {
		before := w.told
		next, w.looks = min(next<<min(w.looks, 8), w.records[0].TTL/3), w.looks+1
		c := chase{b: w.core.b, ends: w.written, owner: w.owner}
		cycle := cycleOf(c.look(w.ctx, waits{mode: w.info.Mode, key: w.at.key}))
		if w.tell(cycle, false); w.told != before {
			// So that the others look before it is broken.
			next, w.looks = deadlockEvery+deadlockAfter, 1
		}
	}
	nestedWaits.mu.Lock()
	defer nestedWaits.mu.Unlock()
	close(w.watching)
	w.watching = nil
	if w.found != nil { // meanwhile
		next = 0
	}
	if !w.over {
		w.timer.Reset(next)
	}
}

// tell logs a cycle that begins with this wait, and tells the observer, once; nil is none. Then it
// ends the wait if that is to break the cycle: at once, if that is still there, as the watch may
// come to it late; or when it was told before, so that the others have found it, too.
//
// Of those who wait for each other the one with the greatest token gives up, as each finds out for
// itself:
// tokens of holds are the same for all, so no two give up (TestDeadlockAcrossProcesses).
func (w *nestedWait) tell(cycle []Waiting, atOnce bool) {
	if len(cycle) == 0 {
		return
	}
	var texts []string
	var keys string
	for _, c := range cycle {
		texts = append(texts, c.String())
		keys += strconv.Quote(c.Holds)
	}
	again := keys == w.told
	if !again {
		w.told = keys
		w.core.cfg.Logger.Warn("holdfast: deadlock", "key", w.info.Key, "waits", texts)
		if w.core.events != nil {
			w.core.events.Event(w.ctx, Event{Kind: EventDeadlock, Cycle: cycle})
		}
	}
	order := func(a, b Waiting) int { // tokens of different keys may be equal
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Holds, b.Holds),
			cmp.Compare(a.String(), b.String()))
	}
	// safeguard: greatest-token
	if !w.core.cfg.BreakDeadlocks || slices.MaxFunc(cycle, order) != cycle[0] {
		return
	}
	if again && !atOnce || atOnce && w.stuck() { // safeguard: deadlock-stuck
		w.cancel(&DeadlockError{cycle})
	}
}

// recordKey is the key of the record of a hold: one that is in no namespace but the hold's own.
func recordKey(key, id string) string {
	namespace, _, in := strings.Cut(key, "~")
	if !in {
		return recordPrefix + id
	}
	return namespace + "~" + recordPrefix + id
}

// recordPrefix is what the keys of records begin with, behind the namespace.
const recordPrefix = ".waits-"

// record writes to the store, for each hold, what its holder waits for, and reports whether it did
// for one of them at least. One that is there already is another goroutine's, under the same guard,
// and stays. What the store did not answer is tried again at the next look.
func (w *nestedWait) record() bool {
	if w.records == nil {
		meta, ttl := w.core.meta, recordTTL
		meta.Waits = waits{w.info.Mode, outside(w.stack[:]), w.at.key}.String()
		if most := w.core.caps.MaxTTL; most > 0 {
			ttl = min(ttl, most)
		}
		for _, h := range w.holds {
			if of := &h.lease.claim; h.lease.core.b == w.core.b && h.lasts() && h.named() {
				w.records = append(w.records, backend.Claim{
					Key:   recordKey(of.Key, of.ID()),
					Owner: backend.NewOwner(), TTL: ttl, Meta: meta,
				})
			}
		}
	}
	if len(w.records) == 0 || time.Since(w.wrote) < w.records[0].TTL/3 {
		return len(w.written) > 0
	}
	began, answered := time.Now(), true
	w.written = map[string]bool{}
	for _, claim := range w.records {
		_, err := w.core.b.TryAcquire(w.ctx, claim)
		if err == nil {
			w.written[claim.Owner] = true
		} else if !errors.Is(err, backend.ErrHeld) && !backend.Refused(err) {
			answered = false
		}
	}
	if answered { // safeguard: deadlock-unanswered
		w.wrote = began
	}
	return len(w.written) > 0
}

// named has the lease of the hold not be handed on, as a record is about to name it, and reports
// whether the hold is not being unlocked yet.
//
// Safety: so what a record says of a lease is never said of another caller's hold, however late the
// record goes (TestDeadlockOfALeaseIsNotHandedOn).
func (h *hold) named() bool {
	h.lease.mu.Lock()
	defer h.lease.mu.Unlock()
	h.lease.named = h.lease.named || h.state == holdGood
	return h.state == holdGood
}

// waits is what a record says in Meta.Waits.
type waits struct {
	mode       backend.Mode
	where, key string
}

func (w waits) String() string { return w.mode.String() + "\n" + w.where + "\n" + w.key }

func parseWaits(text string) (w waits, ok bool) {
	parts := strings.SplitN(text, "\n", 3)
	if len(parts) < 3 {
		return w, false
	}
	if parts[0] == backend.Shared.String() {
		w.mode = backend.Shared
	}
	w.where, w.key = parts[1], parts[2]
	return w, true
}

// A step is a hold that is in the way of a wait, with the record of what its holder waits for.
type step struct {
	of     waits // the wait
	hold   backend.Holder
	record backend.Holder
	waits  waits // what it says
}

// A chase follows those who hold what a wait is for to what they wait for, by the store.
//
// Safety: it asks and changes nothing. A hold and a record have names that no other has, and
// neither comes back once it is gone. So what is read twice was there in between, and when the
// second reading begins every step of the way is true at the same moment: each was read before it,
// and is there after it (TestNoDeadlockIfOneLetsGo).
type chase struct {
	b    backend.Backend
	ends map[string]bool // the owners of the records at which it has come round
	// whose holds are not in the way: those of the wait's own re-entrant owner
	owner string
	asks  int // how many records it has asked for
}

// look returns the steps from a wait to where the chase ends, each read twice, or nil.
func (c *chase) look(ctx context.Context, from waits) []step {
	from.where = ""
	way := c.follow(ctx, from, nil, map[waits]bool{})
	for _, s := range way {
		if len(c.steps(ctx, s.of, &s)) == 0 { // safeguard: deadlock-again
			return nil
		}
	}
	return way
}

// follow returns the way from a wait, behind way. seen are the waits it has been at.
func (c *chase) follow(ctx context.Context, of waits, way []step, seen map[waits]bool) []step {
	for _, s := range c.steps(ctx, of, nil) {
		to, next := slices.Concat(way, []step{s}), waits{mode: s.waits.mode, key: s.waits.key}
		if c.ends[s.record.Owner] {
			return to
		}
		if !seen[next] {
			seen[next] = true
			if found := c.follow(ctx, next, to, seen); found != nil {
				return found
			}
		}
	}
	return nil
}

// steps asks the store who is in the way of a wait and waits itself; only says which one is wanted,
// nil that all are.
func (c *chase) steps(ctx context.Context, of waits, only *step) (all []step) {
	state, _ := c.b.Inspect(ctx, of.key)
	// Half of what is left, so that something is left for those behind.
	most := c.asks + (deadlockLooks-c.asks+1)/2
	// Each has its turn, in one look or another.
	if h := state.Holders; len(h) > most-c.asks && only == nil {
		rand.Shuffle(len(h), func(i, j int) { h[i], h[j] = h[j], h[i] })
	}
	for _, h := range state.Holders {
		// Of shared holds it is not sure, see waitsFor, and of permits any may be given back.
		if h.Mode == backend.Permit || h.Mode == backend.Shared && of.mode == backend.Shared ||
			h.Owner == c.owner ||
			only != nil && only.hold.ID != h.ID || c.asks >= most && only == nil {
			continue
		}
		c.asks++
		record, _ := c.b.Inspect(ctx, recordKey(of.key, h.ID))
		if len(record.Holders) != 1 || only != nil && only.record.Owner != record.Holders[0].Owner {
			continue
		}
		if to, ok := parseWaits(record.Holders[0].Meta.Waits); ok {
			all = append(all, step{of, h, record.Holders[0], to})
		}
	}
	return all
}

// cycleOf returns the waits of a way that has come round, the last first.
func cycleOf(way []step) []Waiting {
	var cycle []Waiting
	for _, s := range way {
		who := s.record.Meta
		who.Waits, who.Since = "", time.Time{}
		cycle = append(cycle, Waiting{s.of.key, s.hold.Token, s.waits.key, s.waits.where, who})
	}
	if last := len(cycle) - 1; last > 0 {
		cycle = append(cycle[last:], cycle[:last]...)
	}
	return cycle
}

// Deadlocks returns the deadlocks of a namespace in a store, for people and tools. Each is a circle
// of waits of a second or more, see [Config].BreakDeadlocks: each waits for what the next one
// holds, and the last for what the first holds. It lists the store's locks, and then asks twice for
// each wait and holder. The error is that of the list, [errors.ErrUnsupported] if the store cannot
// list its locks.
func Deadlocks(ctx context.Context, b backend.Backend,
	namespace string,
) (all [][]Waiting, err error) {
	var records []backend.Holder
	for l, err := range b.List(ctx, backend.Namespaced(namespace, recordPrefix)) {
		if err != nil {
			return nil, err
		}
		records = append(records, l.State.Holders...)
	}
	known := map[string]bool{} // the records of cycles that were found
	for _, r := range records {
		from, ok := parseWaits(r.Meta.Waits)
		if !ok || known[r.Owner] {
			continue
		}
		c := chase{b: b, ends: map[string]bool{r.Owner: true}}
		way := c.look(ctx, from)
		for _, s := range way {
			known[s.record.Owner] = true
		}
		if way != nil {
			all = append(all, cycleOf(way))
		}
	}
	return all, nil
}
