package script

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// An Owner is what GET tells of a lock: who holds it, if one exclusive claim does. It is for those
// who want to know that something has changed; it proves nothing to anybody.
type Owner struct {
	ID    string        // as [Layout.OwnerID] of the claim has it; empty if nobody holds
	Token uint64        // the last one granted; 0 in the string dialect
	First uint64        // the first one of the hold; 0 where that is not known
	Keep  time.Duration // for how long the key outlives the lease
	Meta  backend.Meta
}

// OwnerID is how a lock's key names a claim.
func (l Layout) OwnerID(c backend.Claim) string { return inName.escape(c.ID()) }

// ParseOwner reads the reply to GET of a lock's key; ok is false for what is none of ours. A key
// that is not there has no owner. A HASH is read by HMGET of [OwnerFields].
func (l Layout) ParseOwner(value string) (o Owner, ok bool) {
	if l.isDialect() {
		return Owner{ID: value}, true
	}
	s, ok := parseShort(value)
	if o.Token = uint64(s.counter); !ok || s.id == "" {
		return o, ok
	}
	o.First, _ = firstToken(o.Token, s.count)
	o.Keep, o.ID, o.Meta = duration(s.margin), s.id, decodeMeta(s.meta)
	return o, true
}

// OwnerFields are the fields of a HASH that change with who holds: the one owner, the counters of
// several, whether the claim with this [Layout.OwnerID] is one of them, and the last token.
func OwnerFields(id string) []string { return []string{"o", "g", "h:" + id, "f"} }
