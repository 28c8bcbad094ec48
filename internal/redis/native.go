package redis

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// A native takes and releases free locks without scripts, on servers that have SET … IFEQ (Redis
// 8.4, Valkey 8.1). The short form of a lock is a string of which this client may know every byte:
// free, as it left it, or held, as it was granted it. docs/adr/redis.md has the
// figures.
//
// Safety: each write is a compare-and-set of the whole value, in one command. The value has
// the key's token counter, which only rises while the key lives, so equal bytes mean that nobody
// was in between: no hold, no place in the queue, no tombstone, no watcher's mark. A key that is
// not there, or is a HASH, is not equal. A grant's token is above the counter that was compared,
// however late the command is executed; the estimate of the clock, and a minimum token, can only
// make it higher.
//
// Each value is forgotten before it is sent, so each command is sent at most once, and whatever is
// not a yes is for the script to say. A command without an answer is unknown, as that of a script:
// the script that repeats the claim knows it by its id, or leaves the tombstone that makes the
// value another.
type native struct {
	on atomic.Bool // the server has IFEQ, and nothing that was asked for forbids it

	mu    sync.Mutex
	known map[string]known // by key in Redis
	clock clockReading     // of the only server there is, see clockOf
}

// A clockReading is what a server has told of its clock.
type clockReading struct {
	us    uint64    // the clock in µs was not below this
	at    time.Time // at this time
	dials uint64    // of Store.dials
}

// A known is what this client knows of a key.
type known struct {
	last  uint64       // the key's last token; 0: not known
	tail  string       // of the holder, what follows in the value; empty: free
	id    string       // of the holder
	until time.Time    // of a free one: the key lives for so long
	clock clockReading // of the server that has the key
	// how often others had changed the key, until a native acquire went well again
	misses uint8
	wait   uint8 // acquires that are to go by the script; doubles with each miss
}

const (
	maxKnown  = 1 << 14         // keys, 300 bytes each; of more, any is forgotten
	maxMisses = 6               // up to 63 acquires go by the script before the next is tried
	maxAge    = 5 * time.Second // of the clock's estimate
)

// detect finds out if the server has IFEQ, on a key that is no lock.
func (s *Store) detect(ctx context.Context) error {
	if s.cfg.Dialect != "" || s.cfg.MaxTTL != 0 || s.cfg.Replicas != 0 {
		return nil
	}
	_, err := s.set(ctx, s.Layout.ProbeKey(), "", "IFEQ", "none", "PX", "1")
	if backend.AnswerOf(err) == backend.Unknown {
		return err
	}
	s.native.on.Store(err == nil)
	return nil
}

// set is SET key args, and reports whether it wrote.
func (s *Store) set(ctx context.Context, key string, args ...string) (bool, error) {
	if err := s.Begin(ctx); err != nil {
		return false, err
	}
	defer s.End()
	ok, err := s.t.Set(ctx, key, args...)
	return ok, s.Failure(ctx, err)
}

// take forgets what is known of a key, and returns it. ok is false if nothing is, or if another
// claim of this client than id is known to hold, which stays so.
func (n *native) take(name, id string) (k known, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	k = n.known[name]
	if k.id != "" && k.id != id {
		return known{}, false
	}
	delete(n.known, name) // safeguard: native-once
	return k, true
}

// note remembers what is known of a key now. In a quorum a release and the next acquire may be
// in flight at once: what a late answer says of a free key does not replace a higher token.
func (n *native) note(name string, k known) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if k.id == "" && n.known[name].last > k.last {
		return
	}
	if n.known == nil {
		n.known = map[string]known{}
	}
	if len(n.known) >= maxKnown {
		for other := range n.known {
			delete(n.known, other)
			break
		}
	}
	n.known[name] = k
}

// missed is what is known after another had changed the key: next time, and twice as often with
// each miss, the script is asked first.
func (k known) missed() known {
	misses := min(k.misses+1, maxMisses)
	return known{misses: misses, wait: 1<<misses - 1}
}

// acquireNative makes an attempt for which r is the script: natively, if it may, and by the script
// if that has to say.
func (s *Store) acquireNative(ctx context.Context, c *backend.Claim,
	r script.Request,
) (g backend.Grant, err error) {
	dials := s.dials.Load() // safeguard: native-clock-before
	k, g, done, err := s.takeNative(ctx, c, r.Keys[0], r.Args)
	if done {
		return g, err
	}
	reply, _, err := s.run(ctx, r, 0) // where replicas are waited for, nothing is native
	if err != nil {
		return backend.Grant{}, err
	}
	s.granted(r.Keys[0], k, dials, r.Args, c, reply)
	return script.DecodeAcquire(reply, *c)
}

// takeNative takes a key as this client left it. done is false if the script has to say.
func (s *Store) takeNative(ctx context.Context, c *backend.Claim, name string, args []string) (
	k known, g backend.Grant, done bool, err error,
) {
	n := &s.native
	k, ok := n.take(name, "")
	if !ok || !plain(c) || k.last == 0 || k.wait > 0 || !time.Now().Before(k.until) {
		return k, g, false, nil
	}
	clock, ok := s.clockOf(&k)
	least := max(clock, c.MinToken)
	token := max(k.last+1, least) // safeguard: native-token
	last := token + uint64(max(c.Reserve, 1)) - 1
	if !ok || c.MinToken > clock+uint64((c.TTL/4).Microseconds()) || last > least+script.Near {
		return k, g, false, nil
	}
	value := script.Held(last, args[2])
	// safeguard: native-take
	ok, err = s.set(ctx, name, value, "IFEQ", script.Free(k.last), "PX", args[1])
	switch {
	case ok && k.clock.dials != s.dials.Load():
		// By a server, maybe, that has yet to tell its clock. The script finds this hold, and keeps
		// its counter until the clock has passed it.
		return known{}, g, false, nil
	case ok:
		n.note(name, known{last: last, tail: args[2], id: args[0], clock: k.clock})
		return k, script.Granted(token, *c), true, nil
	case s.unanswered(err):
		return k, g, true, err
	}
	return k.missed(), g, false, nil
}

// granted takes note of what the script answered to an acquire, which was sent at so many dials.
func (s *Store) granted(name string, k known, dials uint64, args []string, c *backend.Claim,
	reply any,
) {
	n := &s.native
	k = known{misses: k.misses, wait: max(k.wait, 1) - 1}
	if token, clock, ok := script.Short(reply, *c); ok && plain(c) {
		k.last, k.tail, k.id = token+uint64(max(c.Reserve, 1))-1, args[2], args[0]
		k.clock = clockReading{clock, time.Now(), dials}
		n.told(k.clock)
	}
	if k != (known{}) {
		n.note(name, k)
	}
}

// releaseNative frees a key that is as this client was granted it. done is false if the script has
// to say.
func (s *Store) releaseNative(ctx context.Context, c *backend.Claim) (done bool, err error) {
	n, name, id := &s.native, s.Layout.Key(c.Key), s.Layout.OwnerID(*c)
	k, ok := n.take(name, id)
	// safeguard: native-leaves
	if !ok || k.id != id || !c.NoneInFlight || k.wait > 0 || c.Save != nil || c.NotBefore > 0 {
		if k.misses > 0 {
			n.note(name, known{misses: k.misses, wait: k.wait})
		}
		return false, nil
	}
	// Until the server's clock is past the last token by so much as the clock may be set back: that
	// is for the server to say, which may be another than the one that granted.
	sent, keep := time.Now(), s.Layout.Keep(*c)
	// The server's clock is hardly later than that.
	clock := k.clock.us + script.Near + uint64(sent.Sub(k.clock.at).Microseconds())*101/100
	// safeguard: native-counter-kept
	at := max(k.last, clock) + uint64(keep.Microseconds())
	// safeguard: native-free
	ok, err = s.set(ctx, name, script.Free(k.last), "IFEQ", script.Held(k.last, k.tail),
		"PXAT", strconv.FormatUint(at/1000+1, 10))
	switch {
	case ok:
		n.note(name, known{
			last: k.last, until: sent.Add(keep - keep/10), clock: k.clock,
			misses: k.misses,
		})
		return true, nil
	case s.unanswered(err):
		return true, err
	}
	n.note(name, k.missed())
	return false, nil
}

// unanswered reports whether err is that of a command that may have been executed. It turns native
// off at a server that does not know the command.
func (s *Store) unanswered(err error) bool {
	if errors.Is(err, errors.ErrUnsupported) {
		s.native.on.Store(false)
	}
	return backend.AnswerOf(err) == backend.Unknown // safeguard: native-unknown
}

// plain reports whether a claim is one that the short form has room for.
func plain(c *backend.Claim) bool {
	// safeguard: native-mark
	return c.Mode == backend.Exclusive && !c.Reentrant && !c.Load && c.NotBefore == 0
}

// clockOf returns a time in µs that the clock has reached of the server that has k's key, and is
// not far behind it, and leaves in k what told it.
//
// Tokens rise by the counter; that they also rise after the store has lost its last writes is the
// clock's doing, so what is old is not used, and scripts are asked instead. Both clocks of this
// machine are looked at, as the monotonic one stands still while it is suspended.
//
// Safety: a token by another server's clock might be ahead of this one's by more than its counter
// is kept. So what a server told is forgotten when a connection is made, as it may lead to another;
// and where there are several servers, or connections are not seen, only what was told of the key
// itself is used.
func (s *Store) clockOf(k *known) (us uint64, ok bool) {
	if s.one && !s.cluster { // safeguard: native-clock-of-one
		s.native.mu.Lock()
		k.clock = s.native.clock
		s.native.mu.Unlock()
	}
	r, now := k.clock, time.Now()
	age, wall := now.Sub(r.at), now.Round(0).Sub(r.at.Round(0))
	// safeguard: native-clock-of-connection
	if r.us == 0 || r.dials != s.dials.Load() || age > maxAge || wall < 0 || wall > maxAge {
		return 0, false
	}
	return r.us + uint64(age.Microseconds())*99/100, true
}

// told takes note of a reading, unless an earlier one tells more.
func (n *native) told(r clockReading) {
	n.mu.Lock()
	defer n.mu.Unlock()
	age := r.at.Sub(n.clock.at)
	if n.clock.dials != r.dials || age > maxAge ||
		n.clock.us+uint64(age.Microseconds())*99/100 < r.us {
		n.clock = r
	}
}
