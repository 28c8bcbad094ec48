package tracing

import (
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker"
)

// maxLinks is how many holders a wait links to: the last ones.
const maxLinks = 16

// blockers knows, per key, who was in the way of those who wait for it in this process, as far as was seen: holds of this
// process, and those that the store named when it was asked, by whomever. A waiter reads at its end what happened since its
// beginning, so that a hold costs the same whether one waits for it or a thousand.
//
// Keys are those that locker gives, without the namespace.
type blockers struct {
	mu   sync.Mutex
	keys map[string]*blocked
	idle []*blocked // which nobody uses: most keys are wanted for a moment, again and again
}

const mostIdle = 64

// blocked is one key. It is there while somebody of this process waits or holds, and for a while after.
type blocked struct {
	key    string
	users  int
	at     int                 // its place in idle, if nobody uses it
	class  *class              // of who asked last
	mode   backend.Mode        // his
	seen   []trace.SpanContext // a ring, once it has maxLinks
	n      int                 // how many there ever were
	inWay  bool                // whether the last of them still is, as far as is known
	locals int                 // holds of this process
}

func (b *blocked) last() (trace.SpanContext, bool) {
	if b.n == 0 {
		return trace.SpanContext{}, false
	}
	return b.seen[(b.n-1)%maxLinks], true
}

func (b *blocked) add(sc trace.SpanContext) {
	if last, ok := b.last(); !ok || last.SpanID() != sc.SpanID() || last.TraceID() != sc.TraceID() {
		if b.n < maxLinks {
			b.seen = append(b.seen, sc)
		} else {
			b.seen[b.n%maxLinks] = sc
		}
		b.n++
	}
	b.inWay = true
}

// enter begins a wait. from is what leave and granted want to know. class makes the hold's class if it is not at hand.
func (b *blockers) enter(h locker.Hold, class func(locker.Hold) *class) (k *blocked, c *class, from int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k = b.use(h.Key)
	if k.class == nil || k.mode != h.Mode {
		k.class, k.mode = class(h), h.Mode
	}
	if k.inWay {
		return k, k.class, k.n - 1
	}
	return k, k.class, k.n
}

func (b *blockers) use(key string) *blocked {
	k := b.keys[key]
	switch {
	case k == nil:
		k = b.fresh(key)
	case k.users == 0:
		last := b.idle[len(b.idle)-1]
		b.idle[k.at], last.at = last, k.at
		b.idle = b.idle[:len(b.idle)-1]
	}
	k.users++
	return k
}

// fresh makes room for a key.
func (b *blockers) fresh(key string) (k *blocked) {
	if b.keys == nil {
		b.keys = map[string]*blocked{}
	}
	if n := len(b.idle); n < mostIdle {
		k = &blocked{}
	} else {
		k, b.idle = b.idle[n-1], b.idle[:n-1]
		delete(b.keys, k.key)
	}
	k.key, k.class = key, nil
	b.keys[key] = k
	return k
}

// leave ends a wait that came to nothing and returns who was in its way, the latest last.
func (b *blockers) leave(k *blocked, from int) []trace.SpanContext {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := k.since(from)
	b.unuse(k)
	return all
}

// granted makes a hold of a wait, and returns who was in its way.
func (b *blockers) granted(k *blocked, from int, sc trace.SpanContext) []trace.SpanContext {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := k.since(from)
	k.locals++
	k.add(sc)
	return all
}

func (b *blocked) since(from int) (all []trace.SpanContext) {
	for i := max(from, b.n-maxLinks); i < b.n; i++ {
		all = append(all, b.seen[i%maxLinks])
	}
	return all
}

func (b *blockers) unuse(k *blocked) {
	if k.users--; k.users > 0 {
		return
	}
	if len(b.idle) == mostIdle {
		delete(b.keys, k.key)
		return
	}
	k.seen, k.n, k.inWay = k.seen[:0], 0, false
	k.at = len(b.idle)
	b.idle = append(b.idle, k)
}

// named takes note of a holder that the store has named. While this process has the key, that is news of the past.
func (b *blockers) named(key string, sc trace.SpanContext) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.keys[key]; k != nil && k.users > 0 && k.locals == 0 {
		k.add(sc)
	}
}

// freed ends a hold of this process. If it is known whom the store grants the key next, that is who is in the way now.
func (b *blockers) freed(k *blocked, sc trace.SpanContext, next *trace.SpanContext) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.locals--
	if last, ok := k.last(); ok && last.SpanID() == sc.SpanID() {
		k.inWay = false
	}
	if next != nil && k.locals == 0 {
		k.add(*next)
	}
	b.unuse(k)
}
