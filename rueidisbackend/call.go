package rueidisbackend

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"

	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// Run executes a script and returns its reply.
func (t transport) Run(ctx context.Context, s script.Script, keys, args []string) (any, error) {
	return t.b.run(ctx, evalScript{Script: s, keys: keys, args: args})
}

// Info returns the reply to INFO section of each primary.
func (t transport) Info(ctx context.Context, section string) ([]string, error) {
	reply, err := t.b.call(ctx, info(section))
	infos, _ := reply.([]string)
	return infos, err
}

// An evalScript is one to run. Its tracked run makes the server tell this connection, once, that one of its keys was changed.
type evalScript struct {
	script.Script
	keys    []string
	args    []string
	tracked bool
}

// An asking is what can be asked of the server.
type asking interface {
	ask(ctx context.Context, b *Backend) (any, error)
}

// ask runs the script by its name, and by its source if the server does not know it: a new server, a failover, SCRIPT FLUSH.
// That happens at any time, so it is looked for on each call.
func (s evalScript) ask(ctx context.Context, b *Backend) (any, error) {
	reply, err := s.send(ctx, b, "EVALSHA", s.SHA1)
	if refusedAs(err, "NOSCRIPT") {
		reply, err = s.send(ctx, b, "EVAL", s.Source)
	}
	if refusedAs(err, "READONLY") {
		b.line.doubted()
	}
	return reply, err
}

// refusedAs reports whether err is the server's reply with this code.
func refusedAs(err error, code string) bool {
	if err == nil {
		return false // the usual case, without an allocation
	}
	var refused *rueidis.RedisError
	return errors.As(err, &refused) && strings.HasPrefix(refused.Error(), code)
}

// send is not marked as read-only, so rueidis does not repeat it, whatever happens.
func (s evalScript) send(ctx context.Context, b *Backend, command, what string) (any, error) {
	run := s.command(b, command, what)
	if !s.tracked {
		return answer(b.client.Do(ctx, run))
	}
	// Together in one place of the ring: the permission holds for the very next command on the connection.
	results := b.client.DoMulti(ctx, b.client.B().ClientCaching().Yes().Build(), run)
	if err := results[0].Error(); err != nil {
		return nil, err
	}
	return answer(results[1])
}

func (s evalScript) command(b *Backend, command, what string) rueidis.Completed {
	words := b.client.B().Arbitrary(command, what, strconv.Itoa(len(s.keys)))
	if b.line.cluster {
		words = words.Keys(s.keys...)
	} else {
		words = words.Args(s.keys...) // without a look at which slot they are of
	}
	return words.Args(s.args...).Build()
}

func answer(r rueidis.RedisResult) (any, error) {
	message, err := r.ToMessage()
	if err != nil {
		return nil, err
	}
	return message.ToAny()
}

// An info is a section of INFO, of every primary.
type info string

func (section info) ask(ctx context.Context, b *Backend) (any, error) {
	var infos []string
	for _, node := range b.client.Nodes() {
		results := node.DoMulti(ctx, node.B().Info().Section("replication").Build(), node.B().Info().Section(string(section)).Build())
		role, err := results[0].ToString()
		if err != nil {
			return nil, err
		}
		if strings.Contains(role, "role:slave") {
			continue
		}
		text, err := results[1].ToString()
		if err != nil {
			return nil, err
		}
		infos = append(infos, text)
	}
	return infos, nil
}

type result struct {
	reply any
	err   error
}

// call asks the server, bounded by ctx and by RequestTimeout. As a rule that is done in the caller's goroutine: many callers
// share a connection, and rueidis sends what they ask for together. When rueidis may not heed ctx, the request runs in a
// goroutine of its own, which Close waits for, and a caller whose ctx is done leaves it behind.
func (b *Backend) call(ctx context.Context, q asking) (any, error) {
	if _, slow := q.(info); !slow && b.line.enter() {
		return b.inline(ctx, q)
	}
	began := b.line.began()
	bounded, cancel := context.WithTimeout(ctx, b.cfg.RequestTimeout)
	done := make(chan result, 1) // one slot: the request never waits for a caller that has left
	b.store.Gate.Again()
	go func() {
		defer b.store.Gate.Leave()
		defer cancel() // after the result is in its slot, so that nobody takes this for the end of the wait
		r := b.patiently(bounded, q)
		if r.err == nil {
			b.line.answered(began)
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.reply, r.err
	case <-bounded.Done():
	}
	b.line.happened()
	select {
	case r := <-done: // both at once: the answer counts
		return r.reply, r.err
	default:
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	b.line.doubted()
	return nil, store.ErrNoAnswer
}

// inline asks in the caller's goroutine.
func (b *Backend) inline(ctx context.Context, q asking) (any, error) {
	began := b.line.began()
	bounded, free := b.bound(ctx)
	reply, err := q.ask(bounded, b)
	ended := err != nil && bounded.Err() != nil
	free()
	b.line.leave()
	switch {
	case err == nil:
		b.line.answered(began)
	case ended: // its place in the ring is still taken
		b.line.happened()
		if ctx.Err() == nil {
			b.line.doubted()
			err = store.ErrNoAnswer
		}
	}
	return reply, err
}

// patiently asks when there is a place for it, first come, first served.
func (b *Backend) patiently(ctx context.Context, q asking) (r result) {
	select {
	case b.line.places <- struct{}{}:
		defer func() { <-b.line.places }()
	case <-ctx.Done():
		r.err = ctx.Err()
		return r
	}
	r.reply, r.err = q.ask(ctx, b)
	return r
}

// A bound is a context that ends with another one, or at a time of its own. They are used again: context.WithTimeout would be
// a tenth of what a request costs. (By the same Backend: a timer must not leave the synctest bubble that it was made in.)
type bound struct {
	context.Context
	deadline time.Time
	done     chan struct{}
	timer    *time.Timer
	late     func()
	once     sync.Once
}

func newBound() any {
	c := &bound{done: make(chan struct{})}
	c.late = func() { c.once.Do(func() { close(c.done) }) }
	return c
}

// Deadline is its own, which is the earlier one.
func (c *bound) Deadline() (time.Time, bool) { return c.deadline, true }

// Done is closed when either ends.
func (c *bound) Done() <-chan struct{} { return c.done }

// Err says which has ended.
func (c *bound) Err() error {
	select {
	case <-c.done:
		if err := c.Context.Err(); err != nil {
			return err
		}
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// bound returns a context that ends with ctx, or after RequestTimeout. The caller must call free, and not use it then.
func (b *Backend) bound(ctx context.Context) (c context.Context, free func()) {
	deadline := time.Now().Add(b.cfg.RequestTimeout)
	if theirs, ok := ctx.Deadline(); ok && !theirs.After(deadline) {
		return ctx, func() {}
	}
	return b.boundUntil(ctx, deadline)
}

// boundUntil returns a context that ends with ctx, or at deadline, which is to be the earlier one.
func (b *Backend) boundUntil(ctx context.Context, deadline time.Time) (c context.Context, free func()) {
	own, _ := b.bounds.Get().(*bound)
	own.Context, own.deadline = ctx, deadline
	if own.timer == nil {
		own.timer = time.AfterFunc(time.Until(deadline), own.late)
	} else {
		own.timer.Reset(time.Until(deadline))
	}
	stop := func() bool { return true }
	if ctx.Done() != nil {
		stop = context.AfterFunc(ctx, own.late)
	}
	return own, func() {
		early := stop()
		if own.timer.Stop() && early { // neither has run, nor will
			own.Context = nil
			b.bounds.Put(own)
		}
	}
}
