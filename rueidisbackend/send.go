package rueidisbackend

import (
	"context"
	"errors"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// transport is rueidis at work for the store. It is apart from Backend so that its methods are not
// Backend's.
type transport struct{ *Backend }

var errNotSent = errors.New("too many requests are in flight")

// do sends a command, and returns the reply when it is there, when ctx is done, or after
// RequestTimeout, or twice that if the server goes on answering others. rueidis sends the commands
// of many goroutines together, on one connection and as they come, so as a rule it runs in the
// caller's goroutine and without a timer, see conns.
func (b *Backend) do(ctx context.Context, command rueidis.Completed) (rueidis.RedisMessage, error) {
	tick, ok := b.conns.enter()
	if !ok {
		return send(ctx, b, func(ctx context.Context) (rueidis.RedisMessage, error) {
			return b.client.Do(ctx, command).ToMessage()
		})
	}
	m, err := b.client.Do(ctx, command).ToMessage()
	b.conns.leave(tick)
	if err == nil {
		b.conns.answers.Add(1)
		return m, nil
	}
	switch code, isReply := replyCode(err); {
	case isReply:
		b.conns.answers.Add(1)
		if code == "READONLY" {
			b.conns.reopen()
		}
	case ctx.Err() != nil: // its place in rueidis' queue is still taken
		b.conns.disrupted()
	case b.conns.tick.Load()-tick >= ticks: // conns.look has closed the connection
		err = context.DeadlineExceeded
	}
	return m, err
}

// send makes a request by calling do, which must heed its context as rueidis does, in a goroutine
// of its own, which Close waits for. It returns when ctx is done, or after RequestTimeout. A caller
// whose ctx is done leaves the request behind; then it goes on for RequestTimeout at most.
func send[T any](ctx context.Context, b *Backend,
	do func(context.Context) (T, error),
) (reply T, err error) {
	own := context.WithoutCancel(ctx)
	ctx, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	defer cancel()
	select {
	case b.conns.slots <- struct{}{}:
	case <-ctx.Done():
		return reply, &store.ConnectError{Err: errNotSent}
	}
	type result struct {
		reply T
		err   error
	}
	done := make(chan result, 1) // one slot: nobody waits for a caller that has left
	b.tasks.Go(func() {
		bounded, cancel := context.WithTimeout(own, b.cfg.RequestTimeout)
		defer cancel()
		began, answers := b.conns.disruptions.Load(), b.conns.answers.Load()
		reply, err := do(bounded)
		<-b.conns.slots
		switch code, isReply := replyCode(err); {
		case err == nil || isReply:
			b.conns.answered(began)
			if code == "READONLY" {
				b.conns.reopen()
			}
		case bounded.Err() != nil: // its place in rueidis' queue is still taken
			b.conns.disrupted()
			if b.conns.answers.Load() == answers { // none in a whole RequestTimeout
				b.conns.reopen()
			}
		}
		done <- result{reply, err}
	})
	select {
	case r := <-done:
		return r.reply, r.err
	case <-ctx.Done():
	}
	select {
	case r := <-done: // both at once: the answer counts
		return r.reply, r.err
	default:
		return reply, ctx.Err()
	}
}

// replyCode returns the first word of an error reply. isReply is false for every other error.
func replyCode(err error) (code string, isReply bool) {
	if err == nil {
		return "", false // the usual case, without an allocation
	}
	var refused *rueidis.RedisError
	if !errors.As(err, &refused) {
		return "", false
	}
	code, _ = script.ErrorCode(refused.Error())
	return code, true
}

// Run executes a script and returns its reply.
func (t transport) Run(ctx context.Context, r store.Request) (reply any, replicas int, err error) {
	if r.Replicas > 0 {
		return t.acknowledged(ctx, r)
	}
	reply, err = t.script(r, func(c rueidis.Completed) (rueidis.RedisMessage, error) {
		return t.do(ctx, c)
	})
	return reply, 0, err
}

// Set executes a plain SET.
func (t transport) Set(ctx context.Context, key string, args ...string) (wrote bool, err error) {
	_, err = t.do(ctx, t.client.B().Arbitrary("SET").Keys(key).Args(args...).Build())
	if rueidis.IsRedisNil(err) {
		return false, nil
	}
	return err == nil, err
}

// script runs a script by its name, and by its source if the server does not know it: a new
// server, a failover, SCRIPT FLUSH. That happens at any time, so it is looked for on each call.
// Neither is marked as read-only, so rueidis repeats nothing.
func (t transport) script(r store.Request,
	do func(rueidis.Completed) (rueidis.RedisMessage, error),
) (any, error) {
	message, err := do(t.command(r, "EVALSHA", r.Script.SHA1()))
	if err != nil {
		if code, _ := replyCode(err); code != "NOSCRIPT" {
			return nil, err
		}
		if message, err = do(t.command(r, "EVAL", r.Script.Source())); err != nil {
			return nil, err
		}
	}
	return message.ToAny()
}

func (t transport) command(r store.Request, name, script string) rueidis.Completed {
	words := t.client.B().Arbitrary(name, script, strconv.Itoa(len(r.Keys)))
	if t.conns.cluster {
		words = words.Keys(r.Keys...)
	} else {
		words = words.Args(r.Keys...) // without a look at which slot they are of
	}
	return words.Args(r.Args...).Build()
}

// acknowledged executes a script and waits for replicas, on a connection of its own, since WAIT
// holds up all that come behind it on one. (The reply to the script is read first, so a grant
// without acknowledgement is known as such.)
func (t transport) acknowledged(ctx context.Context, r store.Request) (any, int, error) {
	type acknowledged struct {
		reply    any
		executed bool
		replicas int64
	}
	a, err := send(ctx, t.Backend, func(ctx context.Context) (a acknowledged, err error) {
		err = t.client.Dedicated(func(c rueidis.DedicatedClient) (err error) {
			a.reply, err = t.script(r,
				func(command rueidis.Completed) (rueidis.RedisMessage, error) {
					return c.Do(ctx, command).ToMessage()
				})
			if err != nil {
				return err
			}
			a.executed = true
			limit := max((t.cfg.RequestTimeout / 2).Milliseconds(), 1)
			a.replicas, err = c.Do(ctx,
				c.B().Wait().Numreplicas(int64(r.Replicas)).Timeout(limit).Build()).ToInt64()
			return err
		})
		return a, err
	})
	if err != nil && a.executed { // safeguard: rueidis-unconfirmed
		return nil, 0, store.Unconfirmed(err)
	}
	return a.reply, int(a.replicas), err
}

// Info returns the reply to INFO section of each primary.
func (t transport) Info(ctx context.Context, section string) ([]string, error) {
	return send(ctx, t.Backend, func(ctx context.Context) (infos []string, err error) {
		for _, node := range t.client.Nodes() {
			info, err := ofPrimary(ctx, node, section)
			if err != nil {
				return nil, err
			}
			if info != "" {
				infos = append(infos, info)
			}
		}
		return infos, nil
	})
}

// ofPrimary returns the reply to INFO section of a node, or nothing if that is a replica.
func ofPrimary(ctx context.Context, node rueidis.Client, section string) (string, error) {
	results := node.DoMulti(ctx, node.B().Info().Section("replication").Build(),
		node.B().Info().Section(section).Build())
	if role, err := results[0].ToString(); err != nil || strings.Contains(role, "role:slave") {
		return "", err
	}
	return results[1].ToString()
}

// Scan makes the pages of one primary after the other.
func (t transport) Scan(ctx context.Context, pattern string, page func(keys []string) bool) error {
	for _, node := range t.client.Nodes() {
		info, err := send(ctx, t.Backend, func(ctx context.Context) (string, error) {
			return ofPrimary(ctx, node, "replication")
		})
		if err != nil {
			return err
		}
		for cursor, more := uint64(0), info != ""; more; more = cursor != 0 {
			found, err := send(ctx, t.Backend,
				func(ctx context.Context) (rueidis.ScanEntry, error) {
					return node.Do(ctx, node.B().Scan().Cursor(cursor).Match(pattern).Count(
						store.ScanCount).Build()).AsScanEntry()
				})
			if err != nil {
				return err
			}
			if !page(found.Elements) {
				return nil
			}
			cursor = found.Cursor
		}
	}
	return nil
}

// Check tries PING, which keeps the connections, what a read through the cache sends, and with
// Replicas WAIT.
func (t transport) Check(ctx context.Context) error {
	_, err := send(ctx, t.Backend, func(ctx context.Context) (any, error) {
		build := t.client.B
		for _, r := range t.client.DoMulti(ctx,
			build().Ping().Build(), build().ClientCaching().Yes().Build(), build().Multi().Build(),
			build().Exec().Build(),
		) {
			if err := r.Error(); err != nil {
				t.conns.closeAll() // one may be between MULTI and EXEC for ever
				return nil, err
			}
		}
		if t.cfg.Replicas > 0 {
			// WAIT for no replicas is answered at once.
			return nil, t.client.Do(ctx, build().Wait().Numreplicas(0).Timeout(1).Build()).Error()
		}
		return nil, nil
	})
	return err
}

// Explain says what an error of rueidis means.
func (t transport) Explain(err error) store.Failure {
	var reply *rueidis.RedisError
	switch {
	case errors.As(err, &reply):
		return store.Failure{Reply: reply.Error()}
	case errors.Is(err, rueidis.ErrNoCache): // with the server's reply before it
		return store.Failure{Reply: err.Error()}
	}
	return store.Failure{
		// safeguard: rueidis-closed-by-us
		Closed: errors.Is(err, rueidis.ErrClosing) && t.conns.closed.Load(),
		Unsent: store.NotMade(err) || errors.Is(err, rueidis.ErrNoAddr) ||
			errors.Is(err, rueidis.ErrNoSlot),
	}
}
