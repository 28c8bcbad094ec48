package redisbackend

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/internal/redisclaim"
	"github.com/holdfast-go/holdfast/internal/redisstore"
)

// A request is a script, or something else that is asked of the server, and its answer.
type request struct {
	ctx    bounded
	script redisclaim.Script
	keys   []string
	args   []string
	other  func(context.Context) (any, error) // instead of a script

	reply any
	err   error
	done  chan struct{} // one slot: the request never waits for a caller that has left
}

// A bounded context ends with another one, and has a deadline of its own too: as go-redis looks at deadlines by itself, it
// needs no timer. (context.WithTimeout and its timer are a tenth of what a request costs.)
type bounded struct {
	context.Context
	deadline time.Time
}

// Deadline is the earlier one.
func (b bounded) Deadline() (time.Time, bool) { return b.deadline, true }

// Err notices the deadline by itself.
func (b bounded) Err() error {
	if err := b.Context.Err(); err != nil {
		return err
	}
	if !time.Now().Before(b.deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// bound returns ctx with a deadline that is at most RequestTimeout from now. ours says that it is not ctx's own.
func (b *Backend) bound(ctx context.Context) (c bounded, ours bool) {
	c = bounded{ctx, time.Now().Add(b.cfg.RequestTimeout)}
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(c.deadline) {
		c.deadline = deadline
		return c, false
	}
	return c, true
}

// Run executes a script and returns its reply.
func (t transport) Run(ctx context.Context, s redisclaim.Script, keys, args []string) (any, error) {
	return t.b.call(ctx, &request{script: s, keys: keys, args: args})
}

// Info returns the reply to INFO section of each primary.
func (t transport) Info(ctx context.Context, section string) ([]string, error) {
	reply, err := t.b.call(ctx, &request{other: func(ctx context.Context) (any, error) { return t.b.info(ctx, section) }})
	infos, _ := reply.([]string)
	return infos, err
}

func (b *Backend) info(ctx context.Context, section string) (any, error) {
	cluster, ok := b.client.(*redis.ClusterClient)
	if !ok {
		info, err := b.client.Info(ctx, section).Result()
		return []string{info}, err
	}
	each := make(chan string, 1<<14) // as many as there are slots
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, c *redis.Client) error {
		info, err := c.Info(ctx, section).Result()
		each <- info
		return err
	})
	close(each)
	var infos []string
	for info := range each {
		infos = append(infos, info)
	}
	return infos, err
}

// call runs a request that is bounded by ctx and by RequestTimeout.
//
// go-redis gives a read the deadline of its context, but does not notice when the context is cancelled, and without
// ContextTimeoutEnabled not even that. So a request runs in a goroutine of the lanes, which Close waits for, and a caller
// whose ctx is done leaves it behind. Without anything to cancel there is no need.
func (b *Backend) call(ctx context.Context, r *request) (any, error) {
	var ours bool
	r.ctx, ours = b.bound(ctx)
	if ctx.Done() == nil && b.prompt && b.lanes.enter() {
		b.perform([]*request{r})
		b.lanes.leave()
		return r.reply, r.err
	}
	r.done = make(chan struct{}, 1)
	b.store.Gate.Again()
	queued := b.lanes.submit(r)
	var late <-chan time.Time
	if ours && (queued || !b.prompt) { // nobody else would notice
		timer := time.NewTimer(time.Until(r.ctx.deadline))
		defer timer.Stop()
		late = timer.C
	}
	select {
	case <-r.done:
		return r.reply, r.err
	case <-ctx.Done():
	case <-late:
	}
	select {
	case <-r.done: // both at once: the answer counts
		return r.reply, r.err
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, redisstore.ErrNoAnswer
}

// perform executes requests, several on one connection together. Afterwards their replies are there.
func (b *Backend) perform(batch []*request) {
	if len(batch) == 1 {
		b.one(batch[0])
	} else {
		b.several(batch)
	}
	for _, r := range batch {
		if r.done != nil {
			r.done <- struct{}{}
			b.store.Gate.Leave()
		}
	}
}

func (b *Backend) one(r *request) {
	if r.other != nil {
		r.reply, r.err = r.other(r.ctx)
		return
	}
	c := b.command(r, "evalsha", r.script.SHA1)
	_ = b.client.Process(r.ctx, c)
	b.answer(r, c)
}

// several sends requests in one pipeline. Those whose caller has left already are not sent.
func (b *Backend) several(batch []*request) {
	commands := make([]attempt, len(batch))
	p, latest := b.client.Pipeline(), time.Time{}
	for i, r := range batch {
		if r.err = r.ctx.Err(); r.err != nil {
			continue
		}
		if r.ctx.deadline.After(latest) {
			latest = r.ctx.deadline
		}
		commands[i] = b.command(r, "evalsha", r.script.SHA1)
		_ = p.Process(r.ctx, commands[i]) // sends nothing yet
	}
	_, _ = p.Exec(bounded{context.Background(), latest}) // not for one of its callers to cancel
	for i, r := range batch {
		if r.err == nil {
			b.answer(r, commands[i])
		}
	}
}

// answer takes the reply, and sends the script itself if the server does not know it: a new server, a failover, SCRIPT
// FLUSH. That happens at any time, so it is looked for on each call.
func (b *Backend) answer(r *request, c attempt) {
	r.reply, r.err = c.Result()
	if redis.HasErrorPrefix(r.err, "NOSCRIPT") {
		c = b.command(r, "eval", r.script.Source)
		_ = b.client.Process(r.ctx, c)
		r.reply, r.err = c.Result()
	}
}

func (b *Backend) command(r *request, command, script string) attempt {
	words := make([]any, 3, 3+len(r.keys)+len(r.args))
	words[0], words[1], words[2] = command, script, len(r.keys)
	for _, key := range r.keys {
		words = append(words, key)
	}
	for i := range r.args {
		if b.owned {
			words = append(words, &r.args[i]) // an allocation less
		} else {
			words = append(words, r.args[i]) // a program's hooks may want to read them
		}
	}
	a := attempt{redis.NewCmd(r.ctx, words...)}
	a.SetFirstKeyPos(3)
	return a
}

// An attempt is a command that go-redis must not send again by itself, whoever made the client: a release that is repeated
// after a lost reply would report our own hold as lost, and one error must be about one attempt to say what it did. (It
// still follows MOVED and ASK, which say that nothing was executed.)
type attempt struct{ *redis.Cmd }

// NoRetry is asked by go-redis before it retries.
func (attempt) NoRetry() bool { return true }
