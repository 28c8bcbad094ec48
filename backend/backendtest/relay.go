package backendtest

import (
	"errors"
	"fmt"

	"github.com/holdfast-go/holdfast/backend"
)

var relayRules = []rule{
	{
		name: "relay/alone", run: relayAlone, needs: queue,
		why: "A Relay is a release and the next claim in one request. Where nobody else wants the key it goes from the one to the other, with" +
			" a higher token, and is never free in between.",
	},
	{
		name: "relay/line", run: relayLine, needs: queue,
		why: "Who stood in line before is first, and is handed the key; the claim that came along stands last. A process that hands on" +
			" to itself past the others starves them.",
	},
	{
		name: "relay/over", run: relayOver, needs: queue,
		why: "A Relay of what is not held any more says so, as a release would, and takes nothing from whoever holds.",
	},
	{
		name: "relay/any", run: relayAny, needs: queue,
		why: "Whatever the two claims are, the answers are those of Release and TryAcquire.",
	},
}

// relay relays, and reports whether b does.
func (e *env) relay(b backend.Backend, ended, next backend.Claim) (released error, g backend.Grant, err error, does bool) {
	e.Helper()
	ended.Settled = true
	released, g, err = backend.RelayOf(e.ctx, b, ended, next)
	if !errors.Is(released, errors.ErrUnsupported) {
		return released, g, err, true
	}
	e.is("a Relay that is not done, for the other claim", err, errors.ErrUnsupported)
	return released, g, err, false
}

// covers: W6, Q14
func relayAlone(e *env) {
	a, b := e.open(), e.open()
	for i := range 5 {
		key := e.key(fmt.Sprint(i))
		c := e.claim(key)
		c.Queue, c.Linger, c.Reserve = i%2 == 1, e.long, i
		last := e.acquire(a, c)
		for j := range 3 {
			next := e.inLine(key)
			next.Reserve = j
			released, g, err, does := e.relay(a, c, next)
			if !does {
				e.held(b, e.claim(key))
				e.release(a, c)
				return
			}
			if released != nil || err != nil {
				e.Fatalf("Relay = %v, %v", released, err)
			}
			if e.caps.Fencing && g.Token < last.Token+uint64(max(last.Reserved, 1)) || g.TTL < next.TTL || g.Reserved > max(j, 1) {
				e.Errorf("after %+v the next grant is %+v", last, g)
			}
			e.lost("Renew of the hold that was given back", a.Renew(e.ctx, c))
			e.held(b, e.claim(key))
			if again := e.acquire(a, next); again.Token != g.Token {
				e.Errorf("asked again, token %d after %d", again.Token, g.Token)
			}
			c, last = next, g
		}
		e.release(a, c)
		e.free(b, key)
	}
}

// covers: W6, W4
func relayLine(e *env) {
	a, b := e.open(), e.open()
	for i := range 4 {
		key := e.key(fmt.Sprint(i))
		c := e.claim(key)
		e.acquire(a, c)
		line := []backend.Claim{e.inLine(key), e.inLine(key)}[:1+i%2]
		for n, waiter := range line {
			e.stand(b, waiter, n+1)
		}
		last := uint64(0)
		for range 4 { // round and round
			next := e.inLine(key)
			released, _, err, does := e.relay(a, c, next)
			if !does {
				return
			}
			var held *backend.HeldError
			if released != nil || !errors.As(err, &held) {
				e.Fatalf("Relay = %v, %v; want nil and ErrHeld", released, err)
			}
			if held.Position != len(line) {
				e.Errorf("place %d behind %d others, one of whom has the key now", held.Position, len(line))
			}
			g := e.acquire(b, line[0])
			if e.caps.Fencing && (g.Token <= last || held.Token < g.Token) {
				e.Errorf("token %d after %d, and the refusal knew of %d", g.Token, last, held.Token)
			}
			c, line, last = line[0], append(line[1:], next), g.Token
		}
		e.release(a, c)
		for _, c := range line {
			e.acquire(a, c)
			e.release(a, c)
		}
		e.free(b, key)
	}
}

// covers: D1, W7
func relayOver(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	c, other, next := e.claim(key), e.claim(key), e.inLine(key)
	e.acquire(a, c)
	e.release(a, c)
	e.acquire(b, other)
	released, _, err, does := e.relay(a, c, next)
	if !does {
		return
	}
	e.lost("Relay of a hold that was given back before", released)
	e.is("the claim that came along", err, backend.ErrHeld)
	e.held(a, e.claim(key)) // nobody has taken it from its holder
	second := e.inLine(key)
	released, _, err, _ = e.relay(b, other, second)
	if released != nil {
		e.Errorf("Relay of a hold = %v", released)
	}
	e.is("who came later", err, backend.ErrHeld)
	e.turn(a, next)
	third := e.inLine(key)
	released, _, err, _ = e.relay(b, other, third) // late, or once more
	e.lost("Relay that is repeated", released)
	e.is("who came later still", err, backend.ErrHeld)
	if err := a.Renew(e.ctx, next); err != nil {
		e.Errorf("the holder was disturbed: %v", err)
	}
	for _, c := range []backend.Claim{next, second, third} {
		e.turn(a, c)
		e.release(a, c)
	}
}

// covers: W11, W15
func relayAny(e *env) {
	a, b := e.open(), e.open()
	wishes := e.wishes(e.key("k"))
	i := 0
	for name, first := range wishes {
		for other, second := range wishes {
			if e.caps.Missing(first.need) != nil || e.caps.Missing(second.need) != nil {
				continue
			}
			i++
			ended, next := first.claim, second.claim
			ended.Key, next.Key = e.key(fmt.Sprint("any", i)), e.key(fmt.Sprint("any", i))
			ended.Owner, next.Owner = backend.NewOwner(), backend.NewOwner()
			if ended.Reentrant {
				ended.Hold = backend.NewOwner()
			}
			ended.Save = nil
			e.acquire(a, ended)
			released, _, err, does := e.relay(a, ended, next)
			if !does {
				return
			}
			if released != nil || err != nil {
				e.Errorf("Relay of %s to %s = %v, %v", name, other, released, err)
			}
			e.lost("Renew of "+name+" after Relay", a.Renew(e.ctx, ended))
			e.release(a, next)
			e.free(b, ended.Key)
		}
	}
}
