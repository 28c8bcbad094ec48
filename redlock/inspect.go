package redlock

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Inspect asks all nodes that answer, waits for each, and shows who holds on so many of them that it may be a majority.
func (r *Backend) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := backend.ValidateKey(key); err != nil {
		return backend.State{}, err
	}
	if err := r.start(ctx); err != nil {
		return backend.State{}, err
	}
	defer r.tasks.Done()
	if !r.caps.Inspect {
		return backend.State{}, errors.ErrUnsupported
	}
	votes, states := r.newVotes(), make([]backend.State, len(r.nodes))
	answers := make(chan answer, len(r.nodes))
	for i, healthy := range r.healthy() {
		if !healthy {
			votes.count(i, r.nodes[i].skipped())
			continue
		}
		r.tasks.Add(1) // Close still waits for this call
		go func() {
			defer r.tasks.Done()
			err := r.nodes[i].ask(context.WithoutCancel(ctx), r.cfg.timeout(backend.MaxTTL), func(ctx context.Context, b backend.Backend) (err error) {
				states[i], err = b.Inspect(ctx, key)
				return err
			})
			answers <- answer{i, err}
		}()
	}
	for votes.pending() > 0 {
		select {
		case v := <-answers:
			votes.count(v.node, v.err)
		case <-ctx.Done():
			return backend.State{}, ctx.Err()
		}
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
	return merge(seen, r.quorum-(len(r.nodes)-len(seen)), r.quorum), nil
}

// An answer is one node's.
type answer struct {
	node int
	err  error
}

// merge shows a hold that at least so many of the states have. Its lease ends when less than a majority has it.
func merge(states []backend.State, atLeast, quorum int) (merged backend.State) {
	byOwner := map[string][]backend.Holder{}
	for _, s := range states {
		for _, h := range s.Holders {
			h.Owner = ownerOf(h.Owner)
			h.Meta.Quorum = ""
			byOwner[h.Owner] = append(byOwner[h.Owner], h)
		}
		merged.Token = max(merged.Token, s.Token)
	}
	for _, holds := range byOwner {
		if len(holds) < max(atLeast, 1) {
			continue
		}
		h := holds[0]
		slices.SortFunc(holds, func(a, b backend.Holder) int { return cmp.Compare(b.TTL, a.TTL) })
		h.TTL = max(holds[min(quorum, len(holds))-1].TTL, time.Nanosecond)
		h.Token = usual(holds)
		merged.Holders = append(merged.Holders, h)
	}
	slices.SortFunc(merged.Holders, func(a, b backend.Holder) int {
		return cmp.Or(cmp.Compare(a.Token, b.Token), cmp.Compare(a.Owner, b.Owner))
	})
	if n := len(merged.Holders); n > 0 {
		merged.Token = merged.Holders[n-1].Token
	}
	return merged
}

// usual is the token that most have: a node that was filled in later may have a higher one, one that came last not yet the hold's.
func usual(holds []backend.Holder) (token uint64) {
	count, most := map[uint64]int{}, 0
	for _, h := range holds {
		count[h.Token]++
	}
	for t, n := range count {
		if n > most || n == most && t > token {
			token, most = t, n
		}
	}
	return token
}
