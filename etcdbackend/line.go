package etcdbackend

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"

	"github.com/holdfast-go/holdfast/backend"
)

// tokenShift makes room in a token for those that a claim reserves: a token is a create revision and, below it, which of the
// reserved ones it is.
const tokenShift = 10

// Revision returns the create revision of the etcd key that a token was granted with. Tokens of one etcd cluster are in the
// order of their grants, whatever their keys.
func Revision(token uint64) int64 { return int64(token >> tokenShift) }

// An entry is one claim that holds or stands in line.
type entry struct {
	record
	key      string
	class    byte
	limit    int
	created  int64
	modified int64
	attached int64 // the lease it is on
	granted  bool
}

// of reports whether the entry is the claim's.
func (e *entry) of(c backend.Claim) bool {
	return e.Owner == c.Owner && e.Reentrant == c.Reentrant && (!c.Reentrant || e.Hold == c.Hold)
}

func (e *entry) token() uint64 {
	if e.Token != 0 {
		return e.Token
	}
	return uint64(e.created) << tokenShift
}

func (e *entry) mode() backend.Mode {
	switch e.class {
	case shared:
		return backend.Shared
	case permit:
		return backend.Permit
	}
	return backend.Exclusive
}

// A line is all entries of a lock at one revision, in the order of their creation.
//
// Who holds is a function of the line alone: the first entry, and behind it those of the same mode for as long as they fit.
// So the line is handed over in the very step that deletes an entry, nobody can overtake, and as an entry can only move
// forward, one that holds does so until its key is deleted. A further hold of a re-entrant owner holds wherever it stands,
// as it is created only while its owner holds, and keeps all others out.
//
// Capacity: at any revision the entries that hold are one exclusive, or those of one re-entrant owner, or any number of shared
// ones, or permits of one limit and no more than it. An entry leaves only when it is released or its lease has ended.
type line struct {
	revision int64
	entries  []*entry
}

// read makes a line of what a range read returned. An entry that is not ours is backend.ErrForeign: it will not go away, so
// waiting for it would be for ever (etcd#6631).
func (p place) read(revision int64, kvs []*mvccpb.KeyValue) (*line, error) {
	l := &line{revision: revision, entries: make([]*entry, 0, len(kvs))}
	for _, kv := range kvs {
		e, err := p.parse(kv)
		if err != nil {
			return nil, err
		}
		l.entries = append(l.entries, e)
	}
	l.settle()
	return l, nil
}

func (p place) parse(kv *mvccpb.KeyValue) (*entry, error) {
	e := &entry{key: string(kv.Key), created: kv.CreateRevision, modified: kv.ModRevision, attached: kv.Lease}
	var ok bool
	if e.class, e.limit, ok = p.class(e.key); !ok {
		return nil, fmt.Errorf("%w: etcd key %q", backend.ErrForeign, e.key)
	}
	if e.attached == 0 {
		return nil, fmt.Errorf("%w: etcd key %q has no lease, so nothing ends it", backend.ErrForeign, e.key)
	}
	if err := json.Unmarshal(kv.Value, &e.record); err != nil && !p.etcdctl { // a peer's entry has no value
		return nil, fmt.Errorf("%w: value of etcd key %q", backend.ErrForeign, e.key)
	}
	return e, nil
}

// settle sorts the entries and marks those that hold.
func (l *line) settle() {
	slices.SortFunc(l.entries, func(a, b *entry) int { return int(a.created - b.created) })
	var entered, first, last *entry
	n := 0
	for _, e := range l.entries {
		if e.class == reentry {
			e.granted, entered = true, e
		}
	}
	for _, e := range l.entries {
		switch {
		case e.class == reentry:
			continue
		case first == nil:
			first = e
			e.granted = entered == nil
			if entered != nil && e.Reentrant && e.Owner == entered.Owner {
				e.granted, e.Token = true, entered.token() // one ownership, however often it was entered
			}
		default:
			e.granted = last.granted && e.class == first.class &&
				(e.class == shared || e.class == permit && n < e.limit)
		}
		last = e
		n++
	}
}

// own returns the entry of a claim, or nil. Should there be two, it is the one that is nearer to its turn.
func (l *line) own(c backend.Claim) *entry {
	for _, e := range l.entries {
		if e.of(c) {
			return e
		}
	}
	return nil
}

// at returns the entry with a key, or nil.
func (l *line) at(key string) *entry {
	for _, e := range l.entries {
		if e.key == key {
			return e
		}
	}
	return nil
}

// with settles the line anew with an entry that is not in it any more, and reports whether it holds.
func (l *line) with(e *entry) bool {
	gone := *e
	gone.granted = false
	l.entries = append(l.entries, &gone)
	l.settle()
	return gone.granted
}

// admits reports whether c would hold if it were created now.
func (l *line) admits(c backend.Claim) bool {
	class := byte(exclusive)
	switch c.Mode {
	case backend.Shared:
		class = shared
	case backend.Permit:
		class = permit
	}
	for _, e := range l.entries {
		if e.class != class || !e.granted {
			return false
		}
	}
	return len(l.entries) == 0 || class == shared || class == permit && len(l.entries) < c.Limit
}

// holder returns an entry that holds for c's re-entrant owner, or nil.
func (l *line) holder(c backend.Claim) *entry {
	for _, e := range l.entries {
		if c.Reentrant && e.granted && e.Reentrant && e.Owner == c.Owner {
			return e
		}
	}
	return nil
}

// mismatch is an error if the lock is in use as a semaphore of another limit than c's.
func (l *line) mismatch(c backend.Claim) error {
	for _, e := range l.entries {
		if c.Mode == backend.Permit && e.class == permit && e.limit != c.Limit {
			return &backend.MismatchError{InUse: e.limit, Asked: c.Limit}
		}
	}
	return nil
}

// token is the last token granted, or 0.
func (l *line) token() (last uint64) {
	for _, e := range l.entries {
		if e.granted {
			last = max(last, e.token())
		}
	}
	return last
}

// refusal is what c is told; own is its entry, or nil. RetryAfter is the whole length of the lease that blocks: etcd signals
// the end of a lease, so nobody needs to know it better. Who is behind others in line is not told when to ask.
//
// Token is for the test of a wake-up, see backend.Wake. The line forgets grants that ended, so who stands in it is told the
// last token before its own entry: all that were granted until now are not above it, also those of its own earlier entries,
// and the one that its entry will have is.
func (l *line) refusal(own *entry) error {
	held := &backend.HeldError{Token: l.token()}
	if own != nil {
		held.Token = uint64(own.created)<<tokenShift - 1
	}
	if own != nil {
		held.Position = l.position(own)
	}
	if len(l.entries) > 0 {
		blocks := l.entries[0]
		held.Holder = blocks.Meta
		if held.Position <= 1 {
			held.RetryAfter = time.Duration(blocks.Lease) * time.Second
		}
	}
	return held
}

// position counts the claims that wait, up to own's. One may have two entries for a moment, see stepBack.
func (l *line) position(own *entry) int {
	type id struct{ owner, hold string }
	claims := make(map[id]struct{}, len(l.entries))
	for _, e := range l.entries {
		switch {
		case e.granted || e.created > own.created:
		case e.Owner == "": // a peer's
			claims[id{hold: e.key}] = struct{}{}
		default:
			claims[id{e.Owner, e.Hold}] = struct{}{}
		}
	}
	return len(claims)
}

// before returns copies of the entries that keep own waiting. New ones behind it do not matter.
func (l *line) before(own *entry) []*entry {
	var ahead []*entry
	for _, e := range l.entries {
		if e != own && (e.created < own.created || e.class == reentry) {
			one := *e
			ahead = append(ahead, &one)
		}
	}
	return ahead
}
