package rueidisbackend

import (
	"context"
	"time"

	"github.com/redis/rueidis"

	store "github.com/holdfast-go/holdfast/internal/redis"
)

// lanes is how many batches are on the way at a time: while one is answered, the next is made.
const lanes = 2

// run asks the server to run a script, bounded by ctx and by RequestTimeout. A few requests at a time go by themselves, from
// their callers' goroutines. Those beyond go together: rueidis sends what it finds in its queue, and on a busy machine that is
// one command as often as not, as its writer is woken by the first of them.
func (b *Backend) run(ctx context.Context, s evalScript) (any, error) {
	if b.line.cluster {
		return b.call(ctx, s)
	}
	if b.line.enter() {
		return b.inline(ctx, s)
	}
	r, ours := b.lanes.New(), false
	r.Ctx, ours = store.Bound(ctx, b.cfg.RequestTimeout)
	r.Script, r.Keys, r.Args = s.Script, s.keys, s.args
	reply, err := b.lanes.Ask(ctx, r, ours, false)
	if err == store.ErrNoAnswer { //nolint:errorlint // as it comes from Ask
		b.line.doubted()
	}
	return reply, err
}

// perform sends requests together, those whose caller has left excepted. Nobody's ctx ends it, but it does not outlast the last deadline.
func (b *Backend) perform(batch []*store.Request) {
	commands, latest := make([]rueidis.Completed, 0, len(batch)), time.Time{}
	for _, r := range batch {
		if r.Err = r.Ctx.Err(); r.Err == nil {
			commands = append(commands, scriptOf(r).command(b, "EVALSHA", r.Script.SHA1))
			if r.Ctx.Limit.After(latest) {
				latest = r.Ctx.Limit
			}
		}
	}
	if len(commands) == 0 {
		return
	}
	began, sent := b.line.began(), time.Now()
	ctx, free := b.boundUntil(context.Background(), latest)
	defer free()
	results := b.client.DoMulti(ctx, commands...)
	answered := false
	for _, r := range batch {
		if r.Err == nil {
			b.settle(ctx, r, results[0])
			results = results[1:]
			answered = answered || r.Err == nil
		}
	}
	switch {
	case answered:
		b.line.answered(began)
	case ctx.Err() != nil: // its place in the ring is still taken
		b.line.happened()
		if time.Since(sent) > b.cfg.RequestTimeout/2 { // not for those who were in a hurry
			b.line.doubted()
		}
	}
}

// settle takes the answer to r, as script.ask does.
func (b *Backend) settle(ctx context.Context, r *store.Request, result rueidis.RedisResult) {
	r.Reply, r.Err = answer(result)
	switch {
	case r.Err == nil:
	case refusedAs(r.Err, "NOSCRIPT"):
		r.Reply, r.Err = scriptOf(r).send(ctx, b, "EVAL", r.Script.Source)
	case refusedAs(r.Err, "READONLY"):
		b.line.doubted()
	case ctx.Err() != nil:
		r.Err = store.ErrNoAnswer
	}
}

func scriptOf(r *store.Request) evalScript {
	return evalScript{Script: r.Script, keys: r.Keys, args: r.Args}
}
