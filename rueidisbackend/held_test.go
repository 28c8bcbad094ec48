package rueidisbackend

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	store "github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A stampede of TryLocks on a held key costs a handful of commands, and who holds is told all the
// same. As soon as the holder is gone, the next is granted.
func TestHeldAnswers(t *testing.T) {
	srv := testserver.SharedRedis(t)
	p := testserver.NewProxy(t, srv.Addr())
	b, other := opened(t, "rueidis://"+p.Addr()+"?held_answers=true"),
		opened(t, "rueidis://"+srv.Addr())
	holder := claim(key(t))
	g := acquired(t, other, holder)
	_, err := b.TryAcquire(t.Context(), claim(holder.Key))
	want(t, "first", err, backend.ErrHeld)
	_, err = b.TryAcquire(t.Context(), claim(holder.Key)) // reads what the next ones know
	want(t, "second", err, backend.ErrHeld)
	before := p.Counts().Requests
	for range 1000 {
		_, err := b.TryAcquire(t.Context(), claim(holder.Key))
		var held *backend.HeldError
		if !errors.As(err, &held) || held.Holder.Service != "test" || held.RetryAfter <= 0 ||
			held.RetryAfter > holder.TTL+10*time.Millisecond ||
			held.Token != g.Token {
			t.Fatalf("%+v", err)
		}
	}
	if n := p.Counts().Requests - before; n > 0 {
		t.Errorf("a thousand TryLocks sent %d requests", n)
	}
	want(t, "renew", other.Renew(t.Context(), holder), nil)
	want(t, "release", storetest.Release(t.Context(), other, holder), nil)
	mine := claim(holder.Key)
	eventually(t, "acquire", func() error { _, err := b.TryAcquire(t.Context(), mine); return err })
	acquired(t, b, mine) // a repeat

	// In one process there is no delay, whatever another has learnt meanwhile.
	for range 300 {
		_, err := b.TryAcquire(t.Context(), claim(mine.Key))
		want(t, "held by us", err, backend.ErrHeld)
		acquired(t, b, mine) // a repeat is not refused by what is known
		var crowd sync.WaitGroup
		// Might be granted, or keep what is over.
		crowd.Go(func() { _, _ = b.TryAcquire(t.Context(), claim(mine.Key)) })
		mine.NoneInFlight = true
		want(t, "release", storetest.Release(t.Context(), b, mine), nil)
		crowd.Wait()
		srv.MustDo("DEL", b.store.Layout.Key(mine.Key)) // whoever was granted
		mine = claim(mine.Key)
		eventually(t, "acquire", func() error {
			_, err := b.TryAcquire(t.Context(), mine)
			return err
		})
	}
	want(t, "release", storetest.Release(t.Context(), b, mine), nil)
	mine = claim(mine.Key)
	acquired(t, b, mine) // at once

	// Nor when several are released together, whatever the server says of it, and when.
	strangers := []backend.Claim{claim(mine.Key), claim(mine.Key)}
	for i := range strangers {
		strangers[i].NoneInFlight = true // nothing is written
	}
	name := b.store.Layout.Key(mine.Key)
	_, changes := b.held.look(name)
	answers, err := b.ReleaseAll(t.Context(), strangers)
	want(t, "release of two", errors.Join(err, answers[0]), backend.ErrLost)
	if _, now := b.held.look(name); now == changes {
		t.Error("what is known of a key outlasts a release of two claims")
	}
	_, changes = b.held.look(name)
	_, err = b.TryReleaseAll(t.Context(), strangers)
	want(t, "release of many keys", err, nil)
	_, released := b.held.look(name)
	_, err = b.TryAcquireAll(t.Context(), strangers)
	want(t, "acquire of many keys", err, nil)
	if _, now := b.held.look(name); released == changes || now == released {
		t.Error("what is known of a key outlasts a request for many keys")
	}
}

// A refusal is not remembered if something has changed since it was asked for; and what is
// remembered ends with the next change, a flush, and the connection.
func TestHeldAnswersAreDropped(t *testing.T) {
	h := &heldKeys{names: map[string]struct{}{}}
	known := func(what string, want bool) {
		t.Helper()
		if got, _ := h.look("k"); got != want {
			t.Errorf("%s: known is %v, want %v", what, got, want)
		}
	}
	add := func() {
		_, changes := h.look("k")
		h.add("k", changes)
	}
	add()
	known("refused", true)
	h.forget("k")
	known("changed", false)
	_, changes := h.look("k")
	h.forget("k")
	h.add("k", changes)
	known("changed while it was asked for", false)
	add()
	h.forgetAll()
	known("flushed", false)
	_, changes = h.look("k")
	h.forgetAll()
	h.add("k", changes)
	known("flushed while it was asked for", false)
}

// Without the setting every attempt is asked.
func TestHeldAnswersAreOptIn(t *testing.T) {
	p := testserver.NewProxy(t, testserver.SharedRedis(t).Addr())
	b := opened(t, "rueidis://"+p.Addr())
	c := claim(key(t))
	acquired(t, b, c)
	before := p.Counts().Requests
	for range 10 {
		_, err := b.TryAcquire(t.Context(), claim(c.Key))
		want(t, "acquire", err, backend.ErrHeld)
	}
	if n := p.Counts().Requests - before; n != 10 {
		t.Errorf("10 attempts sent %d requests", n)
	}
}

// What is known of refusals has a bound, as a key on which there is one attempt and no other is not
// heard of again.
func TestHeldAnswersAreBounded(t *testing.T) {
	h := &heldKeys{names: map[string]struct{}{}}
	for i := range maxHeld + 10 {
		name := strconv.Itoa(i)
		_, changes := h.look(name)
		h.add(name, changes)
	}
	if n := len(h.names); n > maxHeld || n < maxHeld/2 {
		t.Errorf("%d keys are known, want %d", n, maxHeld)
	}
}

// An attempt that is refused while this client releases the key says nothing of it afterwards: the
// next one asks, and is granted.
func TestRefusedDuringARelease(t *testing.T) {
	b := opened(t, "rueidis://"+testserver.SharedRedis(t).Addr()+"?held_answers=true")
	sent := &beforeNext{transport: transport{b}}
	b.store.Use(sent)
	c := claim(key(t))
	c.NoneInFlight = true
	acquired(t, b, c)
	sent.call = func() {
		_, err := b.TryAcquire(t.Context(), claim(c.Key))
		want(t, "acquire during a release", err, backend.ErrHeld)
	}
	want(t, "release", storetest.Release(t.Context(), b, c), nil)
	if known, _ := b.held.look(b.store.Layout.Key(c.Key)); known || sent.call != nil {
		t.Error("a key that was released is known to be held")
	}
}

// beforeNext calls a function, if there is one, before the next request.
type beforeNext struct {
	transport
	call func()
}

func (b *beforeNext) now() {
	if call := b.call; call != nil {
		b.call = nil
		call()
	}
}

func (b *beforeNext) Run(ctx context.Context, r store.Request) (any, int, error) {
	b.now()
	return b.transport.Run(ctx, r)
}

func (b *beforeNext) Set(ctx context.Context, key string, args ...string) (bool, error) {
	b.now()
	return b.transport.Set(ctx, key, args...)
}
