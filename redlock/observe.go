package redlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// Observe puts together what the nodes tell: a hold is there for as long as a majority of them tell
// of it. So one that lasts for less than by how much nodes differ in telling may not be seen. The
// error is [errors.ErrUnsupported] if too few nodes tell of changes.
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
		o := &observation{votes: r.newVotes(), states: make([]backend.State, len(r.nodes)), reports: make(chan report)}
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

// An observation is one Observe. Its votes and states are of merge alone.
type observation struct {
	votes   // yes are those whose states are known
	states  []backend.State
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
// Before the first state it waits for all nodes, for as long as one that does not answer is given: what some
// of them have not told of yet would look like holds that are about to end.
func (o *observation) merge(ctx context.Context, r *Backend, yield func(backend.State, error) bool) (on bool, err error) {
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
			failing, known = true, false
			continue
		}
		failing = false
		if now := r.merge(o.states, r.quorum); !known || !now.SameHolders(last) {
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
	return fmt.Errorf("%d of %d nodes do not tell of changes: %w", len(o.errs)-left, len(o.errs), why)
}
