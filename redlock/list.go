package redlock

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// # Whether all clients name the same nodes
//
// Two lists of nodes exclude each other only if any majority of the one meets any of the other. So
// each hold shows its list in Meta.Quorum, and a claim that is refused on any node by a holder with
// another list is told so, even with a majority. Lists that share no node are not found.
//
// A false alarm would be an outage, so lists differ only if their lengths do, or if each has a node
// that is certainly not in the other: both its name and its identity are known, and neither is
// there. A server that was restarted has another identity and the same name, one under another name
// the same identity. The name is the URL without its scheme, by which two clients of one kind of
// store reach the same server (redis and rueidis, etcd and etcds). Nodes of New have no URL, and
// some servers no identity.

// An entry is a node in a list: 16 bits of a hash of its name, and below them as many of one of its
// identity, each 0 if unknown. Equal hashes hide a difference, and raise no alarm.
type entry uint32

func (e entry) same(o entry) bool {
	const low = 1<<16 - 1
	unknown := e>>16 == 0 || e&low == 0 || o>>16 == 0 || o&low == 0 // safeguard: list-unknown
	return unknown || e>>16 == o>>16 || e&low == o&low
}

func hash(s string) entry {
	if s == "" {
		return 0
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	return entry(h.Sum32()>>16 | 1) // not unknown
}

// relist records what is known of the nodes now.
func (r *Backend) relist() {
	var list strings.Builder
	for _, n := range r.nodes {
		name := ""
		if n.open != nil {
			_, name, _ = strings.Cut(n.name, "://") // safeguard: node-name
		}
		fmt.Fprintf(&list, "%08x", uint32(hash(name)<<16|hash(n.identity())))
	}
	text := list.String()
	r.list.Store(&text)
}

// shown is what the nodes show of a claim: its list, a slash, and the end of its owner's name, by
// which one claim that holds several nodes is told from several claims (tokens do not tell). It is
// nothing if the claim's own Meta leaves no room.
func shown(c backend.Claim, list string, caps backend.Capabilities) string {
	s := list + "/" + c.Owner[max(0, len(c.Owner)-8):]
	if c.Meta.Quorum = s; c.Validate(caps) != nil { // it is too long: else the claim was valid
		return ""
	}
	return s
}

// entries parses a list. What cannot be read is no list.
func entries(list string) (all []entry) {
	for ; len(list) >= 8; list = list[8:] {
		n, err := strconv.ParseUint(list[:8], 16, 32)
		if err != nil {
			return nil
		}
		all = append(all, entry(n))
	}
	return all
}

// mismatch is an error if list is not of our nodes. A server may have been restarted, and nobody
// has noticed: so all are asked who they are now, and until they have said it, nothing is granted.
func (r *Backend) mismatch(list string) error {
	ours, theirs := entries(*r.list.Load()), entries(list)
	beyond := func(a, b []entry) bool {
		return slices.ContainsFunc(a, func(e entry) bool { return !slices.ContainsFunc(b, e.same) })
	}
	if len(theirs) == 0 || len(ours) == len(theirs) &&
		!(beyond(ours, theirs) && beyond(theirs, ours)) {
		return nil
	}
	if len(ours) == len(theirs) && r.inDoubt() { // safeguard: node-in-doubt
		return &doubtError{backend.QuarantineError{RetryAfter: 2 * minProbe}}
	}
	return fmt.Errorf("%w: the key is held by a client with another list of nodes (of %d, "+
		"ours has %d): two lists exclude each other only if they are the same; to change "+
		"them, end all clients of the"+
		" old list first", backend.ErrUnsafe, len(theirs), len(ours))
}

// inDoubt reports whether a node has yet to say who it is now, and has all of them asked unless
// they were just now. One that does not say it is not waited for any longer than a probe may take.
func (r *Backend) inDoubt() bool {
	r.naming.Lock()
	defer r.naming.Unlock()
	if asked := time.Since(r.doubt); asked < 3*probeTimeout { // later, what they said is old
		return asked < 2*probeTimeout && slices.ContainsFunc(r.nodes, r.unnamed)
	}
	r.doubt = time.Now()
	for _, n := range r.nodes {
		n.recheck.Store(true)
		n.repair()
	}
	return true
}

// unnamed reports whether n has not said who it is since it was asked.
func (r *Backend) unnamed(n *node) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.named.After(r.doubt) || n.recheck.Load() || n.failed.Load() > 0
}

// A doubtError is a quarantine for as long as it is not known who the nodes are.
type doubtError struct{ backend.QuarantineError }

func (e *doubtError) Error() string {
	return "nothing is granted until the nodes have said who they are, as the key is held by a " +
		"client whose list of them looks different"
}

func (e *doubtError) Unwrap() error { return &e.QuarantineError }
