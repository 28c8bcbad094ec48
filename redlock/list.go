package redlock

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

// # Whether all clients name the same nodes
//
// Two lists of nodes exclude each other only if any majority of the one meets any of the other. So each hold shows those whom it keeps out
// the list that it was made with, and who sees another list than its own is refused, even with a majority. That finds what meets on a node;
// lists that share none are nobody's to find.
//
// A false alarm would be an outage, so lists are different only if they differ in length, or if each has a node that is certainly not
// in the other: known by its URL and by its identity, and by neither there. A server that was restarted has another identity and the same
// URL, one that is called by another name has the same identity. What is both is looked at again, by its own client after each failure, and by who
// is about to be refused. What is unknown differs from nothing: no URL (nodes of New), no identity yet, a client that shows no list.

// An entry is a node in a list: a part of a hash of its URL, and one of its identity. Three zero bytes are unknown.
type entry [6]byte

// text is how long an entry is in a list that is shown.
const text = 8

func (e entry) url() [3]byte      { return [3]byte(e[:3]) }
func (e entry) identity() [3]byte { return [3]byte(e[3:]) }

// whole reports whether all is known of the node that lists are compared by.
func (e entry) whole() bool { return e.url() != [3]byte{} && e.identity() != [3]byte{} }

// same reports whether both may be one node.
func (e entry) same(other entry) bool {
	return !e.whole() || !other.whole() || e.url() == other.url() || e.identity() == other.identity()
}

// part is what entries have of name, zero if there is none. It is short: two names that have the same part hide a difference, and raise no alarm.
func part(name string) (p [3]byte) {
	if name == "" {
		return p
	}
	h := sha256.Sum256([]byte(name))
	copy(p[:], h[:])
	p[0] |= 1 // not unknown
	return p
}

// entry is n's. The caller has n.mu.
func (n *node) entry() (e entry) {
	url := ""
	if n.open != nil {
		url = n.name
	}
	u, id := part(url), part(n.id)
	copy(e[:3], u[:])
	copy(e[3:], id[:])
	return e
}

// entries are those of all nodes, in an order of their own: that of the nodes does not matter.
func (r *Backend) entries() []entry {
	var list []entry
	for _, n := range r.nodes {
		n.mu.Lock()
		list = append(list, n.entry())
		n.mu.Unlock()
	}
	slices.SortFunc(list, func(a, b entry) int { return slices.Compare(a[:], b[:]) })
	return list
}

// listed takes note of what is known of the nodes now.
func (r *Backend) listed() {
	var b strings.Builder
	for _, e := range r.entries() {
		b.WriteString(base64.RawURLEncoding.EncodeToString(e[:]))
	}
	list := b.String()
	r.list.Store(&list)
}

// parseList reads a list that was shown; nil if there is none that we know.
func parseList(shown string) (list []entry) {
	if len(shown)%text != 0 {
		return nil
	}
	for ; shown != ""; shown = shown[text:] {
		var e entry
		if _, err := base64.RawURLEncoding.Decode(e[:], []byte(shown[:text])); err != nil {
			return nil
		}
		list = append(list, e)
	}
	return list
}

// different reports whether two lists are certainly not of the same nodes.
func different(ours, theirs []entry) bool {
	if len(ours) == 0 || len(theirs) == 0 {
		return false
	}
	return len(ours) != len(theirs) || beyond(ours, theirs) && beyond(theirs, ours)
}

// beyond reports whether one of list is certainly not in other.
func beyond(list, other []entry) bool {
	return slices.ContainsFunc(list, func(e entry) bool {
		return !slices.ContainsFunc(other, e.same)
	})
}

// otherList reports whether shown, of a holder, is not a list of our nodes, and says so. Before it does, it asks the nodes who they are now.
func (r *Backend) otherList(ctx context.Context, shown string) error {
	theirs := parseList(shown)
	if !different(r.entries(), theirs) {
		return nil
	}
	if len(theirs) == len(r.nodes) {
		r.lookAgain(ctx)
		if !different(r.entries(), theirs) {
			return nil
		}
	}
	return fmt.Errorf("%w: the key is held by a client with another list of nodes (%s): two lists exclude each other only if they are the same;"+
		" to change them, end all clients of the old list first", backend.ErrUnsafe, difference(r.entries(), theirs))
}

func difference(ours, theirs []entry) string {
	if len(ours) != len(theirs) {
		return fmt.Sprintf("of %d, not %d", len(theirs), len(ours))
	}
	n := 0
	for _, e := range theirs {
		if !slices.ContainsFunc(ours, e.same) {
			n++
		}
	}
	return fmt.Sprintf("%d of %d are not ours", n, len(theirs))
}

// lookAgain asks all nodes who they are, and waits for those that answer soon.
func (r *Backend) lookAgain(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	done := make(chan struct{}, len(r.nodes))
	for _, n := range r.nodes {
		go func() {
			_ = r.identify(ctx, n)
			done <- struct{}{}
		}()
	}
	for range r.nodes {
		<-done
	}
}
