package filebackend

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A process finds a record of which nothing is left any more, and until it has the shard another is
// granted the key: the record stays.
//
// covers: A1
func TestSweepLooksAgain(t *testing.T) {
	dir := t.TempDir()
	opened := func(clock func() time.Duration) *Backend {
		t.Helper()
		b, err := openAlone(t.Context(), dir, clock)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	acquire := func(b *Backend, c backend.Claim) {
		t.Helper()
		if _, err := b.TryAcquire(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	claim := func() backend.Claim {
		return backend.Claim{
			Key: "k", Owner: backend.NewOwner(), TTL: time.Minute,
			NoneInFlight: true,
		}
	}
	path, shard := RecordOf(dir, "k"), shardOf(name("k"))
	owner, granted := opened(bootClock), claim()
	owner.folder.stop() // its own sweep, which is late on a busy machine
	owner.folder.tasks.Wait()
	acquire(owner, granted)
	held, err := os.ReadFile(path) //nolint:gosec // below the test's folder
	if err != nil {
		t.Fatal(err)
	}
	if err := storetest.Release(t.Context(), owner, granted); err != nil {
		t.Fatal(err)
	}
	long := bootClock() - time.Hour
	dead, over := opened(func() time.Duration { return long }), claim()
	over.TTL = time.Second
	acquire(dead, over)
	dead.Die()

	unlock, err := owner.folder.shards[shard].lock(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	sweeper := opened(bootClock) // sweeps as soon as it is open
	turn := sweeper.folder.shards[shard].turn
	for len(turn) == 0 { // until it has looked, and waits for the shard
		time.Sleep(time.Millisecond)
	}
	if err := os.WriteFile(path, held, 0o600); err != nil { // as a grant does
		t.Fatal(err)
	}
	unlock()
	for len(turn) > 0 {
		time.Sleep(time.Millisecond)
	}
	if _, err := sweeper.TryAcquire(t.Context(), claim()); !errors.Is(err, backend.ErrHeld) {
		t.Errorf(history.Broken+
			"TryAcquire of a key that was granted while it was swept = %v, want %v", err,
			backend.ErrHeld)
	}
	if err := owner.Renew(t.Context(), granted); err != nil {
		t.Errorf("Renew by who was granted it = %v", err)
	}
}
