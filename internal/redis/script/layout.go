package script

import (
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// The defaults of [NewLayout].
const (
	DefaultPrefix    = "holdfast:"
	DefaultRetention = 15 * time.Second
)

// MinTTL is the shortest lease that the layout keeps: milliseconds are its unit, and a lease must
// be long against them.
const MinTTL = 10 * time.Millisecond

// A Layout names keys and makes the scripts' arguments. It is a value without state.
type Layout struct {
	prefix    string
	client    string // names the channel of the client that asks; empty: it is not told of what is handed over
	retention time.Duration
	inFlight  time.Duration
	dialect   bool
	watched   bool     // see Watched
	guard     []string // the last argument of guarded scripts; none without a guard
}

// NewLayout returns the layout for keys under prefix, whose state is kept for retention after the
// last hold (but at least half its TTL). inFlight is how long a client waits for an answer at most;
// tombstones outlast it. Empty and zero stand for the defaults. A prefix with braces or control
// characters is an *[backend.InvalidError]: it would move the hash tag.
func NewLayout(prefix string, retention, inFlight time.Duration) (Layout, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if retention == 0 {
		retention = DefaultRetention
	}
	switch {
	case len(prefix) > backend.MaxKey:
		return Layout{}, &backend.InvalidError{Field: "prefix", Reason: "is over " + strconv.Itoa(backend.MaxKey) + " bytes"}
	case strings.ContainsFunc(prefix, unfit):
		return Layout{}, &backend.InvalidError{Field: "prefix", Value: prefix, Reason: "has braces or control characters"}
	case retention < 0 || retention > 100*backend.MaxTTL:
		return Layout{}, &backend.InvalidError{Field: "retention", Value: retention.String(), Reason: "must be between 0 and " +
			(100 * backend.MaxTTL).String()}
	}
	return Layout{prefix: prefix, retention: retention, inFlight: inFlight}, nil
}

func unfit(r rune) bool { return r < 0x20 || r == 0x7f || r == '{' || r == '}' }

// Scripts returns those that go with this layout, for arguments and keys that it makes.
func (l Layout) Scripts() Scripts {
	if l.dialect {
		return dialect
	}
	return own
}

// Keys returns the keys that a script about a lock has, or about several: the locks' own, which
// come first, and what else it reads or writes.
func (l Layout) Keys(locks ...string) []string {
	keys := make([]string, 0, len(locks)+1)
	for _, key := range locks {
		keys = append(keys, l.Key(key))
	}
	switch {
	case l.dialect:
		return append(keys, l.sideKey(locks[0]))
	case l.guard != nil:
		return append(keys, l.MarkKey())
	}
	return keys
}

// KeysOf returns the keys that a script about a claim has: those of its lock, and if the claim uses
// them, those of the lock's stored state and mark (lib/state.lua).
func (l Layout) KeysOf(c *backend.Claim) []string {
	keys := l.Keys(c.Key)
	if c.Load || c.Save != nil || c.NotBefore > 0 {
		keys = append(keys, l.StateKey(c.Key), l.Key(c.Key)+":early")
	}
	return keys
}

// StateKey returns the key of a lock's stored state. No lock has it, as it does not end in a brace.
func (l Layout) StateKey(key string) string { return l.Key(key) + ":state" }

// Key returns the Redis key of a lock. Different keys never give the same one, and the hash tag is
// all of the key.
func (l Layout) Key(key string) string {
	if l.dialect {
		return l.prefix + key
	}
	return l.prefix + "{" + escape(key, inKey) + "}"
}

// UserKey is the inverse of [Layout.Key]; ok is false for a Redis key that no lock of this layout
// has.
func (l Layout) UserKey(redisKey string) (key string, ok bool) {
	if l.dialect {
		return strings.CutPrefix(redisKey, l.prefix)
	}
	tag, ok := strings.CutPrefix(redisKey, l.prefix+"{")
	if !ok {
		return "", false
	}
	if tag, ok = strings.CutSuffix(tag, "}"); !ok {
		return "", false
	}
	key, ok = unescape(tag)
	return key, ok && l.Key(key) == redisKey
}

// Pattern is what SCAN finds the keys of all locks by whose names begin with prefix. ok is false
// where a lock's name is all of its key, so that other data may match.
func (l Layout) Pattern(prefix string) (pattern string, ok bool) {
	return globs.Replace(l.prefix+"{"+escape(prefix, inKey)) + "*", !l.dialect
}

var globs = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, `\`, `\\`)

// Channel returns the channel on which releases of a lock are announced.
func (l Layout) Channel(key string) string { return l.Key(key) + ":free" }

// ProbeKey returns the key that [Probe] works on. No lock has it, as it has no braces.
func (l Layout) ProbeKey() string {
	if l.dialect {
		return l.prefix + "probe:holdfast"
	}
	return l.prefix + "probe"
}

// For returns the layout for a client whose channel name ends in id, which must be unique to it and
// have no blanks. What is handed over to a claim in line is announced on the channel of the client
// that asked for it.
func (l Layout) For(id string) Layout {
	l.client = id
	return l
}

// ClientChannel returns the channel of [Layout.For]'s client. It is no lock's, as it has no braces.
func (l Layout) ClientChannel() string { return l.prefix + "@" + l.client }

// Topic returns what tells a claim in line from every other, and is the topic of the [Handed]
// messages for it.
func (l Layout) Topic(c backend.Claim) string { return name(c.ID()) + " " + l.Key(c.Key) }

// Watched returns the layout for attempts on a key that the client is subscribed to: if another
// holds it, its release publishes.
func (l Layout) Watched() Layout {
	l.watched = true
	return l
}

// Acquire returns the arguments of [Scripts.Acquire] for a claim that is valid. Those that end up
// in the key are put together here, so that the script stores them as they are.
func (l Layout) Acquire(c backend.Claim) []string {
	id, keep, count := name(c.ID()), l.Keep(c), strconv.Itoa(max(c.Reserve, 1))
	queue := ""
	if l.watched {
		queue = "w"
	}
	if c.Queue {
		queue = millis(min(c.WaiterTTL, c.TTL)) + " " + l.client + " " + millis(c.WaiterTTL)
	}
	held := append(make([]byte, 0, 256), millis(keep)+" "+id+" "+count+" "...) // what the key has of a claim; most fit
	held = appendMeta(held, &c.Meta)
	args := append(make([]string, 0, 9),
		id, millis(roundUp(c.TTL)+keep+time.Millisecond), string(held), queue, count)
	form := formOf(c, id)
	if l.brief() && form == "x" && c.MinToken == 0 {
		return args
	}
	return l.last("acquire", append(args,
		form, strconv.FormatUint(c.MinToken, 10), strconv.FormatInt(roundUp(c.TTL).Microseconds()/4, 10))...)
}

// Free is what a key holds whose lock nobody has, and which nobody waits for.
func Free(last uint64) string { return "h2 " + strconv.FormatUint(last, 10) }

// Held is what a key holds that a plain claim was granted; tail is the third argument of
// [Layout.Acquire].
func Held(last uint64, tail string) string { return Free(last) + " " + tail }

// brief says that arguments may be left out at the end. (Each costs the server 0.1 µs and more, and
// most claims are alike.)
func (l Layout) brief() bool { return l.guard == nil && !l.dialect }

// formOf is "x" for the plainest claim there is, so that scripts need one look, and
// "mode,limit,owner" for others, with "limit*weight" where the weight is not 1.
func formOf(c backend.Claim, id string) string {
	owner := name(c.Owner)
	if owner == id {
		owner = ""
	}
	mode := modeOf(c)
	if mode == letterExclusive && owner == "" && (c.MinToken == 0 || !c.Queue) && !c.Load && c.NotBefore == 0 {
		return "x"
	}
	if c.Load {
		mode = "+" + mode
	}
	if c.NotBefore > 0 {
		mode = "!" + mode
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

// Renew returns the arguments of [Scripts.Renew] for a claim that is valid.
func (l Layout) Renew(c backend.Claim) []string {
	args := []string{name(c.ID()), millis(c.TTL), millis(l.Keep(c)), strconv.FormatUint(c.MinToken, 10)}
	if c.Save != nil {
		args = append(args, "+"+string(c.Save))
	}
	return l.last("renew", args...)
}

// Release returns the arguments of [Scripts.Release]. A claim that may have an attempt in flight
// gets a tombstone that outlasts both the lease that a late attempt would have got and the time for
// which the network may hold that attempt back.
func (l Layout) Release(c backend.Claim) []string {
	args, before := append(make([]string, 0, 7), name(c.ID()), millis(l.Keep(c))), encodeBefore(c.Before)
	leaves := c.Save != nil || c.NotBefore > 0
	switch {
	case !c.NoneInFlight:
		args = append(args, millis(2*clamp(c.TTL)+l.inFlight))
	case !l.brief() || before != "" || leaves:
		args = append(args, "0")
	}
	if before != "" || leaves || l.guard != nil { // whose argument is the last
		args = append(args, before)
	}
	if leaves {
		state := ""
		if c.Save != nil {
			state = "+" + string(c.Save)
		}
		args = append(args, millis(c.NotBefore), state)
	}
	return l.last("release", args...)
}

// Heartbeat returns the arguments of [Scripts.Heartbeat] for the claims of one lock, or of several.
func (l Layout) Heartbeat(locks ...[]backend.Claim) []string {
	args := append(make([]string, 0, 3+5*len(locks)), strconv.Itoa(len(locks)), l.client)
	for _, claims := range locks {
		var keep time.Duration
		for i := range claims {
			keep = max(keep, l.Keep(claims[i]))
		}
		args = append(args, millis(keep), strconv.Itoa(len(claims)))
		for i := range claims {
			c := &claims[i]
			args = append(args, name(c.ID()), millis(c.WaiterTTL), millis(min(c.WaiterTTL, c.TTL)))
		}
	}
	return l.last("heartbeat", args...)
}

// last adds the last argument of some variants: the guard's rule, or which verb of the string
// dialect it is.
func (l Layout) last(verb string, args ...string) []string {
	if l.dialect {
		return append(args, verb)
	}
	return append(args, l.guard...)
}

// Inspect returns the arguments of [Scripts.Inspect] for so many locks, which in the string dialect
// is one.
func (l Layout) Inspect(locks int) []string {
	switch {
	case l.dialect:
		return l.last("inspect")
	case locks > 1:
		return []string{strconv.Itoa(locks)}
	}
	return nil
}

// Probe returns the arguments of [Probe].
func (l Layout) Probe() []string {
	if l.guard != nil {
		return []string{l.prefix + "probe:free", "guard"}
	}
	return []string{l.prefix + "probe:free"}
}

// Keep is how long a key outlives the last lease.
//
// The token counter is what must outlive it: until the clock has passed the last token, which a
// minimum token may have put a quarter of a TTL ahead, and for as long as the server's clock may be
// set back.
func (l Layout) Keep(c backend.Claim) time.Duration { return roundUp(max(clamp(c.TTL)/2, l.retention)) }

// clamp bounds the TTL of a claim that is released, and so was not validated: no tombstone lives
// for years.
func clamp(ttl time.Duration) time.Duration { return min(max(ttl, MinTTL), backend.MaxTTL) }

// What cannot stand in a key, whose braces are the hash tag, and in a name.
var inKey, inName = newSpecial("{}"), newSpecial(" ;")

// name makes an owner or an id fit for the scripts, which split at blanks and semicolons.
func name(s string) string { return escape(s, inName) }

// millis rounds up: a lease may be longer than asked, never shorter (0 would be "PX 0").
func millis(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}
