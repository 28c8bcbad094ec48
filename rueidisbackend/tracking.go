package rueidisbackend

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/waiting"
)

// atOnce is how many keys are read again at the same time after a flush or a lost connection.
const atOnce = 64

// tracking is who watches which key, by what the server says of changes.
//
// A read with CLIENT CACHING YES registers interest in its key with the connection; the next write of the key, by anybody
// (also by this client, as NOLOOP is not asked for), takes the interest away and is told. Then the key is read again, which
// registers anew, and whoever watches is woken if who holds has changed: a renewal is told too, and wakes nobody.
//
// Nothing is missed: an invalidation marks its key before a reader can take the mark away, a read begins after that, and what
// is written after the read is told again. A lost connection is told as a flush, which marks all keys.
type tracking struct {
	b      *Backend
	ctx    context.Context // ends with close
	cancel context.CancelFunc
	tasks  sync.WaitGroup
	nudge  chan struct{} // one slot: a key was marked

	mu      sync.Mutex
	closed  bool
	started bool
	keys    map[string]*interest // by key in Redis
	marked  map[string]struct{}
}

// An interest is that in one key.
type interest struct {
	key      string // as claims have it
	marks    uint64 // how often it was marked
	watchers map[*watcher]struct{}
}

// A watcher is one Watch. seen is empty until its first read is back.
type watcher struct {
	owner string
	wake  chan backend.Wake // one slot
	held  bool              // owner held when last seen
	seen  string            // who held and waited then
	known bool
}

func newTracking(b *Backend) *tracking {
	ctx, cancel := context.WithCancel(context.Background())
	return &tracking{
		b: b, ctx: ctx, cancel: cancel, nudge: make(chan struct{}, 1),
		keys: map[string]*interest{}, marked: map[string]struct{}{},
	}
}

// Watch signals when another holds c.Key than before, or nobody; for a claim that holds, when its hold is gone, be it
// released, deleted or flushed; for a claim in line, when the key is handed over to it. Claims in line share one pub/sub
// connection, all others the one that requests go by; when either is lost, every watcher is signalled, as it may have missed
// a message. Watch returns when the server has confirmed it, when ctx is done, or after RequestTimeout.
//
// For a claim in line the error is [errors.ErrUnsupported] if the user may not subscribe, or may not publish: then nobody
// would be woken. The end of a lease is not signalled.
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if c.Queue {
		return b.verbs.Watch(ctx, c)
	}
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	return b.track.watch(ctx, c)
}

func (t *tracking) watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	name, w := t.b.store.Layout.Key(c.Key), &watcher{owner: c.Owner, wake: make(chan backend.Wake, 1)}
	marks, ok := t.enter(name, c.Key, w)
	if !ok {
		return nil, backend.ErrClosed
	}
	state, err := t.read(ctx, c.Key)
	if err != nil {
		t.leave(name, w)
		return nil, err
	}
	t.first(name, w, state, marks)
	context.AfterFunc(ctx, func() { t.leave(name, w) })
	return w.wake, nil
}

// first takes a watcher's first read, which was sent at marks.
func (t *tracking) first(name string, w *watcher, state backend.State, marks uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if w.note(state); !w.held && len(state.Holders) == 0 { // one that held is told of a loss that came before
		w.signal()
	}
	if in := t.keys[name]; in != nil && in.marks != marks { // what it says may be older than what was read meanwhile
		t.mark(name, in)
	}
}

// enter adds a watcher. It is there before its first read, so no change after that read is missed.
func (t *tracking) enter(name, key string, w *watcher) (marks uint64, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return 0, false
	}
	if !t.started {
		t.started = true
		t.tasks.Go(t.serve)
	}
	in := t.keys[name]
	if in == nil {
		in = &interest{key: key, watchers: map[*watcher]struct{}{}}
		t.keys[name] = in
	}
	in.watchers[w] = struct{}{}
	return in.marks, true
}

func (t *tracking) leave(name string, w *watcher) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if in := t.keys[name]; in != nil {
		delete(in.watchers, w)
		if len(in.watchers) == 0 {
			delete(t.keys, name)
			delete(t.marked, name)
		}
	}
}

// read inspects a key and registers interest in it.
func (t *tracking) read(ctx context.Context, key string) (backend.State, error) {
	l := t.b.store.Layout
	reply, err := t.b.ask(ctx, evalScript{Script: l.Scripts().Inspect, keys: l.Keys(key), args: l.Inspect(), tracked: true})
	if err != nil {
		return backend.State{}, err
	}
	return script.DecodeInspect(reply)
}

// ask is call, with an error as the verbs return it.
func (b *Backend) ask(ctx context.Context, s evalScript) (any, error) {
	if !b.store.Gate.Enter() {
		return nil, backend.ErrClosed
	}
	defer b.store.Gate.Leave()
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	reply, err := b.call(ctx, s)
	return reply, b.store.Failure(ctx, err)
}

// invalidated is told by the connection's reader which keys were changed; nil stands for all of them, when the database was
// flushed or the connection is lost. It must not wait for anything.
func (b *Backend) invalidated(keys []rueidis.RedisMessage) {
	if keys == nil {
		b.held.forgetAll()
		b.track.changedAll()
		return
	}
	for _, k := range keys {
		if name, err := k.ToString(); err == nil {
			b.held.forget(name)
			b.track.changed(name)
		}
	}
}

// changed marks a key.
func (t *tracking) changed(name string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if in := t.keys[name]; in != nil {
		t.mark(name, in)
	}
}

// changedAll marks all keys, and wakes those who wait for one. Those who hold are woken if they are found to hold no more.
func (t *tracking) changedAll() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for name, in := range t.keys {
		t.mark(name, in)
		for w := range in.watchers {
			if w.known && !w.held {
				w.signal()
			}
		}
	}
}

// mark has the key read again. The caller has the lock.
func (t *tracking) mark(name string, in *interest) {
	in.marks++
	t.marked[name] = struct{}{}
	select {
	case t.nudge <- struct{}{}:
	default: // serve has yet to look, and will see this one too
	}
}

// serve reads keys again that were marked.
func (t *tracking) serve() {
	backoff := waiting.NewBackoff(firstRestart, lastRestart)
	for {
		select {
		case <-t.nudge:
		case <-t.ctx.Done():
			return
		}
		if t.readMarked() {
			backoff.Reset()
			continue
		}
		waiting.Pause(t.ctx, backoff.Next())
	}
}

const (
	firstRestart = 10 * time.Millisecond
	lastRestart  = time.Second
)

// readMarked reads the keys that are marked now. It reports whether the server answered for all of them.
func (t *tracking) readMarked() (all bool) {
	t.mu.Lock()
	marked := t.marked
	t.marked = map[string]struct{}{}
	t.mu.Unlock()
	var readers sync.WaitGroup
	var failed sync.Map
	places := make(chan struct{}, atOnce)
	for name := range marked {
		places <- struct{}{}
		readers.Go(func() {
			defer func() { <-places }()
			if !t.readAgain(name) {
				failed.Store(name, nil)
			}
		})
	}
	readers.Wait()
	all = true
	failed.Range(func(name, _ any) bool {
		all = false
		t.changed(name.(string)) //nolint:errcheck // only strings are stored
		return true
	})
	return all
}

// readAgain reads a key and wakes whom that concerns. A key that is not a lock any more is no hold either.
func (t *tracking) readAgain(name string) bool {
	t.mu.Lock()
	in := t.keys[name]
	t.mu.Unlock()
	if in == nil {
		return true
	}
	state, err := t.read(t.ctx, in.key)
	if err != nil && !backend.Refused(err) {
		return false
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	for w := range in.watchers {
		if w.known && w.note(state) {
			w.signal()
		}
	}
	return true
}

// note takes a state for what was seen last, and reports whether that concerns the watcher: one that holds wants to know when
// it does so no more, all others when others hold or wait than before.
func (w *watcher) note(s backend.State) (concerned bool) {
	held := slices.ContainsFunc(s.Holders, func(h backend.Holder) bool { return h.Owner == w.owner })
	var b strings.Builder
	b.WriteString(strconv.FormatUint(s.Token, 10)) // somebody held in between: the key was free twice
	for _, h := range s.Holders {
		b.WriteString("\n" + h.Owner)
	}
	for _, q := range s.Waiters {
		b.WriteString("\n" + q.Owner)
	}
	seen := b.String()
	concerned = w.held && !held || !w.held && seen != w.seen
	w.held, w.seen, w.known = held, seen, true
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
func (t *tracking) close() {
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
	for _, in := range t.keys {
		for w := range in.watchers {
			close(w.wake)
		}
	}
	t.keys = map[string]*interest{}
}
