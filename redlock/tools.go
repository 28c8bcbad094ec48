package redlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/holdfast-go/holdfast/backend"
)

// List merges what the nodes list, as [Backend.Inspect] does for one key. A majority of the nodes
// must have answered. Each takes the time that its list takes: its own backend bounds the requests.
func (r *Backend) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		listed, err := r.lists(ctx, prefix)
		if err != nil {
			yield(backend.Listed{}, err)
			return
		}
		keys := map[string]bool{}
		listed = slices.DeleteFunc(listed, func(all map[string]backend.State) bool {
			return all == nil
		})
		for _, all := range listed {
			for key := range all {
				keys[key] = true
			}
		}
		for _, key := range slices.Sorted(maps.Keys(keys)) {
			states := make([]backend.State, len(listed))
			for i, all := range listed {
				states[i] = all[key]
			}
			var err error
			state := r.merge(states, r.quorum-(len(r.nodes)-len(states)))
			// It was left on a few nodes, or handed on between two nodes' answers.
			if state.Holders == nil {
				state, err = r.Inspect(ctx, key)
			}
			if err == nil && state.Holders == nil && state.Waiters == nil {
				continue
			}
			if !yield(backend.Listed{Key: key, State: state}, err) || err != nil {
				return
			}
		}
	}
}

// lists are the nodes' lists, nil of one that has not answered.
func (r *Backend) lists(ctx context.Context, prefix string) ([]map[string]backend.State, error) {
	if err := r.start(ctx); err != nil {
		return nil, err
	}
	defer r.tasks.Done()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.ctx, cancel)() // safeguard: list-ends-at-close
	listed, healthy := make([]map[string]backend.State, len(r.nodes)), r.healthy()
	votes, err := r.poll(ctx, func(i int, n *node) (err error) {
		if !healthy[i] {
			return n.skipped()
		}
		listed[i], err = n.list(ctx, prefix)
		return err
	})
	switch {
	case r.ctx.Err() != nil:
		return nil, backend.ErrClosed
	case err == nil && votes.yes < r.quorum: // safeguard: majority-listed
		err = votes.inconclusive()
	}
	return listed, err
}

// list is what the node lists. As that is many requests, no time-out of one bounds it, nor is its
// end by ctx a sign of the node's health.
func (n *node) list(ctx context.Context, prefix string) (map[string]backend.State, error) {
	b, err := n.backend()
	if err != nil {
		return nil, err
	}
	all := map[string]backend.State{}
	for l, failed := range b.List(ctx, prefix) {
		if err = failed; err != nil {
			all = nil
			break
		}
		all[l.Key] = l.State
	}
	if ctx.Err() == nil { // safeguard: left-is-no-failure
		n.record(err)
	}
	return all, err
}

// ForceRelease ends a hold on every node that answers, whoever holds it, as [backend.Backend] says.
// If fewer than a majority answered, the error is unknown, unless no node has done anything.
func (r *Backend) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	state, err := r.Inspect(ctx, key)
	if err != nil {
		return backend.Holder{}, err
	}
	i := slices.IndexFunc(state.Holders, func(h backend.Holder) bool {
		return h.Token == token && token != 0
	})
	if i < 0 {
		return backend.Holder{}, fmt.Errorf("%w: no hold has token %d", backend.ErrLost, token)
	}
	holder := state.Holders[i]
	return holder, r.endOn(ctx, key, holder.Owner)
}

// endOn ends what a majority of the nodes, or more, has of key for owner.
func (r *Backend) endOn(ctx context.Context, key, owner string) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.tasks.Done()
	end := func(ctx context.Context, b backend.Backend) error {
		state, err := b.Inspect(ctx, key)
		for _, h := range state.Holders {
			// A claim may have had several names on a node. safeguard: force-every-name
			if ownerOf(h.Owner) == owner {
				// It is gone also if it was not there any more.
				_, released := b.Release(ctx, h.Claim(key))
				// safeguard: force-lost-is-done
				if released != nil && !errors.Is(released, backend.ErrLost) {
					return released
				}
			}
		}
		return err
	}
	votes, err := r.poll(ctx, func(_ int, n *node) error {
		return n.ask(context.WithoutCancel(ctx), r.cfg.timeout(backend.MaxTTL), end)
	})
	switch {
	case err != nil || votes.yes >= r.quorum: // safeguard: majority-looked
		return err
	case votes.yes+votes.unknown > 0: // safeguard: force-in-part
		return votes.failed(votes.causes()...)
	}
	return votes.inconclusive() // of nodes that all did nothing
}
