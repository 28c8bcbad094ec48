package redisbackend

import (
	"context"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// run executes a script on one key and returns its reply. It returns when ctx is done or RequestTimeout has passed.
func (b *Backend) run(ctx context.Context, s redisclaim.Script, key string, args []string) (any, error) {
	return b.call(ctx, func(ctx context.Context) (any, error) {
		reply, err := b.send(ctx, "evalsha", s.SHA1, key, args)
		if redis.HasErrorPrefix(err, "NOSCRIPT") { // a new server, a failover, SCRIPT FLUSH: at any time, so on each call
			reply, err = b.send(ctx, "eval", s.Source, key, args)
		}
		return reply, err
	})
}

func (b *Backend) send(ctx context.Context, command, script, key string, args []string) (any, error) {
	words := make([]any, 4, 4+len(args))
	words[0], words[1], words[2], words[3] = command, script, 1, key
	for _, a := range args {
		words = append(words, a)
	}
	a := attempt{redis.NewCmd(ctx, words...)}
	a.SetFirstKeyPos(3)
	_ = b.client.Process(ctx, a)
	return a.Result()
}

// An attempt is a command that go-redis must not send again by itself, whoever made the client: a release that is repeated
// after a lost reply would report our own hold as lost, and one error must be about one attempt to say what it did. (It
// still follows MOVED and ASK, which say that nothing was executed.)
type attempt struct{ *redis.Cmd }

// NoRetry is asked by go-redis before it retries.
func (attempt) NoRetry() bool { return true }

type result struct {
	reply any
	err   error
}

// call runs a request that is bounded by ctx and by RequestTimeout.
//
// go-redis gives a read the deadline of its context, but does not notice when the context is cancelled, and without
// ContextTimeoutEnabled not even that. So the request runs in a goroutine of its own, which Close waits for, and a caller
// whose ctx is done leaves it behind. Without anything to cancel there is no need.
func (b *Backend) call(ctx context.Context, request func(context.Context) (any, error)) (any, error) {
	if !b.begin() {
		return nil, backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		b.calls.Done()
		return nil, err
	}
	bounded, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	done := make(chan result, 1) // one slot: the request never waits for a caller that has left
	perform := func() {
		defer b.calls.Done()
		defer cancel() // after the result is in its slot, so that nobody takes this for the end of the wait
		reply, err := request(bounded)
		done <- result{reply, err}
	}
	if ctx.Done() == nil && b.prompt {
		perform()
	} else {
		go perform()
	}
	select {
	case r := <-done:
		return r.reply, b.failure(ctx, r.err)
	case <-bounded.Done():
	}
	select {
	case r := <-done: // both at once: the answer counts
		return r.reply, b.failure(ctx, r.err)
	default:
		return nil, b.failure(ctx, bounded.Err())
	}
}

// begin counts a request in, unless the backend is closed. Close sets closed before it waits, so nothing is added then.
func (b *Backend) begin() bool {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return false
	}
	b.calls.Add(1)
	return true
}
