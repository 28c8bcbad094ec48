package backend

import (
	"context"
	"slices"
	"time"
)

// SlowLook is how often [ObserveBy] is to look where every change is told: it finds out that the
// telling has stopped, which a lost connection may do without a word.
const SlowLook = 5 * time.Second

// ObserveBy is [Backend.Observe] by looking, for backends that are told of changes. It looks at
// once, whenever changed is signalled, at the end of each lease, and after a time of every without
// either. changed, which has one slot, must be subscribed to before; so a change behind a look is
// in the next one. After a look that took a millisecond or more it rests for as long, so that a key
// that is written to all the time does not keep the store from other work; but for no longer than
// until it would look anyway: a look that had no answer may have waited for one for seconds, and
// the store may be back.
//
// It returns at the end of the observation. closed says that this is because changed was closed and
// the store still answers; then the caller says what that means.
func ObserveBy[T any](
	ctx context.Context, every time.Duration, changed <-chan T,
	look func(context.Context) (State, error), yield func(State, error) bool,
) (closed bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for open := true; ; {
		select {
		case _, open = <-changed:
		case <-timer.C:
		case <-ctx.Done():
			yield(State{}, ctx.Err())
			return false
		}
		began := time.Now()
		state, err := look(ctx)
		took := time.Since(began)
		if ctx.Err() != nil {
			yield(State{}, ctx.Err())
			return false
		}
		if !yield(state, err) || Refused(err) {
			return false
		}
		if !open {
			return true
		}
		next := every
		if err != nil {
			next = min(every, time.Second)
		}
		for _, h := range state.Holders {
			// Clocks that differ make this too early at worst: then it looks once more.
			next = min(next, h.TTL+time.Millisecond)
		}
		timer.Reset(next)
		if took < time.Millisecond {
			continue
		}
		rest := time.NewTimer(min(took, next))
		select {
		case <-rest.C:
		case <-ctx.Done():
		}
		rest.Stop()
	}
}

// SameHolders reports whether the same holds are in both states, whatever else differs.
func (s State) SameHolders(o State) bool {
	in := func(all []Holder) func(Holder) bool {
		return func(h Holder) bool { return !slices.ContainsFunc(all, h.Same) }
	}
	return !slices.ContainsFunc(s.Holders, in(o.Holders)) &&
		!slices.ContainsFunc(o.Holders, in(s.Holders))
}

// Same reports whether both are one hold, looked at twice. Holds of other libraries that have no
// name are told apart by their tokens.
func (h Holder) Same(o Holder) bool {
	return h.Owner == o.Owner && h.ID == o.ID && (h.ID != "" || h.Owner != "" || h.Token == o.Token)
}
