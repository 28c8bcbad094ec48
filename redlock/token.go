package redlock

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// # Tokens of a majority
//
// Each node has a counter c for the key, and grants c' = max(c+1, its clock, the claim's minimum).
// A majority's token is
//
//	t = the highest c' among ALL nodes that granted,
//
// and the grant is not believed before a majority W of them has stored c ≥ t while this claim holds
// there: either by having granted t itself, or by a renewal that raises c and proves the hold in
// one step (Claim.MinToken). The minimum is the client's clock and a bit, which is usually above
// all counters and clocks, so that all nodes grant it and one round trip does.
//
// Claim 1, order. Of two successful attempts 1 and 2 that exclude each other, t₁ ≠ t₂, and they are
// ordered as on any node that is in both W₁ and W₂. Two majorities have such a node Y. It held for
// 1 and for 2, one after the other. If 1 was first, c ≥ t₁ was stored while 1 held Y, before 2 was
// granted there; 2 was given at least t₁+1 by Y, and t₂ is at least that, since t₂ is the highest
// of all that granted and W₂ is among them. No clock and no timing is in this.
//
// Claim 2, time. If 1's hold was over, or only granted, before 2 was asked for, 1 was the first on
// Y: t₂ > t₁.
//
// Claim 3, lost memory. Both need a Y that did not forget c in between. If all have, each goes by
// its clock, and t₁ was at most the fastest clock's time then and a quarter of the TTL
// ([backend.MinTokenLimit]). Nodes that forgot grant nothing for longer than a TTL, so t₂ > t₁ as
// long as clocks differ by less than three quarters of a TTL. A renewal raises c again, so a node
// that forgot during a long hold knows t when it has been filled in. An etcd has no clock: where it
// forgot, the clock is that of the client that asks.
//
// lead is how far ahead of the client's clock the minimum is: more than clocks differ that are kept
// in time, and a request takes. It must stay below the quarter of a TTL that nodes allow for, but
// nothing depends on that: what is clamped costs a round trip.
const lead = 100 * time.Millisecond

// minToken is the token that the nodes are asked for, at least.
func (r *Backend) minToken(now time.Time) uint64 {
	if !r.caps.Fencing {
		return 0
	}
	return min(uint64(max(now.Add(lead).UnixMicro(), 0)), backend.MaxMinToken)
}

// tokens is what is known of the counters while an attempt is made.
type tokens struct {
	highest uint64 // among all nodes that granted
	nodes   []counter
}

// A counter is what is known of one node's.
type counter struct {
	stored   uint64 // what it has certainly stored while the claim held there; 0 nothing
	reserved int    // tokens that it has reserved
}

// granted takes node i's grant. That of every node that may be in W counts for the highest, or
// claim 1 would not hold. A node that gave a higher token after the majority had decided is in
// none: a repeat is told the grant that the majority made.
func (t *tokens) granted(i int, g backend.Grant) {
	t.nodes[i].stored, t.nodes[i].reserved = g.Token, max(g.Reserved, 1)
	t.highest = max(t.highest, g.Token)
}

func (t *tokens) confirmed(i int, token uint64) {
	t.nodes[i].stored = max(t.nodes[i].stored, token)
}

// drop forgets a node that failed to confirm. The highest stays: too high a token does no harm.
func (t *tokens) drop(i int) { t.nodes[i].stored, t.nodes[i].reserved = 0, 0 }

// backing is how many nodes have stored the highest token.
func (t *tokens) backing() (count int) {
	for _, n := range t.nodes {
		if n.stored != 0 && n.stored >= t.highest { // safeguard: token-written-back
			count++
		}
	}
	return count
}

// reservation is how many tokens each node that granted has reserved.
func (t *tokens) reservation(c backend.Claim) int {
	least := max(c.Reserve, 1)
	for _, n := range t.nodes {
		if n.reserved > 0 {
			least = min(least, n.reserved) // safeguard: quorum-reserved-tokens
		}
	}
	return least
}
