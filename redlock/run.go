package redlock

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A runKey is one claim.
type runKey struct{ key, owner string }

// A claimRun, or run, is what is known of one claim on each node. The nodes know it better, and it can be forgotten at any time: then each node is
// asked as if it might hold. What is lost is that a release must leave tombstones.
type claimRun struct {
	red *Backend
	key runKey

	users int           // verbs under way; guarded by red.mu
	idle  time.Duration // how long an idle run is remembered: longer than an attempt may be late; guarded by red.mu
	stale time.Time     // when it may be forgotten; guarded by red.mu

	turn chan struct{} // of an attempt: one at a time

	mu     sync.Mutex // taken after red.mu, if both are
	lanes  []lane
	ready  []func() // requests whose turn it is, see unlock
	calls  int      // requests under way or in line
	rested bool     // there were none for a moment, see unlock
	known  bool     // every attempt of this claim was made through this run
	token  uint64   // of the grant that a majority agreed on; 0 none
	wish   uint64   // what nodes are asked for until the claim is granted or refused; 0 not chosen yet
	ended  bool     // a release was asked for
	splits int      // how often in a row the claim met another halfway

	meta, shown backend.Meta // the claim's, and what nodes are told of it
}

// enter returns the run of c, or a new one, for a verb that leaves it with leave.
func (r *Backend) enter(c backend.Claim, fresh bool) *claimRun {
	k := runKey{c.Key, c.ID()}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.sweep()
	u := r.runs[k]
	if u == nil {
		u = &claimRun{red: r, key: k, turn: make(chan struct{}, 1), lanes: make([]lane, len(r.nodes)), known: fresh}
		r.runs[k] = u
	}
	u.users++
	u.idle = max(u.idle, 2*min(max(c.TTL, 0), backend.MaxTTL)+time.Second)
	u.stale = time.Now().Add(u.idle)
	return u
}

// leave ends a use. A run in which no node holds anything needs not be remembered.
func (u *claimRun) leave() {
	u.red.mu.Lock()
	defer u.red.mu.Unlock()
	u.users--
	u.forget()
}

// forget drops the run if nothing is lost by it, or nothing any more. While a request is under way it stays, however long that takes (the
// process may have been stopped): with a new run, the next request would not come behind it. The caller has red.mu.
func (u *claimRun) forget() {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.users == 0 && u.calls == 0 && (u.empty() || time.Now().After(u.stale)) && u.red.runs[u.key] == u {
		delete(u.red.runs, u.key)
	}
}

// empty reports whether forgetting the run loses nothing. The caller has mu.
func (u *claimRun) empty() bool {
	if u.ended {
		return u.answered()
	}
	for i := range u.lanes {
		if l := &u.lanes[i]; l.held || l.unsure || l.gen > 0 {
			return false
		}
	}
	return u.splits == 0
}

// answered reports whether enough nodes have answered the release for its outcome to be known. The caller has mu.
func (u *claimRun) answered() bool {
	n := 0
	for i := range u.lanes {
		if u.lanes[i].done {
			n++
		}
	}
	return n >= u.red.quorum
}

// sweep looks at two random runs, and forgets those that nobody has asked about for longer than a lease. The caller has mu.
func (r *Backend) sweep() {
	looked := 0
	for _, u := range r.runs {
		u.forget()
		if looked++; looked == 2 {
			return
		}
	}
}

// on is c as node i knows it. The caller has mu.
func (u *claimRun) on(i int, c backend.Claim) backend.Claim {
	c.TTL = min(u.red.cfg.lease(c.TTL), backend.MaxTTL) // beyond is a release of what was refused
	c.MinToken = 0
	if u.shown == (backend.Meta{}) || u.meta != c.Meta {
		u.meta, u.shown = c.Meta, tagged(c.Meta, c.Owner, *u.red.list.Load())
	}
	c.Meta = u.shown
	if gen := u.lanes[i].gen; gen > 0 {
		c.Owner = generation(c.Owner, gen)
	}
	return c
}

// mark separates an owner from the number of its generation. It is a control character, which no owner of [backend.NewOwner] has.
const mark = "\x1f"

// generation is another name of owner. A long one is cut: names only need to differ, and the end is where owners differ.
func generation(owner string, gen int) string {
	tail := mark + strconv.Itoa(gen)
	if over := len(owner) + len(tail) - backend.MaxOwner; over > 0 {
		owner = owner[over:]
	}
	return owner + tail
}

// tagged marks what a node tells others of its holder with the end of the owner's name, so that they can tell one claim that holds several
// nodes from several claims, and with its list of nodes. Tokens do not tell: claims that meet may be given the same one, by different nodes.
func tagged(m backend.Meta, owner, list string) backend.Meta {
	const shown = 8
	tag := mark + owner[max(0, len(owner)-shown):]
	room := backend.MaxMeta - len(m.Service) - len(m.Host) - len(m.Traceparent)
	if all := tag + mark + list; len(all) <= room {
		tag = all
	}
	if len(tag) <= room {
		m.Service += tag
	}
	return m
}

// untagged undoes tagged, and returns the tag and the list, empty if there is none.
func untagged(m backend.Meta) (clean backend.Meta, tag, list string) {
	m.Service, tag, _ = strings.Cut(m.Service, mark)
	tag, list, _ = strings.Cut(tag, mark)
	return m, tag, list
}

// ownerOf undoes generation, for people.
func ownerOf(name string) string {
	owner, _, _ := strings.Cut(name, mark)
	return owner
}
