package redlock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/backend"
)

// List merges what the nodes list, as [Backend.Inspect] does for one key. A majority of the nodes
// must have answered.
func (r *Backend) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		listed, keys := make([]map[string]backend.State, len(r.nodes)), map[string]bool{}
		if err := r.majority(ctx, func(ctx context.Context, node int, b backend.Backend) error {
			all := map[string]backend.State{}
			for l, err := range b.List(ctx, prefix) {
				if err != nil {
					return err
				}
				all[l.Key] = l.State
			}
			listed[node] = all
			return nil
		}); err != nil {
			yield(backend.Listed{}, err)
			return
		}
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

// ForceRelease ends a hold on every node that answers, whoever holds it, as [backend.Backend] says.
// If fewer than a majority answered, the error is unknown.
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
	return holder, r.majority(ctx, func(ctx context.Context, _ int, b backend.Backend) error {
		state, err := b.Inspect(ctx, key)
		for _, h := range state.Holders {
			// A claim may have had several names on a node. safeguard: force-every-name
			if ownerOf(h.Owner) == holder.Owner {
				_, released := b.Release(ctx, h.Claim(key))
				err = errors.Join(err, released)
			}
		}
		return err
	})
}

// majority asks all nodes the same at once, waits for each, and returns an error unless a majority
// has answered with nil.
func (r *Backend) majority(
	ctx context.Context, ask func(ctx context.Context, node int, b backend.Backend) error,
) error {
	if err := r.start(ctx); err != nil {
		return err
	}
	defer r.tasks.Done()
	errs := make([]error, len(r.nodes))
	var wg sync.WaitGroup
	for i, n := range r.nodes {
		wg.Go(func() {
			errs[i] = n.ask(ctx, r.cfg.timeout(backend.MaxTTL),
				func(ctx context.Context, b backend.Backend) error {
					return ask(ctx, i, b)
				})
		})
	}
	wg.Wait()
	done := 0
	for i, err := range errs {
		if err == nil {
			done++
		} else {
			errs[i] = fmt.Errorf("%s: %w", r.nodes[i].name, err)
		}
	}
	if done >= r.quorum { // safeguard: majority-looked
		return nil
	}
	return fmt.Errorf("%d of %d nodes answered: %w", done, len(r.nodes), errors.Join(errs...))
}
