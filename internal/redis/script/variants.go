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
		grace += lag + lagMargin // safeguard: guard-lag
	}
	return Layout{l.names, &guarded{plain{l.names, true}, millis(longest) + " " + millis(grace)}}
}

// MarkKey returns the key of a server's mark. No lock has it, as it has no braces.
func (l Layout) MarkKey() string { return l.prefix + markName }

const markName = "mark"

// Rule is the guard's part of a server's mark, 'longest TTL/grace' in ms; "none" without a guard.
func (l Layout) Rule() string {
	if g, ok := l.kind.(*guarded); ok {
		return strings.ReplaceAll(g.rule, " ", "/")
	}
	return noRule
}

const noRule = "none"

// CheckMark reads the reply to [Mark]. The error is [backend.ErrUnsafe] if the server's clients
// have another guard than this layout.
func (l Layout) CheckMark(reply any) error {
	mark, _ := reply.(string)
	fields := strings.Fields(mark)
	if len(fields) < 4 || fields[0] != "h2" {
		return nil // none, or damaged, which whoever needs it says
	}
	if there := fields[3]; there != l.Rule() {
		return fmt.Errorf("%w: its clients have another max_ttl or replica_lag: max_ttl/grace is "+
			"%s ms there, %s here",
			backend.ErrUnsafe, there, l.Rule())
	}
	return nil
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
