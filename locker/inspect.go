package locker

import (
	"context"
	"iter"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

// Inspect tells who holds key and who waits for it, as of now, for people and tools: it is no proof
// of ownership. It asks the store once.
func (c *Client[T]) Inspect(ctx context.Context, key string) (backend.State, error) {
	state, err := c.core.b.Inspect(ctx, backend.Namespaced(c.core.cfg.Namespace, key))
	if err != nil {
		return state, &Error{"inspect", key, err}
	}
	return state, nil
}

// List tells of the locks of the Client's namespace whose keys begin with prefix and that somebody
// holds or waits for, in no order, see [backend.Backend]. An error ends it. What long waits leave
// in the store for [Config].BreakDeadlocks is left out.
func (c *Client[T]) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		namespace := c.core.cfg.Namespace
		for l, err := range c.core.b.List(ctx, backend.Namespaced(namespace, prefix)) {
			if err != nil {
				yield(l, &Error{"list", prefix, err}) // safeguard: list-error
				return
			}
			key, ok := backend.InNamespace(namespace, l.Key)
			if l.Key = key; ok && !strings.HasPrefix(key, recordPrefix) && !yield(l, nil) {
				return
			}
		}
	}
}

// ForceRelease ends the hold of key that [Client.Inspect] shows with token, whoever holds it, and
// returns it. Its holder loses it as it would by any other cause, but not at once: its code may go
// on until the next renewal, or the store's word, says so, and the token alone tells the resource.
// If its Unlock is under way just then and its answer is lost, a [Store] may count what it was to
// save as saved.
//
// The error wraps [backend.ErrLost] if no hold has the token, and [errors.ErrUnsupported] if the
// store cannot do it.
func (c *Client[T]) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	h, err := c.core.b.ForceRelease(ctx, backend.Namespaced(c.core.cfg.Namespace, key), token)
	if err != nil {
		return h, &Error{"force release", key, err}
	}
	return h, nil
}
