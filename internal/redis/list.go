package redis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync"

	"github.com/holdfast-go/holdfast/backend"
)

// ScanCount is how many keys a server looks at in one SCAN: that takes it under a millisecond.
const ScanCount = 1000

// looks is how many locks of a page are read at once: enough to fill a pipeline.
const looks = 64

// List is that of [backend.Backend]. Names are found by SCAN, which holds up nobody, and then each
// is read. In the string dialect the error is [errors.ErrUnsupported].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		pattern, ok := s.Layout.Pattern(prefix)
		if !ok {
			yield(backend.Listed{}, fmt.Errorf("%w: a list of locks whose names are not told from other keys", errors.ErrUnsupported))
			return
		}
		if err := s.Begin(ctx); err != nil {
			yield(backend.Listed{}, err)
			return
		}
		defer s.End()
		var failed error
		err := s.t.Scan(ctx, pattern, func(keys []string) bool {
			for _, l := range s.look(ctx, keys) {
				if failed = l.err; failed != nil {
					return false
				}
				if (l.State.Holders != nil || l.State.Waiters != nil) && !yield(l.Listed, nil) {
					failed = errStopped
					return false
				}
			}
			return true
		})
		switch {
		case errors.Is(failed, errStopped):
		case failed != nil:
			yield(backend.Listed{}, failed)
		case err != nil:
			yield(backend.Listed{}, s.Failure(ctx, err))
		}
	}
}

var errStopped = errors.New("stopped")

// A look is one lock that was read, or why it could not be.
type look struct {
	backend.Listed
	err error
}

// look reads the locks that the keys of a page are. Other data among them is passed over.
func (s *Store) look(ctx context.Context, keys []string) []look {
	all := make([]look, len(keys))
	var wg sync.WaitGroup
	slots := make(chan struct{}, looks)
	for i, key := range keys {
		name, ok := s.Layout.UserKey(key)
		if !ok {
			continue
		}
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			all[i].Key = name
			all[i].State, all[i].err = s.Inspect(ctx, name)
			if errors.Is(all[i].err, backend.ErrForeign) {
				all[i].err = nil
			}
		})
	}
	wg.Wait()
	return all
}
