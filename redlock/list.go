package redlock

import (
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

// # Whether all clients name the same nodes
//
// Two lists of nodes exclude each other only if any majority of the one meets any of the other. So
// each hold shows, in Meta.Quorum, the list that it was made with, and who is refused on any node
// by a holder with another list is told so, even with a majority. Lists that share no node are not
// found.
//
// A false alarm would be an outage, so lists differ only if their lengths do, or if each has a node
// that is certainly not in the other: both its URL and its identity are known, and neither is
// there. A server that was restarted has another identity and the same URL, one under another name
// the same identity. Nodes of New have no URL, and some servers no identity.

// An entry is a node in a list: 16 bits of a hash of its URL and of its identity, 0 if unknown.
// Equal hashes hide a difference, and raise no alarm.
type entry [4]byte

func (e entry) same(o entry) bool {
	for _, b := range [][]byte{e[:2], e[2:], o[:2], o[2:]} {
		if b[0] == 0 && b[1] == 0 {
			return true // or nobody knows
		}
	}
	return [2]byte(e[:2]) == [2]byte(o[:2]) || [2]byte(e[2:]) == [2]byte(o[2:])
}

// relist records what is known of the nodes now.
func (r *Backend) relist() {
	list := make([]byte, 0, 4*len(r.nodes))
	for _, n := range r.nodes {
		url := ""
		if n.open != nil {
			url = n.name
		}
		list = appendHash(appendHash(list, url), n.identity())
	}
	text := hex.EncodeToString(list)
	r.list.Store(&text)
}

func appendHash(b []byte, s string) []byte {
	if s == "" {
		return append(b, 0, 0)
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(s))
	sum := h.Sum32()
	return append(b, byte(sum>>8)|1, byte(sum)) // not unknown
}

// shown is what the nodes show of a claim: the end of its owner's name, by which one claim that
// holds several nodes is told from several claims (tokens do not tell), and its list. It is nothing
// if the claim's own Meta leaves no room.
func shown(c backend.Claim, list string) string {
	s := c.Owner[max(0, len(c.Owner)-8):] + " " + list
	if len(c.Meta.Service)+len(c.Meta.Host)+len(c.Meta.Traceparent)+len(s) > backend.MaxMeta {
		return ""
	}
	return s
}

// parseShown returns the two parts, empty if there are none.
func parseShown(s string) (tag, list string) {
	if i := strings.LastIndexByte(s, ' '); i >= 0 {
		return s[:i], s[i+1:]
	}
	return "", ""
}

// differs reports whether list is certainly not of our nodes. What cannot be read is no list.
func (r *Backend) differs(list string) bool {
	ours, theirs := entries(*r.list.Load()), entries(list)
	beyond := func(a, b []entry) bool {
		return slices.ContainsFunc(a, func(e entry) bool { return !slices.ContainsFunc(b, e.same) })
	}
	return len(theirs) > 0 && (len(ours) != len(theirs) || beyond(ours, theirs) && beyond(theirs, ours))
}

func entries(list string) (all []entry) {
	b, err := hex.DecodeString(list)
	for ; err == nil && len(b) >= len(entry{}); b = b[len(entry{}):] {
		all = append(all, entry(b))
	}
	return all
}

// mismatch is the error for a holder with another list. In case a server was restarted unnoticed,
// all are asked who they are now.
func (r *Backend) mismatch(list string) error {
	for _, n := range r.nodes {
		n.recheck.Store(true)
		n.repair()
	}
	return fmt.Errorf("%w: the key is held by a client with another list of nodes (of %d, ours has %d):"+
		" two lists exclude each other only if they are the same; to change them, end all clients of the"+
		" old list first", backend.ErrUnsafe, len(entries(list)), len(r.nodes))
}
