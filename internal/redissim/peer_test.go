package redissim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
)

// free is how other libraries release.
const free = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', ` +
	`KEYS[1]) end return 0`

// peer locks keys as other libraries do: SET NX PX, and compare-and-delete. Its locks have no
// token.
func (c *client) peer(name string, r *rand.Rand) {
	w := c.w
	l := link{c, w.servers, 2 * w.ttl}
	ctx := context.Background()
	for i := range rounds {
		time.Sleep(w.length(r) + time.Duration(1+r.IntN(1000)))
		key, id := w.keys[r.IntN(len(w.keys))], fmt.Sprint("peer ", i)
		sent := time.Now()
		reply, _ := l.do(ctx, l.serverOf(key), "SET "+key+" NX", "", func(s *server) (any, error) {
			return s.redis.Do("SET", key, id, "NX", "PX", fmt.Sprint(w.ttl.Milliseconds()))
		})
		until := sent.Add(w.ttl - w.ttl/50)
		if reply != nil && time.Now().Before(until) {
			e := history.Event{
				Worker: name, Key: key, Asked: sent.Sub(w.net.start),
				Start: time.Since(w.net.start),
			}
			time.Sleep(min(w.length(r), time.Until(until)))
			e.End = time.Since(w.net.start)
			w.mu.Lock()
			w.events = append(w.events, e)
			w.mu.Unlock()
		}
		_, _ = l.do(ctx, l.serverOf(key), "FREE "+key, "", func(s *server) (any, error) {
			return s.redis.Eval(free, []string{key}, []string{id})
		})
	}
}
