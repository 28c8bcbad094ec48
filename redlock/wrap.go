package redlock

import (
	"context"

	"github.com/holdfast-go/holdfast/backend"
)

type wrapKey struct{}

// WithWrap returns a ctx under which [backend.Open] has wrap wrap each node that a redlock:// URL names, as tracing.Wrap does,
// now or when it is reached later. name is the node's URL without password and query. wrap may be called concurrently, and
// what it returns must close the node when it is closed, and forward [backend.Identifier].
func WithWrap(ctx context.Context, wrap func(name string, node backend.Backend) backend.Backend) context.Context {
	return context.WithValue(ctx, wrapKey{}, wrap)
}

// opening returns how to open the node of a URL, as often as needed.
func opening(ctx context.Context, raw string) func(context.Context) (backend.Backend, error) {
	wrap, _ := ctx.Value(wrapKey{}).(func(string, backend.Backend) backend.Backend)
	return func(ctx context.Context) (backend.Backend, error) {
		b, err := backend.Open(ctx, raw)
		if err == nil && wrap != nil {
			b = wrap(backend.Redact(raw), b)
		}
		return b, err
	}
}
