package redlock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A QuorumError says why there was no majority: for each node, what it answered. errors.Is finds in
// it what the answers amount to together, and not what single nodes said: one node's no is not the
// majority's.
type QuorumError struct {
	Need  int         // the majority
	Nodes []NodeError // in the order of the nodes; Err is nil for those that said yes
	is    []error
}

// A NodeError is one node's answer.
type NodeError struct {
	Node string // its URL without user, password and query, or its number
	Err  error
}

// Error lists what the nodes said.
func (e *QuorumError) Error() string {
	yes, texts := 0, []string(nil)
	for _, n := range e.Nodes {
		if n.Err == nil {
			yes++
			continue
		}
		texts = append(texts, n.Node+": "+n.Err.Error())
	}
	return fmt.Sprintf("%d of %d nodes agreed, %d are needed (%s)", yes, len(e.Nodes), e.Need,
		strings.Join(texts, "; "))
}

// Unwrap returns what the answers amount to: errors that are refusals or [backend.ErrUnavailable],
// or for an unknown answer none that would make it a definite one.
func (e *QuorumError) Unwrap() []error { return e.is }

// A timeoutError is a node that did not answer in time. It is not context.DeadlineExceeded: no ctx
// of the caller's ended.
type timeoutError struct{ limit time.Duration }

func (e timeoutError) Error() string { return fmt.Sprintf("no answer within %v", e.limit) }

var (
	// errSkipped is the vote of a node that was not asked, since it has not been answering.
	errSkipped = fmt.Errorf("%w: not asked, as it has not been answering", backend.ErrUnavailable)

	// errNotSent is the vote of a node whose earlier requests took until the claim was released.
	errNotSent = fmt.Errorf("%w: the claim was released before it was sent", backend.ErrUnavailable)

	// errLapsed is the vote of a node that granted, but did not hold any more when it was told the
	// majority's token.
	errLapsed = fmt.Errorf("%w: its lease ended before it stored the majority's token",
		backend.ErrUnavailable)

	errNotHeld = fmt.Errorf("%w on this node", backend.ErrLost)

	errWaiting = errors.New("has not answered yet")

	errUnsubscribed = errors.New("its watch has ended")
)
