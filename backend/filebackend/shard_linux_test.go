package filebackend

import (
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
)

// A renewal does not wait for all attempts that came before it: of a thousand waiters' they take
// seconds, in which its lease would run out.
func TestRenewalsGoFirst(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shard")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		s := &shard{queue: make(chan struct{}, 1), turn: make(chan struct{}, 1), path: path}
		defer s.close()
		unlock, err := s.lock(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		var all sync.WaitGroup
		var order []bool // guarded by the shard
		enter := func(urgent bool) {
			all.Go(func() {
				unlock, err := s.lock(t.Context(), urgent)
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, urgent)
				unlock()
			})
		}
		for range 50 {
			enter(false)
		}
		synctest.Wait()
		enter(true)
		synctest.Wait()
		unlock()
		all.Wait()
		if at := slices.Index(order, true); len(order) != 51 || at > 1 {
			t.Errorf("of %d the renewal came after %d others, want one at most", len(order), at)
		}
	})
}
