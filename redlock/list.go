package redlock

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

// # Whether all clients name the same nodes
//
// Two lists of nodes exclude each other only if any majority of the one meets any of the other. So
// each hold shows its list in Meta.Quorum, and who is refused on any node by a holder with another
// list is told so, even with a majority. Lists that share no node are not found.
//
// A false alarm would be an outage, so lists differ only if their lengths do, or if each has a node
// that is certainly not in the other: both its URL and its identity are known, and neither is
// there. A server that was restarted has another identity and the same URL, one under another name
// the same identity. Nodes of New have no URL, and some servers no identity.

// An entry is a node in a list: 16 bits of a hash of its URL, and below them as many of one of its
// identity, each 0 if unknown. Equal hashes hide a difference, and raise no alarm.
type entry uint32

func (e entry) same(o entry) bool {
	const low = 1<<16 - 1
	unknown := e>>16 == 0 || e&low == 0 || o>>16 == 0 || o&low == 0
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
		url := ""
		if n.open != nil {
			url = n.name
		}
		fmt.Fprintf(&list, "%08x", uint32(hash(url)<<16|hash(n.identity())))
	}
	text := list.String()
	r.list.Store(&text)
}

// shown is what the nodes show of a claim: its list, a slash, and the end of its owner's name, by
// which one claim that holds several nodes is told from several claims (tokens do not tell). It is
// nothing if the claim's own Meta leaves no room.
func shown(c backend.Claim, list string) string {
	s := list + "/" + c.Owner[max(0, len(c.Owner)-8):]
	if len(c.Meta.Service)+len(c.Meta.Host)+len(c.Meta.Traceparent)+len(s) > backend.MaxMeta {
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

// mismatch is an error if list is certainly not of our nodes. In case a server was restarted
// unnoticed, all are asked who they are now.
func (r *Backend) mismatch(list string) error {
	ours, theirs := entries(*r.list.Load()), entries(list)
	beyond := func(a, b []entry) bool {
		return slices.ContainsFunc(a, func(e entry) bool { return !slices.ContainsFunc(b, e.same) })
	}
	if len(theirs) == 0 || len(ours) == len(theirs) && !(beyond(ours, theirs) && beyond(theirs, ours)) {
		return nil
	}
	for _, n := range r.nodes {
		n.recheck.Store(true)
		n.repair()
	}
	return fmt.Errorf("%w: the key is held by a client with another list of nodes (of %d, ours has %d):"+
		" two lists exclude each other only if they are the same; to change them, end all clients of the"+
		" old list first", backend.ErrUnsafe, len(theirs), len(ours))
}
