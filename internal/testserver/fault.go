package testserver

import (
	"bytes"
	"slices"
	"time"
)

// Mode is what a [Proxy] does to a request.
type Mode uint8

// The modes. Where a connection speaks RESP, a request is one whole command and a reply is the one
// that answers it, also in a pipeline; pushes and pub/sub messages are neither. On other
// connections (TLS, HTTP/2) each read is taken for one.
const (
	// Pass forwards.
	Pass Mode = iota

	// Hold keeps the request, and what follows it on its connection, until the next Set, and then
	// delivers it, late, also if the client has closed the connection meanwhile. Without Match and
	// Next it holds what servers send, too.
	Hold

	// HoldReply forwards the request and keeps its reply until the next Set.
	HoldReply

	// Delay forwards the request Fault.Delay after it came in.
	Delay

	// DelayReply forwards the request, and its reply no earlier than Fault.Delay after the request
	// came in.
	DelayReply

	// CutBeforeRequest closes the connection. The server has not seen the request.
	CutBeforeRequest

	// ExecuteThenCut forwards the request, waits for the reply, drops it and closes the connection:
	// executed, but the client cannot know.
	ExecuteThenCut

	// HalfOpen swallows the request and leaves the connection open. As TCP cannot lose a part of a
	// stream, nothing passes on that connection again in either direction, whatever is Set later.
	// Without Match and Next, connections that only listen are struck too, when the server next
	// sends something.
	HalfOpen

	// Refuse closes the listener, so that new connections are refused. Present ones live on, see
	// [Proxy.CutAll].
	Refuse

	// LoseMessages drops the pub/sub messages that servers send, and nothing else. Match and Next
	// say nothing here.
	LoseMessages
)

// A Fault says what happens to which requests. A client library's own requests count, too: without
// Match, Next may be used up by the HELLO of a new connection.
type Fault struct {
	Mode  Mode
	Match func(request []byte) bool // which requests; nil is all. [Containing] makes one
	Next  int                       // only the next so many of them; 0 is all of them
	Delay time.Duration             // for Delay and DelayReply
}

// everything reports whether the fault is about connections as a whole, and not about chosen
// requests.
func (f Fault) everything() bool { return f.Match == nil && f.Next == 0 }

// Containing matches requests that contain every one of parts, such as a script's SHA and a key.
// The proxy sees a command as the server would: a script's first call may be an EVAL, which does
// not contain the SHA.
func Containing(parts ...string) func(request []byte) bool {
	return func(request []byte) bool {
		for _, p := range parts {
			if !bytes.Contains(request, []byte(p)) {
				return false
			}
		}
		return true
	}
}

// A regime is what was Set, until the next Set.
type regime struct {
	faults []Fault
	left   []int         // of each fault's Next; guarded by Proxy.mu
	over   chan struct{} // closed by the next Set
}

func newRegime(faults []Fault) *regime {
	r := &regime{faults: faults, over: make(chan struct{})}
	for _, f := range faults {
		r.left = append(r.left, f.Next)
	}
	return r
}

// choose returns the first fault that applies to the request, and uses up one of its Next.
func (r *regime) choose(request []byte) Fault {
	for i, f := range r.faults {
		if f.Match != nil && !f.Match(request) || f.Next > 0 && r.left[i] == 0 {
			continue
		}
		if f.Mode == Refuse || f.Mode == LoseMessages { // say nothing about requests
			continue
		}
		r.left[i]--
		return f
	}
	return Fault{}
}

// whole returns the mode of the first fault that is about whole connections, as far as it stops
// what servers send.
func (r *regime) whole() Mode {
	for _, f := range r.faults {
		if f.everything() && (f.Mode == Hold || f.Mode == HalfOpen) {
			return f.Mode
		}
	}
	return Pass
}

func (r *regime) has(mode Mode) bool {
	return slices.ContainsFunc(r.faults, func(f Fault) bool { return f.Mode == mode })
}
