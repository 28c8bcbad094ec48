package backendtest

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// loads returns a fresh claim of key that asks for its state.
func (e *env) loads(key string) backend.Claim {
	c := e.claim(key)
	c.Load = true
	return c
}

// saving returns c with a state to save.
func saving(c backend.Claim, state string) backend.Claim {
	c.Save = []byte(state)
	return c
}

// loaded must be a grant with this state; nil is none.
func (e *env) loaded(g backend.Grant, want []byte) {
	e.Helper()
	if !bytes.Equal(g.State, want) || (g.State == nil) != (want == nil) {
		e.broken("loaded %s (nil: %v), want %s (nil: %v)", short(string(g.State)), g.State == nil,
			short(string(want)), want == nil)
		e.FailNow()
	}
}

// stored must find key free, and this as its state; nil is none.
func (e *env) stored(b backend.Backend, key string, want []byte) {
	e.Helper()
	c := e.loads(key)
	e.loaded(e.acquire(b, c), want)
	e.release(b, c)
}

// saved leaves a state for a key that is free.
func (e *env) saved(b backend.Backend, key, state string) {
	e.Helper()
	c := e.claim(key)
	e.acquire(b, c)
	e.release(b, saving(c, state))
}

func savedByHolder(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	load := func(client backend.Backend, want []byte) backend.Claim {
		e.Helper()
		c := e.loads(key)
		e.loaded(e.acquire(client, c), want)
		return c
	}
	c := load(a, nil)
	c.Save = []byte("one\x00")
	e.release(a, c)
	next := load(b, c.Save)
	stale := saving(c, "stale")
	e.lost("Release with Save after the hold ended", release(e.ctx, a, stale))
	e.lost("Renew with Save after the hold ended", a.Renew(e.ctx, stale))
	e.renewed(b, saving(next, "two"))
	e.release(b, next)
	e.lost("Release with Save of a key that nobody holds", release(e.ctx, a, stale))
	e.release(a, load(a, []byte("two")))
}

func stateEmpty(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.stored(a, key, nil)
	e.saved(b, key, "")
	e.stored(a, key, []byte{})
	e.saved(a, key, "x")
	blind := e.claim(key)
	if g := e.acquire(b, blind); g.State != nil {
		e.Errorf("a claim without Load was granted state %q", g.State)
	}
	e.release(b, blind)
	c := e.claim(key)
	e.acquire(a, c)
	e.renewed(b, saving(c, ""))
	e.release(a, c)
	e.stored(b, key, []byte{})
}

func stateByAnother(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.saved(a, key, "before")
	holder, former := e.loads(key), e.claim(key)
	e.acquire(b, former)
	e.release(b, former)
	e.acquire(a, holder)
	for _, other := range []backend.Claim{former, e.claim(key)} {
		other.Save = []byte("another's")
		e.lost("Renew with Save while another holds", b.Renew(e.ctx, other))
		e.lost("Release with Save while another holds", release(e.ctx, b, other))
		e.loaded(e.acquire(a, holder), []byte("before"))
	}
	e.release(a, holder)
	e.stored(b, key, []byte("before"))
}

func stateInLine(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.saved(a, key, "before")
	holder, waiter := e.loads(key), e.inLine(key)
	e.acquire(a, holder)
	e.stand(b, waiter, 1)
	e.lost("Renew with Save in the queue", b.Renew(e.ctx, saving(waiter, "from the queue")))
	e.loaded(e.acquire(a, holder), []byte("before"))
	e.lost("Release with Save in the queue", release(e.ctx, b, saving(waiter, "from the queue")))
	e.release(a, holder)
	e.stored(b, key, []byte("before"))
	next := e.inLine(key)
	holder = e.claim(key)
	e.acquire(a, holder)
	e.stand(b, next, 1)
	e.release(a, holder)
	e.release(b, saving(next, "let in")) // it holds, and need not have heard of it
	e.stored(a, key, []byte("let in"))
}

func stateAfterExpiry(e *env) {
	a, b := e.open(), e.open()
	for _, verb := range []string{"Renew", "Release"} {
		for _, another := range []bool{false, true} {
			key := e.key(fmt.Sprint(verb, another))
			e.saved(a, key, "before")
			c := e.brief(key)
			e.acquire(a, c)
			if another || !e.caps.Inspect {
				e.ranOut(b, c)
			} else {
				e.unheld(b, key)
			}
			if c.Save = []byte("late"); verb == "Renew" {
				e.lost("Renew with Save after the lease ended", a.Renew(e.ctx, c))
			} else {
				e.lost("Release with Save after the lease ended", release(e.ctx, a, c))
			}
			e.stored(b, key, []byte("before"))
		}
	}
}

func stateAttempt(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := saving(e.loads(key), "from an attempt")
	e.loaded(e.acquire(a, c), nil)
	e.loaded(e.acquire(b, c), nil)
	refused := saving(e.claim(key), "from a refused attempt")
	e.held(b, refused)
	c.Save = nil
	e.release(a, c)
	e.stored(b, key, nil)
}

func stateSurvives(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	want := []byte("kept")
	gone := e.h.Open(e.TB)
	saver := e.brief(key)
	e.acquire(gone, saver)
	e.renewed(gone, saving(saver, "kept"))
	if err := gone.Close(); err != nil {
		e.Errorf("Close = %v", err)
	}
	e.ranOut(a, saver) // the holder that saved is dead
	e.stored(a, key, want)
	e.free(b, key)
	silent := e.brief(key)
	e.acquire(b, silent) // one that saves nothing dies, too
	e.ranOut(a, silent)
	e.stored(a, key, want)
	e.saved(b, key, "changed")
	e.stored(a, key, []byte("changed"))
}

// covers: I4
func stateOtherKeys(e *env) {
	a, b := e.open(), e.open()
	names := []string{"k", "k/1", "k/s", "k/state", "k/t", "k:state", "K"}
	for _, name := range names {
		e.saved(a, e.key(name), "of "+name)
	}
	e.stored(b, e.key("unused"), nil)
	for _, name := range names {
		e.stored(b, e.key(name), []byte("of "+name))
	}
}

func stateRepeat(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.saved(a, key, "before")
	c := e.loads(key)
	for range 3 {
		e.loaded(e.acquire(a, c), []byte("before"))
		e.loaded(e.acquire(b, c), []byte("before"))
	}
	e.renewed(a, saving(c, "since"))
	e.loaded(e.acquire(b, c), []byte("since"))
	e.renewed(b, saving(c, "by the other client"))
	e.loaded(e.acquire(a, c), []byte("by the other client"))
	e.release(b, c)
}

func stateRenewExtends(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c := e.brief(key)
	e.acquire(a, c)
	var stop time.Time
	for i := 0; stop.IsZero() || time.Now().Before(stop); i++ {
		e.renewed([]backend.Backend{a, b}[i%2], saving(c, strconv.Itoa(i)))
		if stop.IsZero() {
			stop = time.Now().Add(3 * e.short)
		}
		e.pause(e.short / 4)
	}
	c.TTL = e.long
	e.renewed(a, saving(c, "longer"))
	e.pause(2 * e.short)
	e.held(b, e.claim(key))
	e.release(b, c)
	e.stored(a, key, []byte("longer"))
}

// covers: W6
func stateHandedOver(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	e.saved(a, key, "before")
	holder, head, next := e.loads(key), e.inLine(key), e.inLine(key)
	head.Load, next.Load = true, true
	e.acquire(a, holder)
	wake, _ := e.watch(b, head)
	other, _ := e.watch(b, next)
	e.stand(b, head, 1)
	e.stand(b, next, 2)
	e.release(a, saving(holder, "handed over"))
	e.loaded(e.handed(wake), []byte("handed over"))
	e.loaded(e.turn(b, head), []byte("handed over"))
	e.release(b, head) // saves nothing
	e.loaded(e.handed(other), []byte("handed over"))
	e.renewed(b, saving(next, "by the next"))
	e.loaded(e.turn(b, next), []byte("by the next"))
	e.release(b, next)
}

// covers: I8
func stateLimit(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	most := make([]byte, backend.MaxState)
	_, _ = rand.Read(most) // never fails
	for i := range 256 {
		most[i] = byte(i)
	}
	c := e.claim(key)
	e.acquire(a, c)
	e.renewed(a, saving(c, string(most)))
	over := saving(c, string(most)+"x")
	e.invalid("Renew with a state that is too long", a.Renew(e.ctx, over), "save")
	e.invalid("Release with a state that is too long", release(e.ctx, a, over), "save")
	e.held(b, e.claim(key))
	e.release(b, c)
	e.stored(a, key, most)
}

func stateOwnMemory(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	buffer := []byte("as it was")
	c := e.loads(key)
	e.acquire(a, c)
	c.Save = buffer
	e.renewed(a, c)
	buffer[0] = '?'
	c.Save = nil
	g := e.acquire(a, c)
	e.loaded(g, []byte("as it was"))
	g.State[0] = '!'
	e.release(a, c)
	e.stored(b, key, []byte("as it was"))
}

func stateModes(e *env) {
	a, b := e.open(), e.open()
	for what, pair := range map[string][2]backend.Claim{
		"readers": {e.mode(e.key("r"), backend.Shared, 0), e.mode(e.key("r"), backend.Shared, 0)},
		"permits": {e.mode(e.key("p"), backend.Permit, 2), e.mode(e.key("p"), backend.Permit, 2)},
		"entries": {e.enters(e.key("o"), e.prefix+"owner"), e.enters(e.key("o"), e.prefix+"owner")},
	} {
		first, second := pair[0], pair[1]
		first.Load, second.Load = true, true
		e.saved(a, first.Key, what)
		e.loaded(e.acquire(a, first), []byte(what))
		e.renewed(a, saving(first, what+" 1"))
		e.loaded(e.acquire(b, second), []byte(what+" 1"))
		e.renewed(a, saving(second, what+" 2"))
		e.loaded(e.acquire(b, first), []byte(what+" 2"))
		e.release(b, saving(first, what+" 3"))
		e.loaded(e.acquire(a, second), []byte(what+" 3"))
		e.lost("Renew with Save by one who left", a.Renew(e.ctx, saving(first, "gone")))
		e.lost("Release with Save by one who left", release(e.ctx, b, saving(first, "gone")))
		e.release(a, second)
		e.stored(b, first.Key, []byte(what+" 3"))
	}
}

func stateRead(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	reads := func(want []byte) {
		e.Helper()
		for _, client := range []backend.Backend{a, b} {
			got, err := client.Saved(e.ctx, key)
			if err != nil {
				e.Fatalf("Saved = %v", err)
			}
			e.loaded(backend.Grant{State: got}, want)
			if len(got) > 0 {
				got[0] = '!'
			}
		}
	}
	reads(nil)
	e.saved(a, key, "before")
	reads([]byte("before"))
	c := e.claim(key)
	e.acquire(b, c)
	reads([]byte("before"))
	e.renewed(b, saving(c, "since"))
	reads([]byte("since"))
	e.release(b, saving(c, ""))
	reads([]byte{})
	_, err := a.Saved(e.ctx, "")
	e.invalid("Saved of no key", err, "key")
}

// covers: A1, C2
func stateRace(e *env) {
	clients := []backend.Backend{e.open(), e.open(), e.open()}
	key := e.key("k")
	const workers, rounds = 6, 5
	parallel(workers, func(i int) {
		b := clients[i%len(clients)]
		for done := 0; done < rounds && e.ctx.Err() == nil; {
			c := e.loads(key)
			g, err := b.TryAcquire(e.ctx, c)
			if errors.Is(err, backend.ErrHeld) {
				e.pause(time.Millisecond)
				continue
			}
			n, _ := strconv.Atoi(string(g.State)) // nothing is 0
			if err == nil {
				_, err = b.Release(e.ctx, saving(c, strconv.Itoa(n+1)))
			}
			if err != nil {
				e.Errorf("a worker's attempt or release = %v", err)
				return
			}
			done++
		}
	})
	if !e.Failed() {
		e.stored(clients[0], key, []byte(strconv.Itoa(workers*rounds)))
	}
}
