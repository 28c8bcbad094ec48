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

// leastRetention is how long a key outlives its last lease at least. A counter is ahead of the
// clock by TTL/4, for a minimum token, and by the 10 ms of NEAR in lib/clock, for reserves. That is
// no more than TTL/2 from a TTL of 40 ms on, and no more than this below.
const leastRetention = 20 * time.Millisecond

// A Request is a script to run, on keys that are of one slot.
type Request struct {
	Script Script
	Keys   []string
	Args   []string
}

// A Layout names keys and makes requests. It is a value without state.
type Layout struct {
	names
	kind
}

// names is what all kinds of layout are told.
type names struct {
	prefix string
	// names the channel of the client that asks; empty: it is not told of what is handed over
	client    string
	retention time.Duration
	inFlight  time.Duration
	watched   bool // see Watched
}

// A kind is a way to keep locks: plain, guarded, or that of other libraries.
type kind interface {
	// Key returns the Redis key of a lock. Different keys never give the same one.
	Key(key string) string

	// Acquire returns the request for a claim that is valid; [DecodeAcquire] reads the reply.
	Acquire(c backend.Claim) Request

	// TryAcquireAll returns the request for plain exclusive claims of different locks, in their
	// order; [DecodeTryAcquireAll] reads the reply. The string dialect has none.
	TryAcquireAll(claims []backend.Claim) Request

	// Renew returns the request for a claim that is valid; [DecodeRenew] reads the reply.
	Renew(c backend.Claim) Request

	// Release returns the request; [DecodeRelease] reads the reply. A claim that may have an
	// attempt in flight gets a tombstone that outlasts both the lease that a late attempt would
	// have got and the time for which the network may hold that attempt back.
	Release(c backend.Claim) Request

	// TryReleaseAll returns the request for claims of different locks that leave nothing;
	// [DecodeTryReleaseAll] reads the reply. The string dialect has none.
	TryReleaseAll(claims []backend.Claim) Request

	// ReleaseAll returns the request for claims of one lock that leave nothing, not even who held
	// before; [DecodeReleaseAll] reads the reply. The string dialect has none.
	ReleaseAll(claims []backend.Claim) Request

	// Heartbeat returns the request for the claims of one lock, or of several; [DecodeHeartbeat]
	// reads the reply. The string dialect has no queue.
	Heartbeat(locks ...[]backend.Claim) Request

	// Inspect returns the request for locks; [Layout.DecodeInspect] reads the reply. In the string
	// dialect it is for one.
	Inspect(locks ...string) Request

	// named returns the same for other names.
	named(n names) kind
}

// NewLayout returns the layout for keys under prefix, whose state is kept for retention after the
// last hold (but at least half its TTL, and 20 ms). inFlight is how long a client waits for an
// answer at most; tombstones outlast it. Empty and zero stand for the defaults. A prefix with
// braces or control characters is a *[backend.InvalidError]: it would move the hash tag.
func NewLayout(prefix string, retention, inFlight time.Duration) (Layout, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if retention == 0 {
		retention = DefaultRetention
	}
	switch {
	case len(prefix) > backend.MaxKey:
		return Layout{}, &backend.InvalidError{
			Field:  "prefix",
			Reason: "is over " + strconv.Itoa(backend.MaxKey) + " bytes",
		}
	case strings.ContainsFunc(prefix, unfit):
		return Layout{}, &backend.InvalidError{
			Field: "prefix", Value: prefix,
			Reason: "has braces or control characters",
		}
	case retention < 0 || retention > 100*backend.MaxTTL:
		return Layout{}, &backend.InvalidError{
			Field: "retention", Value: retention.String(),
			Reason: "must be between 0 and " +
				(100 * backend.MaxTTL).String(),
		}
	}
	// Else a counter might be gone before the clock is there. safeguard: least-retention
	retention = roundUp(max(retention, leastRetention))
	n := names{prefix: prefix, retention: retention, inFlight: inFlight}
	return Layout{n, &plain{names: n}}, nil
}

func unfit(r rune) bool { return r < 0x20 || r == 0x7f || r == '{' || r == '}' }

// StateKey returns the key of a lock's stored state. No lock has it, as it does not end in a brace.
func (l Layout) StateKey(key string) string { return l.Key(key) + ":state" }

// UserKey is the inverse of [Layout.Key]; ok is false for a Redis key that no lock of this layout
// has.
func (l Layout) UserKey(redisKey string) (key string, ok bool) {
	if l.isDialect() {
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
	return globs.Replace(l.prefix+"{"+inKey.escape(prefix)) + "*", !l.isDialect()
}

var globs = strings.NewReplacer("*", `\*`, "?", `\?`, "[", `\[`, "]", `\]`, `\`, `\\`)

// Channel returns the channel on which releases of a lock are announced.
func (l Layout) Channel(key string) string { return l.Key(key) + ":free" }

// ProbeKey returns the key that [Probe] works on. No lock has it, as it has no braces.
func (l Layout) ProbeKey() string {
	if l.isDialect() {
		return l.prefix + "probe:holdfast"
	}
	return l.prefix + "probe"
}

// For returns the layout for a client whose channel name ends in id, which must be unique to it and
// have no blanks. What is handed over to a claim in the queue is announced on the channel of the
// client that asked for it.
func (l Layout) For(id string) Layout {
	l.client = id
	return Layout{l.names, l.named(l.names)}
}

// ClientChannel returns the channel of [Layout.For]'s client. It is no lock's, as it has no braces.
func (l Layout) ClientChannel() string { return l.prefix + "@" + l.client }

// Topic returns what tells a claim in the queue from every other, and is the topic of the [Handed]
// messages for it.
func (l Layout) Topic(c backend.Claim) string { return inName.escape(c.ID()) + " " + l.Key(c.Key) }

// Watched returns the layout for attempts on a key that the client is subscribed to: if another
// holds it, its release publishes.
func (l Layout) Watched() Layout {
	l.watched = true
	return Layout{l.names, l.named(l.names)}
}

// Probe returns the request of [Probe].
func (l Layout) Probe() Request {
	r := Request{Probe, []string{l.ProbeKey()}, []string{l.prefix + "probe:free"}}
	if l.isDialect() { // its locks have another key beside, which begins otherwise
		r.Keys = append(r.Keys, sideKey(l.ProbeKey())) // safeguard: probe-side-key
	}
	if l.Rule() != noRule {
		r.Args = append(r.Args, "guard")
	}
	return r
}

// What cannot stand in a key, whose braces are the hash tag, and in the name of an owner or a
// claim, as scripts split at blanks and semicolons.
var inKey, inName = newSpecial("{}"), newSpecial(" ;")
