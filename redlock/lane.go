package redlock

import (
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A lane is one node's part in a run. Requests in it are one behind another, and a release thus never overtakes its acquire.
type lane struct {
	busy bool     // a request is under way
	line []func() // those behind it

	// gen tells the owners that the claim has on this node. An attempt without answer that is given up is buried under its
	// name, and the claim goes on under another.
	gen     int
	held    bool   // it granted, and nothing is known to have ended that
	unsure  bool   // an attempt was not answered: it may hold, or may yet come to
	token   uint64 // of the hold there
	release error  // what it answered to the release; see released
	done    bool   // it has answered the release
}

// queue lets f ask node i, behind every earlier request of this claim to it, and no sooner than at unlock. f waits for nothing: it ends in
// ask or in pass. The caller has mu, and entered the run.
func (u *claimRun) queue(i int, f func()) {
	if u.calls == 0 {
		u.red.tasks.Add(1) // Close is still to wait for the verb that we are in, or for a request
	}
	u.calls++
	if l := &u.lanes[i]; l.busy {
		l.line = append(l.line, f)
		return
	}
	u.lanes[i].busy = true
	if u.ready == nil {
		u.ready = make([]func(), 0, len(u.lanes))
	}
	u.ready = append(u.ready, f)
}

// follow lets f ask node i next, ahead of those in line. The caller has mu, and the lane.
func (u *claimRun) follow(i int, f func()) {
	u.calls++
	l := &u.lanes[i]
	l.line = append([]func(){f}, l.line...)
}

// pass ends a request in lane i: the next one may go. The caller has mu.
func (u *claimRun) pass(i int) {
	l := &u.lanes[i]
	if l.busy = len(l.line) > 0; l.busy {
		u.ready = append(u.ready, l.line[0])
		l.line = l.line[1:]
	}
	if u.calls--; u.calls == 0 {
		u.rested = true
	}
}

// owe lets node i be told later what on says, from unlock on. The caller has mu.
func (u *claimRun) owe(i int, on backend.Claim) {
	u.ready = append(u.ready, func() { u.red.nodes[i].owe(on) })
}

// unlock gives mu back, and then does what has become ready.
func (u *claimRun) unlock() {
	ready, rested := u.ready, u.rested
	u.ready, u.rested = nil, false
	u.mu.Unlock()
	for _, f := range ready {
		f()
	}
	if !rested {
		return
	}
	defer u.red.tasks.Done()
	u.red.mu.Lock()
	defer u.red.mu.Unlock()
	u.stale = time.Now().Add(u.idle)
	u.forget()
}

// ask makes node i the request that on is of, as the last act of what was queued. heard has mu.
func (u *claimRun) ask(s *spell, i int, v backend.Verb, on backend.Claim, heard func(backend.Grant, error)) {
	u.red.nodes[i].start(s, v, on, func(g backend.Grant, err error) {
		u.mu.Lock()
		heard(g, err)
		u.pass(i)
		u.unlock()
	})
}
