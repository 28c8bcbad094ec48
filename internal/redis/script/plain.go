package script

import (
	"slices"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// plain is the layout of our own: one key for each lock, whose hash tag is all of the key.
type plain struct {
	names
	full bool // no argument is left out at the end, as another follows
}

func (p *plain) named(n names) kind { return &plain{n, p.full} }

func (p *plain) Key(key string) string { return p.prefix + "{" + inKey.escape(key) + "}" }

// Those arguments that end up in the key are put together here, so that the script stores them as
// they are. What stands for nothing is left out at the end: each argument costs the server 0.1 µs
// and more, and most claims are alike.
func (p *plain) Acquire(c backend.Claim) Request {
	id, keep, count, form := inName.escape(c.ID()), p.Keep(c), max(c.Reserve, 1), "x"
	if c.Mode != backend.Exclusive || c.Reentrant || c.Load || c.NotBefore > 0 ||
		c.MinToken != 0 && c.Queue {
		form = formOf(c, id)
	}
	queue := ""
	if p.watched {
		queue = "w"
	}
	if c.Queue {
		queue = millis(min(c.WaiterTTL, c.TTL)) + " " + p.client + " " + millis(c.WaiterTTL)
	}
	args := append(make([]string, 0, 9), id, millis(c.TTL+keep+time.Millisecond),
		tailOf(millis(keep), id, count, &c.Meta))
	switch {
	case p.full || c.MinToken != 0:
		ahead := strconv.FormatInt(roundUp(c.TTL).Microseconds()/4, 10)
		args = append(args, queue, strconv.Itoa(count), form, strconv.FormatUint(c.MinToken, 10),
			ahead)
	case form != "x":
		args = append(args, queue, strconv.Itoa(count), form)
	case count > 1:
		args = append(args, queue, strconv.Itoa(count))
	case queue != "":
		args = append(args, queue)
	}
	r := Request{own.Acquire, []string{p.Key(c.Key)}, args}
	if c.Load || c.Save != nil || c.NotBefore > 0 {
		r.useState()
	}
	return r
}

func (p *plain) TryAcquireAll(claims []backend.Claim) Request {
	r := Request{
		own.TryAcquireAll, make([]string, 0, len(claims)+1),
		make([]string, 1, 2+3*len(claims)),
	}
	r.Args[0] = strconv.Itoa(len(claims))
	for i := range claims {
		c := &claims[i]
		keep, count := p.Keep(*c), max(c.Reserve, 1)
		tail := tailOf(millis(keep), inName.escape(c.ID()), count, &c.Meta)
		r.Keys = append(r.Keys, p.Key(c.Key))
		r.Args = append(r.Args, millis(c.TTL+keep+time.Millisecond), tail, strconv.Itoa(count))
	}
	return r
}

// useState adds the keys of lib/state.lua, for a claim that uses them.
func (r *Request) useState() {
	r.Keys = append(r.Keys, r.Keys[0]+":state", r.Keys[0]+":early", r.Keys[0]+":ran")
}

// jobOf is what the release of a job's claim leaves, 'every ran keep', or else 0. A run that is
// said to have begun later than it has is no run too many.
func jobOf(c backend.Claim) string {
	if c.NotBefore == 0 {
		return "0"
	}
	ran := strconv.FormatInt(c.Ran.Milliseconds(), 10)
	return millis(c.NotBefore) + " " + ran + " " + millis(backend.MarkLife(c.NotBefore))
}

// formOf is that of a claim that is not the plainest, which has "x": "mode,limit,owner", with
// "limit*weight" where the weight is not 1.
func formOf(c backend.Claim, id string) string {
	owner := inName.escape(c.Owner)
	if owner == id {
		owner = ""
	}
	mode := modeOf(c)
	if c.Load {
		mode = "+" + mode
	}
	if c.NotBefore > 0 {
		mode = "!" + millis(c.NotBefore) + ":" +
			strconv.FormatUint(min(c.Awaited, backend.MaxMinToken), 10) + mode
	}
	limit := strconv.Itoa(c.Limit)
	if c.Weight > 1 {
		limit += "*" + strconv.Itoa(c.Weight)
	}
	return mode + "," + limit + "," + owner
}

// The letters of modes in the store. A re-entrant claim is exclusive, and shares with its owner's
// others.
const (
	letterExclusive = "x"
	letterShared    = "s"
	letterPermit    = "p"
	letterReentrant = "r"
)

func modeOf(c backend.Claim) string {
	switch {
	case c.Mode == backend.Shared:
		return letterShared
	case c.Mode == backend.Permit:
		return letterPermit
	case c.Reentrant:
		return letterReentrant
	}
	return letterExclusive
}

func (p *plain) Renew(c backend.Claim) Request {
	args := append(make([]string, 0, 6), inName.escape(c.ID()), millis(c.TTL), millis(p.Keep(c)))
	switch {
	case p.full || c.Save != nil:
		args = append(args, strconv.FormatUint(c.MinToken, 10), saved(c))
	case c.MinToken != 0:
		args = append(args, strconv.FormatUint(c.MinToken, 10))
	}
	r := Request{own.Renew, []string{p.Key(c.Key)}, args}
	if c.Load || c.Save != nil || c.NotBefore > 0 {
		r.useState()
	}
	return r
}

func (p *plain) Release(c backend.Claim) Request {
	args := append(make([]string, 0, 7), inName.escape(c.ID()), millis(p.Keep(c)))
	switch {
	case p.full || c.NotBefore > 0 || c.Save != nil:
		args = append(args, p.tombstone(c), encodeBefore(c.Before), jobOf(c), saved(c))
	case len(c.Before) > 0:
		args = append(args, p.tombstone(c), encodeBefore(c.Before))
	case !c.NoneInFlight:
		args = append(args, p.tombstone(c))
	}
	r := Request{own.Release, []string{p.Key(c.Key)}, args}
	if c.Load || c.Save != nil || c.NotBefore > 0 {
		r.useState()
	}
	return r
}

func (p *plain) TryReleaseAll(claims []backend.Claim) Request {
	r := Request{
		own.TryReleaseAll, make([]string, 0, len(claims)),
		make([]string, 0, 2*len(claims)),
	}
	for i := range claims {
		c := &claims[i]
		r.Keys = append(r.Keys, p.Key(c.Key))
		r.Args = append(r.Args, inName.escape(c.ID()), millis(p.Keep(*c)))
	}
	return r
}

func (p *plain) ReleaseAll(claims []backend.Claim) Request {
	r := Request{
		own.ReleaseAll,
		[]string{p.Key(claims[0].Key)},
		append(make([]string, 0, 2+2*len(claims)), ""),
	}
	var keep time.Duration
	for i := range claims {
		c := &claims[i]
		keep = max(keep, p.Keep(*c))
		r.Args = append(r.Args, inName.escape(c.ID()), p.tombstone(*c))
	}
	r.Args[0] = millis(keep)
	return r
}

// Keep is how long a key outlives the last lease.
//
// The token counter is what must outlive it: until the clock has passed the last token, which a
// minimum token may have put a quarter of a TTL ahead, and reserves 10 ms more, and for as long as
// the server's clock may be set back. See leastRetention.
//
// A claim that is released was not validated, so its TTL is bounded: no key and no tombstone lives
// for years.
func (n names) Keep(c backend.Claim) time.Duration {
	if half := min(max(c.TTL, MinTTL), backend.MaxTTL) / 2; half > n.retention {
		return roundUp(half)
	}
	return n.retention
}

// tombstone is for how many ms a released claim has one; 0 for none.
func (n names) tombstone(c backend.Claim) string {
	if c.NoneInFlight {
		return "0"
	}
	return millis(2*min(max(c.TTL, MinTTL), backend.MaxTTL) + n.inFlight)
}

// millis rounds up: a lease may be longer than asked, never shorter (0 would be "PX 0").
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// saved is '+' and the state that a claim saves, or nothing.
func saved(c backend.Claim) string {
	if c.Save == nil {
		return ""
	}
	return "+" + string(c.Save)
}

func (p *plain) Heartbeat(locks ...[]backend.Claim) Request {
	r := Request{
		Script: own.Heartbeat,
		Args:   append(make([]string, 0, 3+5*len(locks)), strconv.Itoa(len(locks)), p.client),
	}
	for _, claims := range locks {
		r.Keys = append(r.Keys, p.Key(claims[0].Key))
		var keep time.Duration
		for i := range claims {
			keep = max(keep, p.Keep(claims[i]))
		}
		r.Args = append(r.Args, millis(keep), strconv.Itoa(len(claims)))
		for i := range claims {
			c := &claims[i]
			lease := millis(min(c.WaiterTTL, c.TTL)) // safeguard: kept-place
			r.Args = append(r.Args, inName.escape(c.ID()), millis(c.WaiterTTL), lease)
		}
	}
	return r
}

func (p *plain) Inspect(locks ...string) Request {
	r := Request{Script: own.Inspect}
	for _, key := range locks {
		r.Keys = append(r.Keys, p.Key(key))
	}
	return r
}

// guarded is plain with a guard: scripts that grant or keep a lease have one key and one argument
// more.
type guarded struct {
	plain
	rule string // 'longest grace' in ms, see lib/guard.lua
}

func (g *guarded) named(n names) kind { return &guarded{plain{n, true}, g.rule} }

func (g *guarded) Acquire(c backend.Claim) Request { return g.guard(g.plain.Acquire(c), 1) }

func (g *guarded) TryAcquireAll(claims []backend.Claim) Request {
	return g.guard(g.plain.TryAcquireAll(claims), len(claims))
}

func (g *guarded) Renew(c backend.Claim) Request { return g.guard(g.plain.Renew(c), 1) }

func (g *guarded) Release(c backend.Claim) Request { return g.guard(g.plain.Release(c), 1) }

func (g *guarded) ReleaseAll(claims []backend.Claim) Request {
	return g.guard(g.plain.ReleaseAll(claims), 1)
}

func (g *guarded) Heartbeat(locks ...[]backend.Claim) Request {
	return g.guard(g.plain.Heartbeat(locks...), len(locks))
}

// guard adds the mark of the server, behind so many keys of locks, and the rule.
func (g *guarded) guard(r Request, locks int) Request {
	r.Keys, r.Args = slices.Insert(r.Keys, locks, g.prefix+markName), append(r.Args, g.rule)
	return r
}
