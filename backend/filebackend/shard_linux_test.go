package filebackend

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"
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

// Whoever gave up waiting for a shard that another process has leaves it to others of this process
// when the shard is free, and to other processes.
func TestGivenUpShardIsFree(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shard")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	process := func() *shard {
		return &shard{queue: make(chan struct{}, 1), turn: make(chan struct{}, 1), path: path}
	}
	a, b := process(), process()
	defer a.close()
	defer b.close()
	lock := func(s *shard) (unlock func()) {
		t.Helper()
		unlock, err := s.lock(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		return unlock
	}
	turn := func(taken int) {
		for len(a.turn) != taken {
			time.Sleep(time.Millisecond)
		}
	}
	unlock := lock(b)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		turn(1)
		cancel()
	}()
	if _, err := a.lock(ctx, false); !errors.Is(err, context.Canceled) {
		t.Fatalf("lock of what another process has = %v, want that the caller has gone", err)
	}
	unlock()
	turn(0)
	lock(b)()
	lock(a)()
}
