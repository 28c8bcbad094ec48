package backendtest

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// minToken is the lowest token that c may have, as far as its minimum goes.
func (m *model) minToken(c backend.Claim) uint64 {
	switch {
	case m.is("minimum token ignored"):
		return 0
	case m.is("minimum token not clamped"):
		return c.MinToken
	case m.is("minimum token is the token") && c.MinToken > 0:
		m.token = c.MinToken - 1
	}
	return min(c.MinToken, backend.MinTokenLimit(time.Now(), c.TTL))
}

// raise lets a renewal raise the token of its hold, and of its owner's others.
func (m *model) raise(k *modelKey, h *modelHold, c backend.Claim) {
	if c.MinToken <= h.grant.Token && !m.is("a late minimum token lowers") || c.MinToken == 0 ||
		m.is("minimum token not written back") {
		return
	}
	for _, o := range k.holds {
		others := o.claim.Reentrant && o.claim.Owner == h.claim.Owner &&
			!m.is("raised for one hold of an owner")
		if (o == h || others) && !m.is("raised for others alone") {
			o.grant.Token = c.MinToken
		}
	}
	if len(k.line) > 0 && m.is("who waits has a token") {
		return
	}
	k.token = max(k.token, c.MinToken+uint64(h.grant.Reserved)-1)
	if m.is("reserved tokens do not rise") {
		k.token = max(k.token-uint64(h.grant.Reserved)+1, c.MinToken)
	}
	m.token = max(m.token, k.token)
}
