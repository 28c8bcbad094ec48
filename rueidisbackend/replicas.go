package rueidisbackend

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// A replicated script is one whose writes replicas must have.
type replicated struct {
	evalScript
	replicas int
	limit    time.Duration
}

type acknowledged struct {
	reply    any
	replicas int64
}

// RunAcknowledged executes a script and waits on its connection for replicas.
func (t transport) RunAcknowledged(
	ctx context.Context, s script.Script, keys, args []string, replicas int, limit time.Duration,
) (any, int, error) {
	reply, err := t.b.call(ctx, replicated{evalScript{Script: s, keys: keys, args: args}, replicas, limit})
	a, _ := reply.(acknowledged)
	return a.reply, int(a.replicas), err
}

// ask waits on a connection of its own, since WAIT holds up all that come behind it on one. (The reply to a script is read
// first, so a grant without acknowledgement is known as such.)
func (r replicated) ask(ctx context.Context, b *Backend) (any, error) {
	var a acknowledged
	err := b.client.Dedicated(func(c rueidis.DedicatedClient) (err error) {
		if a.reply, err = r.on(ctx, c); err != nil {
			return err
		}
		wait := c.B().Wait().Numreplicas(int64(r.replicas)).Timeout(max(r.limit.Milliseconds(), 1)).Build()
		a.replicas, err = c.Do(ctx, wait).ToInt64()
		return err
	})
	return a, err
}

// on runs the script on a connection.
func (s evalScript) on(ctx context.Context, c rueidis.DedicatedClient) (any, error) {
	run := func(command, what string) (any, error) {
		words := c.B().Arbitrary(command, what, strconv.Itoa(len(s.keys))).Args(s.keys...).Args(s.args...)
		return answer(c.Do(ctx, words.Build()))
	}
	reply, err := run("EVALSHA", s.SHA1)
	if refusedAs(err, "NOSCRIPT") {
		reply, err = run("EVAL", s.Source)
	}
	return reply, err
}
