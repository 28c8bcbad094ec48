package redis

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// ScanCount is how many keys a server looks at in one SCAN: that takes it under a millisecond.
const ScanCount = 1000

// looks is how many locks of a page are read at once, in two requests: one is executed while the
// other's reply is read.
const looks = 64

// List is that of [backend.Backend]. Names are found by SCAN, which holds up nobody, and then each
// is read. In the string dialect the error is [errors.ErrUnsupported].
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		pattern, ok := s.Layout.Pattern(prefix)
		if !ok {
			yield(backend.Listed{}, fmt.Errorf("%w: a list of locks whose names are not told "+
				"from other keys", errors.ErrUnsupported))
			return
		}
		if err := s.Begin(ctx); err != nil {
			yield(backend.Listed{}, err)
			return
		}
		counted := true
		defer func() { // also if the caller's loop ends in a panic
			if counted {
				s.End()
			}
		}()
		var failed error
		err := s.t.Scan(ctx, pattern, func(keys []string) bool {
			// Close waits for requests, and not for the caller's loop.
			counted = false
			s.End() // safeguard: list-close
			if failed = s.page(ctx, keys, yield); failed == nil {
				failed = s.Begin(ctx) // safeguard: list-counted
			}
			counted = failed == nil
			return counted
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

// page yields those of a page's keys that are locks somebody has or waits for.
func (s *Store) page(ctx context.Context, keys []string,
	yield func(backend.Listed, error) bool,
) error {
	for _, l := range s.look(ctx, keys) {
		if l.err != nil {
			return l.err
		}
		if (l.State.Holders != nil || l.State.Waiters != nil) && !yield(l.Listed, nil) {
			return errStopped
		}
	}
	return nil
}

// A look is one lock that was read, or why it could not be.
type look struct {
	backend.Listed
	err error
}

// look reads the locks that the keys of a page are. Other data among them is passed over.
func (s *Store) look(ctx context.Context, keys []string) []look {
	all := make([]look, 0, len(keys))
	for _, key := range keys {
		if name, ok := s.Layout.UserKey(key); ok && backend.ValidateKey(name) == nil {
			all = append(all, look{Listed: backend.Listed{Key: name}})
		}
	}
	size := looks / 2
	// In a cluster a script is about one slot. safeguard: list-one-server
	if !s.single {
		size = 1
	}
	var wg sync.WaitGroup
	slots := make(chan struct{}, looks/size)
	for some := range slices.Chunk(all, size) {
		slots <- struct{}{}
		wg.Go(func() {
			defer func() { <-slots }()
			s.read(ctx, some)
		})
	}
	wg.Wait()
	return all
}

// read reads some locks, in one request unless much is stored of them.
func (s *Store) read(ctx context.Context, some []look) {
	for len(some) > 0 {
		names := make([]string, len(some))
		for i := range some {
			names[i] = some[i].Key
		}
		reply, _, err := s.run(ctx, s.Layout.Inspect(names...), 0)
		var told []script.Inspected
		if err == nil {
			told, err = s.Layout.DecodeInspect(reply, len(some))
		}
		if err != nil {
			some[0].err = err
			return
		}
		for i, l := range told {
			some[i].State = l.State
			if !errors.Is(l.Err, backend.ErrForeign) {
				some[i].err = l.Err
			}
		}
		some = some[len(told):]
	}
}
