package tracing

import (
	"slices"
	"sync"

	"go.opentelemetry.io/otel/trace"

	"github.com/holdfast-go/holdfast/backend"
)

// maxLinks is how many holders a wait links to: the last ones.
const maxLinks = 16

// A blocker is a hold that was in somebody's way.
type blocker struct {
	span trace.SpanContext
	meta backend.Meta // of another process's; else zero
}

// blockers knows, per key, which holds were in the way of those who wait for it in this process, as
// far as was seen: holds of this process, and those that the store named in an answer to any claim
// of this process. A waiter reads at its end what happened since its beginning, so that a hold
// costs the same whether one waits for it or a thousand.
//
// Keys are those that locker gives, without the namespace.
type blockers struct {
	mu   sync.Mutex
	keys map[string]*blocked
}

// blocked is one key. It exists while somebody of this process waits for the key or holds it.
type blocked struct {
	users  int       // waits and holds of this process
	seen   []blocker // a ring, once it has maxLinks
	n      int       // how many there ever were
	active bool      // whether the last of them still is in the way, as far as is known

	claim trace.SpanContext // what the store calls the last hold of this process, if not by its span
}

// use returns the entry of a key for one more user. The caller has mu.
func (b *blockers) use(key string) *blocked {
	k := b.keys[key]
	if k == nil {
		k = &blocked{}
		if b.keys == nil {
			b.keys = map[string]*blocked{}
		}
		b.keys[key] = k
	}
	k.users++
	return k
}

// unuse ends what use began. The caller has mu.
func (b *blockers) unuse(key string, k *blocked) {
	if k.users--; k.users == 0 {
		delete(b.keys, key)
	}
}

// add makes one the last that was seen. The caller has mu.
func (k *blocked) add(one blocker) {
	if k.n < maxLinks {
		k.seen = append(k.seen, one)
	} else {
		k.seen[k.n%maxLinks] = one
	}
	k.n++
	k.active = true
}

// enter begins a wait. named is whom the store named in the answer that it waits because of, if it
// named anybody. from is what leave wants to know.
func (b *blockers) enter(key string, named blocker) (k *blocked, from int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k = b.use(key)
	k.named(named)
	if k.active {
		return k, k.n - 1
	}
	return k, k.n
}

// leave ends a wait and returns who was in its way, the latest last.
func (b *blockers) leave(key string, k *blocked, from int) (all []blocker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for i := max(from, k.n-maxLinks); i < k.n; i++ {
		all = append(all, k.seen[i%maxLinks])
	}
	b.unuse(key, k)
	return all
}

// named takes note of a holder that the store has named, if somebody waits.
func (b *blockers) named(key string, one blocker) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k := b.keys[key]; k != nil {
		k.named(one)
	}
}

// named is add for whom the store has named. Each claim has another name, so who was seen already
// is no news, and neither is the last hold of this process, which is known by its span. The caller
// has mu.
func (k *blocked) named(one blocker) {
	if !one.span.IsValid() || k.claim.SpanID() == one.span.SpanID() ||
		slices.ContainsFunc(k.seen, func(b blocker) bool { return b.span.SpanID() == one.span.SpanID() }) {
		return
	}
	k.add(one)
}

// granted begins a hold of this process. claim is what the store calls it, if not by its span.
func (b *blockers) granted(key string, span, claim trace.SpanContext) *blocked {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := b.use(key)
	k.add(blocker{span: span})
	k.claim = claim
	return k
}

// freed ends a hold of this process.
func (b *blockers) freed(key string, k *blocked, span trace.SpanContext) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if k.seen[(k.n-1)%maxLinks].span.SpanID() == span.SpanID() {
		k.active = false
	}
	b.unuse(key, k)
}
