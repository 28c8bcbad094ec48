package redlock

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Inspect asks all nodes that answer, waits for each, and shows who holds on so many of them that
// it may be a majority.
func (r *Backend) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := backend.ValidateKey(key); err != nil {
		return backend.State{}, err
	}
	if err := r.start(ctx); err != nil {
		return backend.State{}, err
	}
	defer r.tasks.Done()
	if err := r.caps.Missing(backend.Capabilities{Inspect: true}); err != nil {
		return backend.State{}, err
	}
	states, healthy := make([]backend.State, len(r.nodes)), r.healthy()
	votes, err := r.poll(ctx, func(i int, n *node) error {
		if !healthy[i] {
			return n.skipped()
		}
		return n.ask(context.WithoutCancel(ctx), r.cfg.timeout(backend.MaxTTL),
			func(ctx context.Context, b backend.Backend) (err error) {
				states[i], err = b.Inspect(ctx, key)
				return err
			})
	})
	if err != nil {
		return backend.State{}, err
	}
	if votes.yes < r.quorum {
		return backend.State{}, votes.inconclusive()
	}
	var seen []backend.State
	for i := range states {
		if votes.errs[i] == nil {
			seen = append(seen, states[i])
		}
	}
	return r.merge(seen, r.quorum-(len(r.nodes)-len(seen))), nil
}

// poll asks all nodes at once, and waits for each or for the end of ctx. The caller has a task.
func (r *Backend) poll(ctx context.Context, ask func(i int, n *node) error) (votes, error) {
	votes, answers := r.newVotes(), make(chan answer, len(r.nodes))
	for i, n := range r.nodes {
		r.tasks.Add(1) // Close still waits for the caller's
		go func() {
			defer r.tasks.Done()
			answers <- answer{i, ask(i, n)}
		}()
	}
	for votes.pending() > 0 {
		select {
		case v := <-answers:
			votes.count(v.node, v.err)
		case <-ctx.Done():
			return votes, ctx.Err()
		}
	}
	return votes, nil
}

// An answer is one node's.
type answer struct {
	node int
	err  error
}

// merge shows a hold that so many of the nodes that answered have: all but those that did not
// answer, so that it may be a majority's, or a majority. Its
// lease ends when less than a majority has it; its token is the one that a majority has stored, as
// a node that was filled in may have a higher one.
func (r *Backend) merge(states []backend.State, atLeast int) (merged backend.State) {
	holds := map[string][]backend.Holder{}
	for _, s := range states {
		for _, h := range s.Holders {
			h.Owner, h.Meta.Quorum = ownerOf(h.Owner), ""
			h.ID = h.Owner
			holds[h.Owner] = append(holds[h.Owner], h)
		}
		merged.Token = max(merged.Token, s.Token)
	}
	for _, on := range holds {
		if len(on) < max(atLeast, 1) {
			continue
		}
		last := min(r.quorum, len(on)) - 1
		slices.SortFunc(on, func(a, b backend.Holder) int { return cmp.Compare(b.Token, a.Token) })
		h := on[last]
		slices.SortFunc(on, func(a, b backend.Holder) int { return cmp.Compare(b.TTL, a.TTL) })
		h.TTL = max(on[last].TTL, time.Nanosecond)
		merged.Holders = append(merged.Holders, h)
		merged.Token = h.Token
	}
	return merged
}
