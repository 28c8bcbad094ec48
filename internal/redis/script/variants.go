package script

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// The guard's margins. A lease of the longest TTL may be kept by a clock that is a hundredth off,
// on either side.
const (
	guardDrift  = 50 // the 50th part of the longest TTL: twice a hundredth
	guardMargin = time.Second
	lagMargin   = 2 * time.Second
)

// Guarded returns the layout with a guard: a server that restarted, was promoted or was flushed
// grants nothing until every lease that it may have forgotten has run out, none of which is longer
// than longest. lag is for how long a primary that was replaced may go on granting:
// min-replicas-max-lag, zero without replicas. All clients of a server must have the same longest.
// With a guard scripts have a second key, which no hash tag can bring together with all locks: not
// for a cluster.
func (l Layout) Guarded(longest, lag time.Duration) Layout {
	grace := longest + longest/guardDrift + guardMargin
	if lag > 0 {
		grace += lag + lagMargin
	}
	l.guard = []string{millis(longest) + " " + millis(grace)}
	return l
}

// MarkKey returns the key of a server's mark. No lock has it, as it has no braces.
func (l Layout) MarkKey() string { return l.prefix + "mark" }

// Rule is the guard's part of a server's mark, 'longest TTL/grace' in ms; "none" without a guard.
func (l Layout) Rule() string {
	if l.guard == nil {
		return "none"
	}
	return strings.ReplaceAll(l.guard[0], " ", "/")
}

// CheckMark reads the reply to [Mark]. The error is [backend.ErrUnsafe] if the server's clients
// have another guard than this layout.
func (l Layout) CheckMark(reply any) error {
	mark, _ := reply.(string)
	fields := strings.Fields(mark)
	if len(fields) < 4 || fields[0] != "h2" {
		return nil // none, or damaged, which whoever needs it says
	}
	if there := fields[3]; there != l.Rule() {
		return fmt.Errorf("%w: its clients have another max_ttl or replica_lag: max_ttl/grace is %s ms there, %s here",
			backend.ErrUnsafe, there, l.Rule())
	}
	return nil
}

// Dialect returns the layout that other libraries have (redsync, bsm/redislock, node-redlock,
// redis-py, the Redlock text): the key is prefix and key as they are, and holds the owner for as
// long as the lease lasts. prefix may be empty. Plain exclusive claims only.
func Dialect(prefix string, retention, inFlight time.Duration) (Layout, error) {
	if strings.ContainsFunc(prefix, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
		return Layout{}, &backend.InvalidError{Field: "prefix", Value: prefix, Reason: "has control characters"}
	}
	l, err := NewLayout("dialect:", retention, inFlight)
	if err == nil && len(prefix) > backend.MaxKey {
		_, err = NewLayout(prefix, retention, inFlight) // says that it is too long
	}
	l.prefix, l.dialect = prefix, true
	return l, err
}

// ReplicationID reads the reply to INFO replication: another one after every start and promotion,
// and a replica has its primary's.
func ReplicationID(info string) (string, error) {
	for line := range strings.Lines(info) {
		if id, ok := strings.CutPrefix(strings.TrimSpace(line), "master_replid:"); ok && id != "" {
			return id, nil
		}
	}
	return "", fmt.Errorf("%w: INFO replication has no master_replid", errors.ErrUnsupported)
}

// sideKey is beside a lock of the dialect, in its slot: a key's hash tag is what is between its
// first brace and the next closing one, if that is not nothing, and else the whole key. Two locks
// never have the same one, as those of tagged keys end otherwise.
func (l Layout) sideKey(key string) string {
	k := l.Key(key)
	if tagged(k) {
		return k + ":tagged" + sideSuffix
	}
	return "{" + k + "}" + sideSuffix
}

const sideSuffix = ":holdfast" // no lock's key ends so: see CheckKey

func tagged(k string) bool {
	_, after, ok := strings.Cut(k, "{")
	return ok && strings.Index(after, "}") > 0
}

// CheckKey refuses a key that cannot be locked, with an *[backend.InvalidError]. In the string
// dialect that is one that ends as side keys do: it could be that of another lock, and whoever
// holds it would keep everyone from that lock. In a cluster it is also one with a closing brace
// that ends no hash tag, as no second key can be in its slot.
func (l Layout) CheckKey(key string, cluster bool) error {
	if !l.dialect {
		return nil
	}
	switch k := l.Key(key); {
	case strings.HasSuffix(k, sideSuffix):
		return &backend.InvalidError{Field: "key", Value: key, Reason: "ends in " + sideSuffix +
			", which the string dialect keeps for what it stores beside a lock"}
	case cluster && strings.Contains(k, "}") && !tagged(k):
		return &backend.InvalidError{Field: "key", Value: key, Reason: "has a closing brace that ends no {hash tag}, " +
			"which the string dialect cannot have in a cluster"}
	}
	return nil
}
