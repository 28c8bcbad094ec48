package tracing

import (
	"sync"

	"go.opentelemetry.io/otel/trace"
)

// maxLinks is how many holders a wait links to: the last ones.
const maxLinks = 16

// blockers knows, per key, who was in the way of those who wait for it in this process, as far as was seen: holds of this
// process, and those that the store named when it was asked, by whomever. A waiter reads at its end what happened since its
// beginning, so that a hold costs the same whether one waits for it or a thousand.
//
// Keys are those that locker gives, without the namespace.
type blockers struct {
	mu    sync.Mutex
	keys  map[string]*blocked
	spare []*blocked // to be used again: most keys are here for a moment, again and again
}

const mostSpare = 64

// blocked is one key. It is there while somebody of this process waits or holds.
type blocked struct {
	users  int
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

// enter begins a wait. from is what leave wants to know.
func (b *blockers) enter(key string) (from int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.use(key)
	if k.inWay {
		return k.n - 1
	}
	return k.n
}

func (b *blockers) use(key string) *blocked {
	k := b.keys[key]
	if k == nil {
		if b.keys == nil {
			b.keys = map[string]*blocked{}
		}
		if n := len(b.spare); n > 0 {
			k, b.spare = b.spare[n-1], b.spare[:n-1]
		} else {
			k = &blocked{}
		}
		b.keys[key] = k
	}
	k.users++
	return k
}

// leave ends a wait and returns who was in its way, the latest last.
func (b *blockers) leave(key string, from int) (all []trace.SpanContext) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[key]
	for i := max(from, k.n-maxLinks); i < k.n; i++ {
		all = append(all, k.seen[i%maxLinks])
	}
	b.unuse(key, k)
	return all
}

func (b *blockers) unuse(key string, k *blocked) {
	if k.users--; k.users > 0 {
		return
	}
	delete(b.keys, key)
	if len(b.spare) < mostSpare {
		clear(k.seen)
		*k = blocked{seen: k.seen[:0]}
		b.spare = append(b.spare, k)
	}
}

// named takes note of a holder that the store has named. While this process has the key, that is news of the past.
func (b *blockers) named(key string, sc trace.SpanContext) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.keys[key]; k != nil && k.locals == 0 {
		k.add(sc)
	}
}

// held begins a hold of this process.
func (b *blockers) held(key string, sc trace.SpanContext) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.use(key)
	k.locals++
	k.add(sc)
}

// freed ends a hold of this process. If it is known whom the store grants the key next, that is who is in the way now.
func (b *blockers) freed(key string, sc, next trace.SpanContext) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.keys[key]
	k.locals--
	if last, ok := k.last(); ok && last.SpanID() == sc.SpanID() {
		k.inWay = false
	}
	if next.IsValid() && k.locals == 0 {
		k.add(next)
	}
	b.unuse(key, k)
}
