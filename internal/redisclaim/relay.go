package redisclaim

import "github.com/holdfast-go/holdfast/backend"

// Relay returns the arguments of [Scripts.Relay], for claims that are valid and of one key. ok is false if these two are not for it: it
// knows plain exclusive claims only, the first of which has no attempt under way and the other of which stands in line.
func (l Layout) Relay(ended, next backend.Claim) (args []string, ok bool) {
	id := name(ended.ID())
	if l.dialect || !ended.Settled || !next.Queue || next.Floor != 0 || formOf(next, name(next.ID())) != "x" {
		return nil, false
	}
	a := Layout{client: l.client, retention: l.retention}.Acquire(next) // no more than the first five
	return l.guarded(append([]string{id}, a...)...), true
}

// DecodeRelay reads the reply to [Scripts.Relay]. If it was done, the first claim is released, and the rest is the answer to the other
// one. If not, nothing was, and the two are for [Scripts.Release] and [Scripts.Acquire].
func DecodeRelay(reply any, next backend.Claim) (done bool, g backend.Grant, err error) {
	if _, code := open(reply); code != codeHeld {
		token, ok := reply.(int64)
		if !ok || token == 0 {
			return false, backend.Grant{}, nil
		}
	}
	g, err = DecodeAcquire(reply, next)
	return true, g, err
}
