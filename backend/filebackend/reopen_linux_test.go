package filebackend

import (
	"context"
	"errors"
	"net/url"
	"os"
	"runtime"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
)

// A verb is given up while another process is in the middle of one, and a claim is left when the
// last client closes. When the process opens the folder again, what the verb still has to give back
// is not what the new client uses: of its goroutines one at a time changes a record, and none of
// another process beside it.
//
// covers: C11
func TestVerbThatWasGivenUpBeforeTheFolderWasOpenedAgain(t *testing.T) {
	dir := t.TempDir()
	opened := func() (*Backend, *shard) {
		t.Helper()
		b, err := open(t.Context(), &url.URL{Scheme: "file", Path: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		f := b.(*Backend).folder
		return b.(*Backend), &f.shards[shardOf(name("k"))]
	}
	full := func(turn chan struct{}, taken int) {
		for patience := time.Now().Add(10 * time.Second); len(turn) != taken; {
			if time.Now().After(patience) {
				t.Error("a turn was not taken, or not given on")
				return
			}
			time.Sleep(time.Millisecond)
		}
	}
	closed, before := opened()
	c := backend.Claim{Key: "k", Owner: backend.NewOwner(), TTL: backend.MaxTTL}
	if _, err := closed.TryAcquire(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	process, err := os.Open(LockOf(dir, "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = process.Close() }()
	flock := func(how int) error { return unix.Flock(int(process.Fd()), how) }
	if err := flock(unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	owed := before.turn
	go func() {
		full(owed, 1)
		cancel()
	}()
	if err := closed.Renew(ctx, c); !errors.Is(err, context.Canceled) {
		t.Fatalf("Renew beside another process's verb = %v, want that it was given up", err)
	}
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}

	_, s := opened()
	var unlock func()
	granted := make(chan error, 1)
	go func() {
		var err error
		unlock, err = s.lock(t.Context(), false)
		granted <- err
	}()
	full(s.turn, 1)
	if err := flock(unix.LOCK_UN); err != nil {
		t.Fatal(err)
	}
	for len(granted) == 0 {
		runtime.GC() // which closes what nobody can unlock any more
		time.Sleep(time.Millisecond)
	}
	if err := <-granted; err != nil {
		t.Fatal(err)
	}
	if len(s.turn) == 0 {
		t.Fatal(history.Broken + "beside a goroutine that changes a record another can begin to")
	}
	if err := flock(unix.LOCK_EX | unix.LOCK_NB); !errors.Is(err, unix.EWOULDBLOCK) {
		t.Fatalf(history.Broken+"flock of another process beside a verb = %v", err)
	}
	unlock()
	full(owed, 0)
	if err := flock(unix.LOCK_EX | unix.LOCK_NB); err != nil {
		t.Errorf("flock of another process when all verbs are over = %v", err)
	}
}
