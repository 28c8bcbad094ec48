package record

import (
	"context"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A lookout reads the records that somebody of this process watches, when they may have changed,
// and signals those whom that concerns. What it does depends on what a record is when it looks, so
// it does not matter how many changes one look is for, or how often it is told of one.
type lookout struct {
	b    *Backend
	ctx  context.Context // ends with Close
	stop context.CancelFunc
	wake chan struct{} // one slot: something is dirty

	subscribing chan struct{} // one slot, taken while Config.Watch is called
	subscribed  bool          // by whoever has the slot

	mu      sync.Mutex
	closed  bool
	watched map[string]int // by key: how many watch it
	// of those: which are to be looked at, and whether the store told of them
	dirty map[string]bool
	// of those: the record at the last look, encoded, if nobody has asked since
	seen    map[string]string
	reads   string // the key that is being read, if nobody has asked since
	running bool
	tasks   sync.WaitGroup
}

func (l *lookout) start(b *Backend) {
	l.b, l.wake, l.watched, l.dirty = b, make(chan struct{}, 1), map[string]int{}, map[string]bool{}
	l.seen, l.subscribing = map[string]string{}, make(chan struct{}, 1)
	l.ctx, l.stop = context.WithCancel(context.Background())
}

// close ends the lookout and waits for it.
func (l *lookout) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.tasks.Wait()
}

// subscribe has the store tell of changes, from the first watch on. The subscription is for all who
// watch, so Config.Watch has a ctx that ends with Close; a caller waits for it no longer than until
// its own is done.
func (l *lookout) subscribe(ctx context.Context) error {
	if l.b.cfg.Watch == nil {
		return nil
	}
	select {
	case l.subscribing <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	if l.subscribed {
		<-l.subscribing
		return nil
	}
	answer := make(chan error, 1)
	l.tasks.Go(func() { // before Close waits, which waits for the caller first
		err := l.b.cfg.Watch(l.ctx, l.changed)
		l.subscribed = err == nil // safeguard: record-subscribed
		<-l.subscribing
		answer <- err
	})
	select {
	case err := <-answer:
		return err
	case <-ctx.Done(): // safeguard: record-subscribe
		return ctx.Err()
	}
}

// changed notes that key's record is to be looked at, or with "" every one that is watched.
func (l *lookout) changed(key string) { l.mark(key, true) }

func (l *lookout) mark(key string, told bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case key == "":
		for watched := range l.watched {
			l.dirty[watched] = told || l.dirty[watched]
		}
	case l.watched[key] > 0:
		l.dirty[key] = told
	}
	if len(l.dirty) > 0 {
		select {
		case l.wake <- struct{}{}:
		default:
		}
	}
}

// enter watches key for topic until leave is called.
func (l *lookout) enter(key, topic string) (wake <-chan backend.Wake, leave func()) {
	wake, leaveHub := l.b.hub.Enter(topic)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watched[key]++
	if !l.running && !l.closed {
		l.running = true
		l.tasks.Go(l.run)
	}
	return wake, sync.OnceFunc(func() {
		leaveHub()
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.watched[key]--; l.watched[key] == 0 {
			delete(l.watched, key)
			delete(l.dirty, key)
			delete(l.seen, key)
		}
	})
}

// run looks at what is dirty, and at everything that is watched from time to time, until nobody
// watches.
func (l *lookout) run() {
	every := backend.SlowLook
	if l.b.cfg.Watch == nil {
		every = l.b.cfg.Poll
	}
	timer := time.NewTimer(waiting.Jitter(every))
	defer timer.Stop()
	for {
		select {
		case <-l.wake:
		case <-timer.C:
			l.mark("", false)
			timer.Reset(waiting.Jitter(every))
		case <-l.ctx.Done():
			return
		}
		keys, goOn := l.take()
		if !goOn {
			return
		}
		for key, told := range keys {
			l.look(key, told)
		}
	}
}

// take returns what is dirty. Without a watch it ends the run.
func (l *lookout) take() (keys map[string]bool, goOn bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys, l.dirty = l.dirty, map[string]bool{}
	// In one step, or who comes in between starts none. safeguard: lookout-ends
	l.running = len(l.watched) > 0
	return keys, l.running
}

// asked notes that a claim of this process was answered by key's record: by one that may have come
// after the last look, and gone before the next.
func (l *lookout) asked(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, key)
	if l.reads == key {
		l.reads = "" // safeguard: record-asked-meanwhile
	}
}

// look signals whom key's record has something for, unless it is the one of the last look. If there
// is no answer, the next look is for this one too.
func (l *lookout) look(key string, told bool) {
	l.mu.Lock()
	l.reads = key
	l.mu.Unlock()
	r, now, err := l.b.read(l.ctx, key)
	if err != nil {
		return
	}
	found := string(r.Encode(key)) // safeguard: record-as-seen
	l.mu.Lock()
	before, known := l.seen[key]
	if l.watched[key] > 0 && l.reads == key {
		l.seen[key] = found
	}
	l.mu.Unlock()
	if known && before == found && !told {
		return
	}
	r.Trim(now)
	r.Signal(&l.b.hub, key)
	l.b.hub.Wake(observers(key), backend.Wake{})
}

// observers is the topic of those who observe key; no key and no claim has it.
func observers(key string) string { return key + "\xfe" }

// Watch implements [backend.Backend].
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	wake, leave, err := b.watch(ctx, c.Key, Topic(c))
	if err == nil {
		context.AfterFunc(ctx, leave)
	}
	return wake, err
}

// watch is subscribed when it returns.
func (b *Backend) watch(ctx context.Context, key,
	topic string,
) (wake <-chan backend.Wake, leave func(), err error) {
	if err := backend.ValidateKey(key); err != nil {
		return nil, nil, err
	}
	bounded, done, err := b.use(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer done()
	if err := b.look.subscribe(bounded); err != nil {
		if bounded.Err() != nil && ctx.Err() == nil { // no ctx of the caller has ended
			err = fmt.Errorf("%w: no subscription within %v", backend.ErrUnavailable, b.cfg.Timeout)
		}
		return nil, nil, err
	}
	wake, leave = b.look.enter(key, topic)
	return wake, leave, nil
}

// Observe implements [backend.Backend], where the store gives notice of changes. A hold has to last
// for as long as a notice and a read take.
func (b *Backend) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	if b.cfg.Watch == nil {
		return b.Base.Observe(ctx, key)
	}
	return func(yield func(backend.State, error) bool) {
		changed, leave, err := b.watch(ctx, key, observers(key))
		if err != nil {
			yield(backend.State{}, err)
			return
		}
		defer leave()
		look := func(ctx context.Context) (backend.State, error) { return b.Inspect(ctx, key) }
		if backend.ObserveBy(ctx, backend.SlowLook, changed, look, yield) {
			yield(backend.State{}, backend.ErrClosed)
		}
	}
}
