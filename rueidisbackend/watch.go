package rueidisbackend

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/waiting"
)

const (
	// Bytes of rueidis' cache, a few hundred for each key that is watched.
	cacheSize = 8 << 20
	// Above that of every lock's key: what is cached ends with its key.
	cacheTTL = 400 * 24 * time.Hour

	looksAtOnce   = 64 // at the same time, after a flush or a lost connection
	firstRestart  = 10 * time.Millisecond
	lastRestart   = time.Second
	firstPause    = 10 * time.Millisecond // between two looks, see watcher.pause
	looksPerLease = 12                    // at most, in the long run
	maxHeld       = 1 << 14               // keys of which it is known; of more, any is forgotten
)

// watches are those who watch keys by what the server says of changes.
//
// A look at a key is a read through rueidis' cache (CLIENT CACHING YES): the next write of the
// key, by anybody (also by this client, as NOLOOP is not asked for), is told, and drops what is
// cached. Then the watchers of the key look again, which registers anew, and are signalled if who
// holds has changed. A look costs the server a GET, or an HMGET of four fields, however many wait
// for the key: heartbeats of waiters write the key too, so looks must neither cost more the more
// wait, nor be made for each write. A look that comes after quiet is made at once; while changes
// go on that are none to one who holds, its looks become as rare as every TTL/12.
//
// Nothing is missed: a change counts before anything else is done about it, a look that began
// before it is made again, and what is written after a look was executed is told again. A lost
// connection is told as a flush, which concerns all keys.
type watches struct {
	b      *Backend
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	nudge  chan struct{} // one slot: somebody is to look

	mu      sync.Mutex
	closed  bool
	started bool
	keys    map[string]map[*watcher]struct{} // by key in Redis
	due     map[*watcher]struct{}            // who looks next
}

// A watcher is one Watch. Its fields are guarded by watches.mu.
type watcher struct {
	name string            // of the key in Redis
	id   string            // of the claim there
	most time.Duration     // the longest pause
	wake chan backend.Wake // one slot

	changes uint64 // of the key that were told
	delayed bool   // a look is due, after a pause
	looked  time.Time
	// until the next look; doubles while changes go on that are none to the watcher
	pause time.Duration
	known bool // the first look is back
	held  bool // the claim held when it was last looked at
	seen  string
}

func newWatches(b *Backend) *watches {
	ctx, cancel := context.WithCancel(context.Background())
	return &watches{
		b: b, ctx: ctx, cancel: cancel, nudge: make(chan struct{}, 1),
		keys: map[string]map[*watcher]struct{}{}, due: map[*watcher]struct{}{},
	}
}

// enter adds a watcher, before its first look, so that no change after that is missed.
func (t *watches) enter(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	l := t.b.store.Layout
	w := &watcher{
		name: l.Key(c.Key), id: l.OwnerID(c), most: max(c.TTL/looksPerLease, firstPause),
		wake: make(chan backend.Wake, 1),
	}
	if !t.add(w) {
		return nil, backend.ErrClosed
	}
	found, err := t.b.look(ctx, w.name, w.id)
	if err != nil {
		t.leave(w)
		return nil, err
	}
	t.first(w, found, 0)
	context.AfterFunc(ctx, func() { t.leave(w) })
	return w.wake, nil
}

func (t *watches) add(w *watcher) (ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if !t.started {
		t.started = true
		t.tasks.Go(t.serve)
	}
	if t.keys[w.name] == nil {
		t.keys[w.name] = map[*watcher]struct{}{}
	}
	t.keys[w.name][w] = struct{}{}
	return true
}

// first takes a watcher's first look, which began at so many changes.
func (t *watches) first(w *watcher, found lookup, changes uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed { // and w.wake with it, or soon. safeguard: rueidis-first-look-closed
		return
	}
	if w.note(found); !w.held && found.free { // one that held is told if it lost the key to nobody
		w.signal()
	}
	if w.changes != changes { // a later look may have been back earlier
		t.lookAgain(w)
	}
}

func (t *watches) leave(w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.due, w)
	if all := t.keys[w.name]; all != nil {
		if delete(all, w); len(all) == 0 {
			delete(t.keys, w.name)
		}
	}
}

// invalidated is told by the connection's reader which keys were changed; nil stands for all of
// them, when the database was flushed or the connection is lost. It must not wait for anything.
func (b *Backend) invalidated(keys []rueidis.RedisMessage) {
	if keys == nil {
		b.held.forgetAll()
		b.watch.changedAll()
		return
	}
	for _, k := range keys {
		if name, err := k.ToString(); err == nil {
			b.held.forget(name)
			b.watch.changed(name)
		}
	}
}

// changed has the watchers of a key look again.
func (t *watches) changed(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range t.keys[name] {
		w.changes++
		t.lookAgain(w)
	}
}

// changedAll has everybody look again, and wakes those who wait. Those who hold are woken if they
// are found to hold no more.
func (t *watches) changedAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.keys {
		for w := range all {
			w.changes++
			t.lookAgain(w)
			if w.known && !w.held {
				w.signal()
			}
		}
	}
}

// lookAgain has a watcher look, when its pause is over. The caller has the lock.
func (t *watches) lookAgain(w *watcher) {
	if w.delayed {
		return
	}
	since := time.Since(w.looked)
	// safeguard: rueidis-waiter-looks
	if !w.known || !w.held || since >= w.most {
		w.pause = firstPause
	}
	if since >= w.pause {
		t.lookNow(w)
		return
	}
	w.delayed = true
	time.AfterFunc(w.pause-since, func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		w.delayed, w.pause = false, min(2*w.pause, w.most)
		t.lookNow(w)
	})
}

// lookNow has a watcher look, unless it has left. The caller has the lock.
func (t *watches) lookNow(w *watcher) {
	if _, ok := t.keys[w.name][w]; !ok || t.closed {
		return
	}
	t.due[w] = struct{}{}
	select {
	case t.nudge <- struct{}{}:
	default: // serve has yet to look, and will see this one too
	}
}

// serve looks for those who are due.
func (t *watches) serve() {
	backoff := waiting.NewBackoff(firstRestart, lastRestart)
	for {
		select {
		case <-t.nudge:
		case <-t.ctx.Done():
			return
		}
		if t.lookAll() {
			backoff.Reset()
			continue
		}
		waiting.Pause(t.ctx, backoff.Next())
	}
}

// lookAll looks for those who are due now. It reports whether the server answered for all of them.
func (t *watches) lookAll() (all bool) {
	t.mu.Lock()
	due := t.due
	t.due = map[*watcher]struct{}{}
	t.mu.Unlock()
	var looks sync.WaitGroup
	places, failed := make(chan struct{}, looksAtOnce), make(chan *watcher, len(due))
	for w := range due {
		places <- struct{}{}
		looks.Go(func() {
			defer func() { <-places }()
			if !t.look(w) {
				failed <- w
			}
		})
	}
	looks.Wait()
	close(failed)
	all = true
	for w := range failed {
		all = false
		t.mu.Lock()
		t.lookNow(w)
		t.mu.Unlock()
	}
	return all
}

// look looks for a watcher and wakes it if that concerns it. A key that is not a lock any more is
// no hold either.
func (t *watches) look(w *watcher) (answered bool) {
	t.mu.Lock()
	changes := w.changes
	w.looked = time.Now()
	t.mu.Unlock()
	found, err := t.b.look(t.ctx, w.name, w.id)
	if err != nil && !backend.Refused(err) { // safeguard: rueidis-looked-in-vain
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.known && w.note(found) {
		w.signal()
	}
	if w.changes != changes {
		t.lookAgain(w)
	}
	return true
}

// note takes a look for what was seen last, and reports whether that concerns the watcher: one
// that holds wants to know when it does so no more, all others when others hold than before, or
// nobody (also if somebody held in between).
func (w *watcher) note(found lookup) (concerned bool) {
	// safeguard: rueidis-free-again
	concerned = w.held && !found.holds || !w.held && (found.who != w.seen || found.free)
	w.held, w.seen, w.known = found.holds, found.who, true
	return concerned
}

// signal fills the watcher's slot.
func (w *watcher) signal() {
	select {
	case w.wake <- backend.Wake{}:
	default: // a signal already waits there
	}
}

// close ends the watches.
func (t *watches) close() {
	t.mu.Lock()
	first := !t.closed
	t.closed = true
	t.mu.Unlock()
	t.cancel()
	t.tasks.Wait()
	if !first {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, all := range t.keys {
		for w := range all {
			close(w.wake)
		}
	}
	clear(t.keys)
}

// A lookup is what a look at a key found.
type lookup struct {
	who   string // what differs whenever others hold
	holds bool   // the claim that looks does
	free  bool   // nobody does
	owner script.Owner
	rest  time.Duration // of the owner's lease
}

// look reads who holds a key, through rueidis' cache. A lock that one holds while nobody waits is
// a string; else it is a hash, or in the dialect nothing of ours.
func (b *Backend) look(ctx context.Context, name, id string) (lookup, error) {
	if err := b.store.Begin(ctx); err != nil {
		return lookup{}, err
	}
	defer b.store.End()
	var reply rueidis.RedisMessage
	var err error
	for range 3 { // between GET and HMGET one may become the other
		reply, err = b.cached(ctx, b.client.B().Get().Key(name).Cache())
		if rueidis.IsRedisNil(err) {
			return lookup{free: true}, nil
		}
		if code, _ := replyCode(err); code != "WRONGTYPE" || b.cfg.Dialect != "" {
			break
		}
		fields := b.client.B().Hmget().Key(name).Field(script.OwnerFields(id)...)
		if reply, err = b.cached(ctx, fields.Cache()); err == nil {
			return seenInHash(reply, id)
		}
	}
	if err != nil {
		return lookup{}, b.store.Failure(ctx, err)
	}
	value, err := reply.ToString()
	if err != nil {
		return lookup{}, b.store.Failure(ctx, err)
	}
	o, ok := b.store.Layout.ParseOwner(value)
	if !ok {
		return lookup{who: "foreign"}, nil
	}
	rest := time.Duration(reply.CachePTTL())*time.Millisecond - o.Keep
	who := strings.TrimRight(value, " ") // without the mark of somebody who watches by other means
	free := o.ID == "" || rest <= 0
	return lookup{who: who, holds: o.ID == id, free: free, owner: o, rest: rest}, nil
}

func seenInHash(reply rueidis.RedisMessage, id string) (found lookup, err error) {
	fields, err := reply.ToArray()
	if err != nil {
		return found, err
	}
	texts := make([]string, len(fields))
	for i := range fields {
		texts[i], _ = fields[i].ToString() // empty for a field that is not there
	}
	found.who = strings.Join(texts, "\n")
	if len(texts) == 4 {
		found.holds, found.free = texts[0] == id || texts[2] != "", texts[0] == "" && texts[1] == ""
	}
	return found, nil
}

// cached reads through rueidis' cache.
func (b *Backend) cached(ctx context.Context,
	command rueidis.Cacheable,
) (m rueidis.RedisMessage, err error) {
	command = command.Pin()
	for range 2 {
		m, err = send(ctx, b, func(ctx context.Context) (rueidis.RedisMessage, error) {
			return b.client.DoCache(ctx, command, cacheTTL).ToMessage()
		})
		if ctx.Err() != nil || !errors.Is(err, context.Canceled) &&
			!errors.Is(err, context.DeadlineExceeded) {
			break // else it was another's request, which this one joined and that one has left
		}
	}
	return m, err
}

// heldKeys are the keys of which the server said that another claim holds them, see
// Config.HeldAnswers. What it said is in rueidis' cache, and dropped with the next change of the
// key. It is never more than a refusal: that a key is free is always the server's word.
//
// Argument. A key is here if an attempt on it was refused, and since before that attempt was sent
// nothing was heard of any key, and no release or unanswered attempt of this client came to an
// end. So what is cached of it, or will be, is younger than everything that this client did. A
// claim that is refused is none that this client knows to hold, or to be in flight.
//
// The server tells of a key only once it was looked at, which the next attempt does. So one on
// which there is no other attempt stays, until it makes room for others.
type heldKeys struct {
	mu      sync.Mutex
	names   map[string]struct{}
	changes uint64
}

// answering are the verbs of a Backend with Config.HeldAnswers.
type answering struct {
	*store.Store
	b *Backend
}

// TryAcquire is that of the store, for a claim that may be refused without a request.
func (a answering) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	b := a.b
	if c.Queue || c.Reentrant || c.Mode != backend.Exclusive { // safeguard: rueidis-place
		return b.store.TryAcquire(ctx, c)
	}
	name, id := b.store.Layout.Key(c.Key), b.store.Layout.OwnerID(c)
	known, changes := b.held.look(name)
	if known && ctx.Err() == nil && c.Validate(b.Capabilities()) == nil {
		found, err := b.look(ctx, name, id)
		// safeguard: rueidis-held-lease
		if err == nil && found.owner.ID != "" && !found.holds && found.rest > 0 {
			return backend.Grant{}, &backend.HeldError{
				RetryAfter: found.rest, Holder: found.owner.Meta, Token: found.owner.Token,
			}
		}
		b.held.forget(name)
		_, changes = b.held.look(name)
	}
	g, err := b.store.TryAcquire(ctx, c)
	switch {
	case errors.Is(err, backend.ErrHeld):
		b.held.add(name, changes)
	case backend.AnswerOf(err) != backend.No:
		b.held.forget(name)
	}
	return g, err
}

// Release is that of the store. The server's own word that the key is free may come later than its
// answer.
func (a answering) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	told, err := a.Store.Release(ctx, c) // safeguard: rueidis-forgets-released
	a.b.held.forget(a.Layout.Key(c.Key))
	return told, err
}

// TryAcquireAll is that of the store. What is said of these keys may be older than what it did.
func (a answering) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) ([]backend.Grant, error) {
	grants, err := a.Store.TryAcquireAll(ctx, claims)
	a.forget(claims) // safeguard: rueidis-try-all
	return grants, err
}

// TryReleaseAll is that of the store, likewise.
func (a answering) TryReleaseAll(ctx context.Context, claims []backend.Claim) ([]bool, error) {
	released, err := a.Store.TryReleaseAll(ctx, claims)
	a.forget(claims) // safeguard: rueidis-try-release-all
	return released, err
}

// ReleaseAll is that of the store, likewise.
func (a answering) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	answers, err := a.Store.ReleaseAll(ctx, claims)
	a.forget(claims) // safeguard: rueidis-release-all
	return answers, err
}

func (a answering) forget(claims []backend.Claim) {
	for i := range claims {
		a.b.held.forget(a.Layout.Key(claims[i].Key))
	}
}

func (h *heldKeys) look(name string) (held bool, changes uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	_, held = h.names[name]
	return held, h.changes
}

// add adds a key, unless something has changed since then.
func (h *heldKeys) add(name string, changes uint64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.changes == changes { // safeguard: rueidis-held-since
		h.names[name] = struct{}{}
	}
	if len(h.names) > maxHeld { // safeguard: rueidis-held-bound
		for other := range h.names {
			delete(h.names, other)
			break
		}
	}
}

// forget drops a key. A nil receiver knows nothing.
func (h *heldKeys) forget(name string) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes++
	delete(h.names, name)
}

// forgetAll drops everything.
func (h *heldKeys) forgetAll() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.changes++
	clear(h.names)
}
