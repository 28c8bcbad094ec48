package etcdbackend

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/holdfast-go/holdfast/backend"
)

// tokenShift makes room in a token for those that a claim reserves: a token is a create revision
// and, below it, which of the reserved ones it is.
const tokenShift = 10

// Revision returns the create revision of the etcd key that a token was granted with. Tokens of
// one etcd cluster are in the order of their grants, whatever their keys. It says nothing of the
// tokens of a key whose claims have a MinToken, as those of a quorum do.
func Revision(token uint64) int64 { return int64(token >> tokenShift) }

// A record is an entry's value, in JSON.
type record struct {
	Owner     string `json:"owner"`
	Hold      string `json:"hold,omitempty"` // of a re-entrant owner
	Reentrant bool   `json:"reentrant,omitempty"`
	Token     uint64 `json:"token,omitempty"`   // if it is that of another entry
	Min       uint64 `json:"min,omitempty"`     // least token of the entry, see counter
	Reserve   int    `json:"reserve,omitempty"` // how many tokens it has, 0 for one
	Held      bool   `json:"held,omitempty"`    // written by a claim that held, for its TTL
	Lease     int64  `json:"lease,omitempty"`   // length of the lease in seconds
	// the last raft term known before that was made
	Term uint64       `json:"term,omitempty"`
	Meta backend.Meta `json:"meta,omitzero"`

	// Of a shadow: the entry's create revision, if it was there before the shadow, and whether the
	// shadow is on a lease that ends it.
	Created int64 `json:"created,omitempty"`
	Buried  bool  `json:"buried,omitempty"`
}

// An entry is one claim that holds or waits.
type entry struct {
	record
	kind
	key      string
	created  int64 // revisions
	modified int64
	attached int64 // the lease it is on
	granted  bool
	position int // among those that wait, or 0

	shadowed string // of a shadow: the key of its entry, which is gone if it is an orphan
}

// id is the claim's, see [backend.Claim.ID]. A peer's entry has none.
func (e *entry) id() string {
	if e.Reentrant {
		return e.Hold
	}
	return e.Owner
}

// of reports whether the entry is the claim's.
func (e *entry) of(c backend.Claim) bool {
	return e.Owner == c.Owner && e.Reentrant == c.Reentrant && (!c.Reentrant || e.Hold == c.Hold)
}

func (e *entry) token() uint64 {
	if e.Token != 0 {
		return e.Token
	}
	return max(e.Min, uint64(e.created)<<tokenShift)
}

// owns reports whether token is one of those that the entry was granted.
func (e *entry) owns(token uint64) bool {
	//nolint:gosec // validated
	return token-e.token() < uint64(max(1, e.Reserve)) // safeguard: etcd-proof-own
}

// A counter keeps the tokens of a key rising after one was raised above its create revision
// ([backend.Claim.MinToken]). Then there is a key beside the entries with the last token, which
// whoever comes to hold reads, compares and writes in the step that gives its entry the next one
// (attempt.number). The zero counter is none: tokens are the create revisions.
//
// Order: the tokens of entries that hold one after the other are Min of counters written one after
// the other, or follow from create revisions. Of two entries without Min the later has the higher
// one. One with Min is above every earlier one with Min, by the counter, and above every earlier
// one without, by its own create revision, below which no token is. One without Min behind one with
// Min there is not, as long as the counter is there: takeFree compares that it is not, join,
// confirm and prove do, too.
//
// The key is on a lease of counterTime, or names that are never used again would fill etcd. When it
// is gone the next token is the MinToken that is asked for, and it is up to the clocks of those who
// ask: etcd's transactions have none.
type counter struct {
	last     uint64 // that was granted or reserved
	modified int64  // revision
}

// next is the least token that may be granted.
func (n counter) next() uint64 {
	return max(n.last, uint64(n.modified)<<tokenShift|(1<<tokenShift-1)) + 1
}

// counterTime is for how long a counter is kept at least when nobody writes it: more than the
// clocks of clients differ.
const counterTime = 10 * time.Minute

func (e *entry) mode() backend.Mode {
	switch e.class {
	case shared:
		return backend.Shared
	case permit:
		return backend.Permit
	}
	return backend.Exclusive
}

// A queue is all entries of a lock at one revision, in the order of their creation.
//
// Who holds is a function of the queue alone: the first entry, and behind it those of the same
// mode for as long as they fit. So the lock is handed over in the very step that deletes an entry,
// nobody can overtake, and as an entry can only move forward, one that holds does so until its key
// is deleted. A further hold of a re-entrant owner holds wherever it is in the queue, as it is
// created only while its owner holds, and keeps all others out.
//
// Capacity: at any revision the entries that hold are one exclusive, or those of one re-entrant
// owner, or any number of shared ones, or permits of one limit whose weights add up to no more. An
// entry leaves only when it is released, or when its lease has ended and nobody believes in it any
// more, see shadow.go.
//
// Permits fit as long as the weights up to and with the entry are within the limit. That sum
// changes only when an entry before it is deleted, and then it falls: so a permit moves forward
// like any other entry, and a heavy one that does not fit keeps all behind it waiting.
type queue struct {
	revision int64
	term     uint64 // the raft term of the reply it was read in; 0 unknown
	entries  []*entry
	shadows  []*entry // those of entries that are gone are among the entries, as orphans
	counter  counter
}

// read makes a queue of what a range read returned. An entry that is not ours is
// [backend.ErrForeign]: it will not go away, so waiting for it would be for ever (etcd#6631).
func (p paths) read(revision int64, term uint64, kvs []*mvccpb.KeyValue) (*queue, error) {
	q := &queue{revision: revision, term: term, entries: make([]*entry, 0, len(kvs))}
	for _, kv := range kvs {
		if !p.etcdctl && string(kv.Key) == p.counter() {
			last, err := strconv.ParseUint(string(kv.Value), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("%w: value of etcd key %q", backend.ErrForeign, kv.Key)
			}
			q.counter = counter{last, kv.ModRevision}
			continue
		}
		e, err := p.parse(kv)
		if err != nil {
			return nil, err
		}
		if e.shadowed != "" {
			q.shadows = append(q.shadows, e)
		} else {
			q.entries = append(q.entries, e)
		}
	}
	q.takeOrphans()
	q.settle()
	return q, nil
}

func (p paths) parse(kv *mvccpb.KeyValue) (*entry, error) {
	e := &entry{
		key: string(kv.Key), attached: kv.Lease, created: kv.CreateRevision,
		modified: kv.ModRevision,
	}
	name := e.key
	rest, shadow := strings.CutPrefix(e.key, p.shadows())
	if shadow { // it is of the kind of its entry
		name = p.queue + rest
		e.shadowed = name
	}
	var ok bool
	if e.kind, ok = p.kind(name); !ok {
		return nil, fmt.Errorf("%w: etcd key %q", backend.ErrForeign, e.key)
	}
	if e.attached == 0 {
		return nil, fmt.Errorf("%w: etcd key %q has no lease: nothing ends it", backend.ErrForeign,
			e.key)
	}
	// In Etcdctl a peer's entry has no value.
	if err := json.Unmarshal(kv.Value, &e.record); err != nil && (!p.etcdctl || shadow) {
		return nil, fmt.Errorf("%w: value of etcd key %q", backend.ErrForeign, e.key)
	}
	if shadow && e.Created != 0 {
		e.created = e.Created
	}
	return e, nil
}

// settle sorts the entries, marks those that hold, and numbers those that wait. (A claim of two
// clients may have two entries for a moment, see withdrawDuplicate.)
func (q *queue) settle() {
	slices.SortFunc(q.entries, func(a, b *entry) int { return cmp.Compare(a.created, b.created) })
	var entered, first, last *entry
	sum, waiting := 0, 0 // of the weights before
	for _, e := range q.entries {
		if e.class == reentry {
			e.granted, entered = true, e
		}
	}
	for _, e := range q.entries {
		switch {
		case e.class == reentry:
			continue
		case first == nil:
			first = e
			e.granted = entered == nil
			if entered != nil && e.Reentrant && e.Owner == entered.Owner {
				e.granted, e.Token = true, entered.token() // one ownership
			}
		default:
			e.granted = last.granted && e.class == first.class &&
				(e.class == shared || e.class == permit && e.weight <= e.limit-sum)
		}
		last = e
		sum += e.weight
		if e.position = 0; !e.granted {
			waiting++
			e.position = waiting
		}
	}
}

// own returns the entry of a claim, or nil. Should there be two, it is the one that is nearer to
// its turn.
func (q *queue) own(c backend.Claim) *entry {
	return q.find(func(e *entry) bool { return e.shadowed == "" && e.of(c) })
}

// left returns what there is of a claim, its entry or else its orphan, or nil.
func (q *queue) left(c backend.Claim) *entry {
	if own := q.own(c); own != nil {
		return own
	}
	return q.find(func(e *entry) bool { return e.of(c) })
}

// at returns the entry with a key, or nil.
func (q *queue) at(key string) *entry {
	return q.find(func(e *entry) bool { return e.key == key })
}

// holder returns an entry that holds for c's re-entrant owner, or nil.
func (q *queue) holder(c backend.Claim) *entry {
	return q.find(func(e *entry) bool {
		return c.Reentrant && e.granted && e.shadowed == "" && e.Reentrant && e.Owner == c.Owner
	})
}

func (q *queue) find(is func(*entry) bool) *entry {
	if i := slices.IndexFunc(q.entries, is); i >= 0 {
		return q.entries[i]
	}
	return nil
}

// heldWith reports whether an entry that has just been deleted from the queue held in it, and who
// waited then.
func (q *queue) heldWith(e *entry) (held bool, told backend.Released) {
	deleted := *e
	before := queue{entries: []*entry{&deleted}}
	for _, other := range q.entries {
		one := *other
		before.entries = append(before.entries, &one)
	}
	before.settle()
	for _, other := range before.entries {
		// safeguard: etcd-waited
		if told.Waiting = max(told.Waiting, other.position); other.position == 1 {
			told.Next = other.Meta
		}
	}
	return deleted.granted, told
}

// admits reports whether c would hold if it were created now.
func (q *queue) admits(c backend.Claim) bool {
	class := byte(exclusive)
	switch c.Mode {
	case backend.Shared:
		class = shared
	case backend.Permit:
		class = permit
	}
	left := c.Limit // never below 0: those who hold are within it
	for _, e := range q.entries {
		if e.class != class || !e.granted {
			return false
		}
		left -= e.weight
	}
	return len(q.entries) == 0 || class == shared || class == permit && max(c.Weight, 1) <= left
}

// mismatch is an error if the lock is in use as a semaphore of another limit than c's.
func (q *queue) mismatch(c backend.Claim) error {
	for _, e := range q.entries {
		if c.Mode == backend.Permit && e.class == permit && e.limit != c.Limit {
			return &backend.MismatchError{InUse: e.limit, Asked: c.Limit}
		}
	}
	return nil
}

// token is the last token granted, or 0.
func (q *queue) token() (last uint64) {
	for _, e := range q.entries {
		if e.granted {
			last = max(last, e.token())
		}
	}
	if last == 0 {
		return q.counter.last
	}
	return last
}

// refusal is what a claim is told; own is its entry, or nil. RetryAfter is the whole length of the
// lease that blocks: etcd signals the end of a lease, so nobody needs to know it better. A claim
// that waits behind others is not told when to ask.
//
// Token is for the test of a wake-up, see [backend.Wake]. The queue forgets grants that ended, so
// a claim that waits in it is told the last token before its own entry: all that were granted until
// now are not above it, also those of its own earlier entries, and the one that its entry will have
// is.
func (q *queue) refusal(own *entry) error {
	held := &backend.HeldError{}
	if own != nil {
		held.Position = own.position
		held.Token = max(q.counter.last, uint64(own.created)<<tokenShift-1)
	} else {
		held.Token = q.token()
	}
	if len(q.entries) > 0 {
		blocks := q.entries[0]
		held.Holder = blocks.Meta
		if held.Position <= 1 {
			held.RetryAfter = time.Duration(blocks.Lease) * time.Second
		}
	}
	return held
}

// Inspect reads who holds key and who waits, and for how long the leases run. A hold that ends
// between the two reads is left out. It is bounded by ctx and RequestTimeout.
func (b *Backend) Inspect(ctx context.Context, key string) (state backend.State, err error) {
	if err := backend.ValidateKey(key); err != nil {
		return state, err
	}
	err = b.verb(ctx, key, func(ctx context.Context) error {
		q, err := b.readQueue(ctx, b.scheme.paths(key))
		if err == nil {
			state, err = b.state(ctx, q, map[int64]time.Duration{})
		}
		return err
	})
	return state, err
}

// state shows a queue. It asks for how long the leases run that are not in left: holds share them,
// whatever their keys.
func (b *Backend) state(
	ctx context.Context, q *queue, left map[int64]time.Duration,
) (state backend.State, err error) {
	for _, e := range q.entries {
		if _, known := left[e.attached]; known || !e.granted || e.shadowed != "" {
			continue
		}
		if left[e.attached], _, err = b.remaining(ctx, e.attached); err != nil {
			return state, err
		}
	}
	return q.state(func(e *entry) time.Duration {
		if e.shadowed != "" {
			return time.Duration(e.Lease) * time.Second
		}
		return left[e.attached]
	}), nil
}

// remaining asks for how long a lease still runs, rounded down to seconds, negative if it has
// ended; and of how long it is.
func (b *Backend) remaining(ctx context.Context, lease int64) (left, of time.Duration, err error) {
	told, _, err := resending(ctx, b.resendAfter(),
		func(ctx context.Context) (*clientv3.LeaseTimeToLiveResponse, error) {
			return b.client.TimeToLive(ctx, clientv3.LeaseID(lease))
		})
	if err != nil {
		return 0, 0, err
	}
	return time.Duration(told.TTL) * time.Second, time.Duration(told.GrantedTTL) * time.Second, nil
}

// state shows a queue in which the holds have so much left. Those whose lease has ended are left
// out.
func (q *queue) state(left func(*entry) time.Duration) backend.State {
	state := backend.State{Token: q.token()}
	for _, e := range q.entries {
		switch ttl := left(e); {
		case q.over(e):
		case !e.granted:
			state.Waiters = append(state.Waiters,
				backend.Waiter{Owner: e.Owner, Mode: e.mode(), Meta: e.Meta, Weight: e.weight})
		case ttl >= 0:
			state.Holders = append(state.Holders, backend.Holder{
				Owner: e.Owner, ID: e.id(), Mode: e.mode(), Token: e.token(), Meta: e.Meta,
				TTL: max(ttl, time.Millisecond), Weight: e.weight,
			})
		}
	}
	return state
}

// observed shows a queue without a look at its leases.
func (q *queue) observed() backend.State {
	return q.state(func(e *entry) time.Duration { return time.Duration(e.Lease) * time.Second })
}
