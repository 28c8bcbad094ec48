package redisbackend

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// Run executes a script and returns its reply.
func (t transport) Run(ctx context.Context, s script.Script, keys, args []string) (any, error) {
	r := t.b.lanes.New()
	r.Script, r.Keys, r.Args = s, keys, args
	return t.b.call(ctx, r)
}

// Info returns the reply to INFO section of each primary.
func (t transport) Info(ctx context.Context, section string) ([]string, error) {
	r := t.b.lanes.New()
	r.Other = func(ctx context.Context) (any, error) { return t.b.info(ctx, section) }
	reply, err := t.b.call(ctx, r)
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
func (b *Backend) call(ctx context.Context, r *store.Request) (any, error) {
	var ours bool
	r.Ctx, ours = store.Bound(ctx, b.cfg.RequestTimeout)
	if ctx.Done() == nil && b.prompt && b.lanes.Enter() {
		b.perform([]*store.Request{r})
		b.lanes.Leave()
		return b.lanes.Answer(r)
	}
	return b.lanes.Ask(ctx, r, ours, b.prompt)
}

// perform executes requests, several on one connection together.
func (b *Backend) perform(batch []*store.Request) {
	if len(batch) == 1 {
		b.one(batch[0])
	} else {
		b.several(batch)
	}
}

func (b *Backend) one(r *store.Request) {
	if r.Other != nil {
		r.Reply, r.Err = r.Other(r.Ctx)
		return
	}
	c := b.command(r, "evalsha", r.Script.SHA1)
	_ = b.client.Process(r.Ctx, c)
	b.answer(r, c)
}

// several sends requests in one pipeline. Those whose caller has left already are not sent.
func (b *Backend) several(batch []*store.Request) {
	commands := make([]attempt, len(batch))
	p, latest := b.client.Pipeline(), time.Time{}
	for i, r := range batch {
		if r.Err = r.Ctx.Err(); r.Err != nil {
			continue
		}
		if r.Ctx.Limit.After(latest) {
			latest = r.Ctx.Limit
		}
		commands[i] = b.command(r, "evalsha", r.Script.SHA1)
		_ = p.Process(r.Ctx, commands[i]) // sends nothing yet
	}
	_, _ = p.Exec(store.Bounded{Context: context.Background(), Limit: latest}) // not for one of its callers to cancel
	for i, r := range batch {
		if r.Err == nil {
			b.answer(r, commands[i])
		}
	}
}

// answer takes the reply, and sends the script itself if the server does not know it: a new server, a failover, SCRIPT
// FLUSH. That happens at any time, so it is looked for on each call.
func (b *Backend) answer(r *store.Request, c attempt) {
	r.Reply, r.Err = c.Result()
	if redis.HasErrorPrefix(r.Err, "NOSCRIPT") {
		c = b.command(r, "eval", r.Script.Source)
		_ = b.client.Process(r.Ctx, c)
		r.Reply, r.Err = c.Result()
	}
}

func (b *Backend) command(r *store.Request, command, script string) attempt {
	words := make([]any, 3, 3+len(r.Keys)+len(r.Args))
	words[0], words[1], words[2] = command, script, len(r.Keys)
	for _, key := range r.Keys {
		words = append(words, key)
	}
	for i := range r.Args {
		if b.owned {
			words = append(words, &r.Args[i]) // an allocation less
		} else {
			words = append(words, r.Args[i]) // a program's hooks may want to read them
		}
	}
	a := attempt{redis.NewCmd(r.Ctx, words...)}
	a.SetFirstKeyPos(3)
	return a
}

// An attempt is a command that go-redis must not send again by itself, whoever made the client: a release that is repeated
// after a lost reply would report our own hold as lost, and one error must be about one attempt to say what it did. (It
// still follows MOVED and ASK, which say that nothing was executed.)
type attempt struct{ *redis.Cmd }

// NoRetry is asked by go-redis before it retries.
func (attempt) NoRetry() bool { return true }
