package redlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// Observe puts together what the nodes tell: a hold begins when a majority of them tell of it, and
// ends when so many tell of it no more that the others are no majority, whatever these have yet to
// tell. So each is told of once, and one that lasts for less than by how much nodes differ in
// telling may not be seen. The error is [errors.ErrUnsupported] if too few nodes tell of changes.
func (r *Backend) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	return func(yield func(backend.State, error) bool) {
		err := backend.ValidateKey(key)
		if err == nil {
			err = r.start(ctx) // Close waits for those who listen, and not for the caller's loop
		}
		if err != nil {
			yield(backend.State{}, err)
			return
		}
		caller := ctx
		ctx, cancel := context.WithCancel(ctx)
		stop := context.AfterFunc(r.ctx, cancel)
		all := make(chan struct{})
		end := sync.OnceFunc(func() {
			stop()
			cancel()
			<-all
		})
		defer end() // also when the caller's loop panics
		o := &observation{
			votes: r.newVotes(), states: make([]backend.State, len(r.nodes)),
			told: map[string]map[int]bool{}, reports: make(chan report),
		}
		var nodes []<-chan struct{}
		for i := range r.nodes {
			ended := make(chan struct{})
			nodes = append(nodes, ended)
			go func() {
				defer close(ended)
				o.listen(ctx, i, key)
			}()
		}
		go func() {
			defer r.tasks.Done()
			defer close(all)
			for _, ended := range nodes {
				<-ended
			}
		}()
		on, err := o.merge(ctx, r, yield)
		end()
		switch {
		case !on:
			return
		case caller.Err() != nil:
			err = caller.Err()
		case err == nil:
			err = backend.ErrClosed
		}
		yield(backend.State{}, err)
	}
}

// An observation is one Observe. Its votes, states and told are of merge alone.
type observation struct {
	votes   // yes are those whose states are known
	states  []backend.State
	told    map[string]map[int]bool // of a hold, by its owner: the nodes that have told of it
	reports chan report
}

// A report is what one node told last.
type report struct {
	node  int
	state backend.State
	err   error
}

// listen is one node's part. A node that cannot be asked, or has failed, is asked again.
func (o *observation) listen(ctx context.Context, i int, key string) {
	send := func(t report) (on bool) {
		select {
		case o.reports <- t:
			return true
		case <-ctx.Done():
			return false
		}
	}
	retry := waiting.NewBackoff(minProbe, maxProbe)
	for ctx.Err() == nil {
		b, err := o.nodes[i].backend()
		if err != nil && !send(report{node: i, err: err}) {
			return
		}
		if b != nil {
			for state, err := range b.Observe(ctx, key) {
				if !send(report{i, state, err}) || errors.Is(err, errors.ErrUnsupported) {
					return
				}
				if err == nil {
					retry.Reset()
				}
			}
		}
		waiting.Pause(ctx, retry.Next())
	}
}

// merge yields who holds whenever that changes, until ctx is done. on is false if the caller's loop
// was left.
//
// Before the first state it waits for all nodes, for as long as one that does not answer is given:
// what some of them have not told of yet would look like holds that are about to end.
func (o *observation) merge(ctx context.Context, r *Backend,
	yield func(backend.State, error) bool,
) (on bool, err error) {
	patience := time.NewTimer(r.cfg.timeout(backend.MaxTTL))
	defer patience.Stop()
	var last backend.State
	waits, known := true, false
	for failing := false; ; {
		select {
		case t := <-o.reports:
			o.note(t)
		case <-patience.C:
			waits = false
		case <-ctx.Done():
			return true, nil
		}
		if waits = waits && o.pending() > 0; waits {
			continue
		}
		if err := o.unsupported(); err != nil {
			return true, err
		}
		if o.yes < r.quorum {
			if !failing && !yield(backend.State{}, o.inconclusive()) {
				return false, nil
			}
			failing, known = true, false // safeguard: observed-anew
			continue
		}
		failing = false
		now := r.merge(o.states, r.quorum)
		now.Holders = append(now.Holders, o.going(now, last)...)
		o.forget(now)
		if !known || !now.SameHolders(last) {
			if last, known = now, true; !yield(now, nil) {
				return false, nil
			}
		}
	}
}

// note takes what a node tells for what it has: nothing, if it has failed.
func (o *observation) note(t report) {
	o.count(t.node, t.err)
	o.states[t.node] = t.state
	for _, h := range t.state.Holders {
		owner := ownerOf(h.Owner)
		if o.told[owner] == nil {
			o.told[owner] = map[int]bool{}
		}
		o.told[owner][t.node] = true
	}
}

// going are the holds of last that have no majority now and have not ended for sure. A node that
// has not told of a hold yet may be late, and tell of it when others tell of its end: taken for
// ended by then, it would be told of as another hold. Each node that has told of it tells of its
// end in time, or fails. A majority for another hold ends it at once, unless the two may be there
// together.
func (o *observation) going(now, last backend.State) (going []backend.Holder) {
	for _, h := range last.Holders {
		over := slices.ContainsFunc(now.Holders, func(other backend.Holder) bool {
			return h.Same(other) || h.Mode == backend.Exclusive || other.Mode == backend.Exclusive
		})
		gone := 0
		for node := range o.told[h.Owner] {
			if !tells(o.states[node], h.Owner) {
				gone++
			}
		}
		if !over && gone <= len(o.nodes)-o.quorum { // safeguard: observe-once
			going = append(going, h)
		}
	}
	return going
}

// forget forgets who has told of holds that are over.
func (o *observation) forget(now backend.State) {
	for owner := range o.told {
		of := func(h backend.Holder) bool { return h.Owner == owner }
		told := func(s backend.State) bool { return tells(s, owner) }
		if !slices.ContainsFunc(now.Holders, of) && !slices.ContainsFunc(o.states, told) {
			delete(o.told, owner)
		}
	}
}

// tells reports whether a node tells of a hold of owner.
func tells(s backend.State, owner string) bool {
	return slices.ContainsFunc(s.Holders, func(h backend.Holder) bool {
		return ownerOf(h.Owner) == owner
	})
}

// unsupported is an error if so many nodes tell of no changes that the others are no majority.
func (o *observation) unsupported() error {
	var why error
	left := len(o.errs)
	for _, err := range o.errs {
		if errors.Is(err, errors.ErrUnsupported) {
			why = err
			left--
		}
	}
	if left >= o.quorum {
		return nil
	}
	return fmt.Errorf("%d of %d nodes do not tell of changes: %w",
		len(o.errs)-left, len(o.errs), why)
}
