package locker

import "context"

// TraceparentOf is what a claim made under ctx takes to the store.
func TraceparentOf(ctx context.Context) string {
	text, _ := ctx.Value(traceparentKey{}).(string)
	return text
}
