// Package web keeps requests about one thing apart, in handlers of net/http on several machines.
package web

import (
	"net/http"

	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/fence"
)

// OneAtATime serves a request while it holds the lock that key names, such as the order in the
// path; "" needs none. A request whose lock another has does not wait: it gets 409 Conflict, with
// Retry-After where there is an estimate, and 503 if the store does not answer. The request's
// context ends if the lock is lost, and locker.HoldFrom finds the fencing token in it, for what the
// handler writes to.
func OneAtATime(c *locker.Client[struct{}], key func(*http.Request) string,
	next http.Handler,
) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := key(r)
		if name == "" {
			next.ServeHTTP(w, r)
			return
		}
		g, err := c.TryLock(r.Context(), name)
		if err != nil {
			fence.Refuse(w, err)
			return
		}
		// The answer is written, and its error would come too late for it.
		defer func() { _ = g.Unlock() }()
		next.ServeHTTP(w, r.WithContext(g.Context()))
	})
}
