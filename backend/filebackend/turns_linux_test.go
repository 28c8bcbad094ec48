package filebackend

import (
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

// Who gives the turn on has unlocked the file before: as the goroutines of a process have one lock
// there, an unlock that came later would be that of the next one's.
func TestTurnIsGivenOnUnlocked(t *testing.T) {
	path := filepath.Join(t.TempDir(), "shard")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		process := func() *shard {
			return &shard{queue: make(chan struct{}, 1), turn: make(chan struct{}, 1), path: path}
		}
		a, b := process(), process()
		defer a.close()
		defer b.close()
		unlock, err := a.lock(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		<-a.turn // with which unlock waits for the turn that it gives on
		done := make(chan struct{})
		go func() {
			unlock()
			close(done)
		}()
		synctest.Wait()
		select {
		case <-done:
			t.Fatal("the turn was not given on")
		default:
		}
		locked, err := b.flock(unix.LOCK_NB)
		if err != nil || !locked {
			t.Errorf("flock of another process when the turn is given on = %v, %v", locked, err)
		}
		a.turn <- struct{}{}
		<-done
		if locked, err := a.flock(unix.LOCK_NB); err != nil || locked {
			t.Errorf("flock of what another process has = %v, %v, want a no", locked, err)
		}
	})
}

// Processes that open a new folder at once, or the first after a boot, have one clock: who comes
// when another has found none, and has not written its own yet, waits for that.
func TestOneClock(t *testing.T) {
	for when, before := range map[string]*clock{
		"in a new folder": nil,
		"after a boot":    {ID: "old", Boot: "another", Base: time.Now()},
	} {
		t.Run(when, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "locks")
			process := func(now func() time.Duration) *folder {
				t.Helper()
				f := &folder{dir: dir, clock: now}
				if err := f.prepare(); err != nil {
					t.Fatal(err)
				}
				for i := range f.shards {
					s := &f.shards[i]
					s.folder, s.path = f, filepath.Join(dir, locksDir, "00")
					s.queue, s.turn = make(chan struct{}, 1), make(chan struct{}, 1)
					s.forgottenPath = filepath.Join(dir, forgottenDir, "00")
				}
				t.Cleanup(f.shards[0].close)
				return f
			}
			asked, write := make(chan struct{}), make(chan struct{})
			a := process(func() time.Duration { // asked between the reading and the writing
				close(asked)
				<-write
				return bootClock()
			})
			b := process(func() time.Duration { return bootClock() - time.Hour })
			if before != nil {
				content, err := encode(format, before)
				if err == nil {
					err = os.WriteFile(filepath.Join(dir, clockName), content, 0o600)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			opened := func(f *folder) <-chan error {
				done := make(chan error, 1)
				go func() { done <- f.readClock(t.Context()) }()
				return done
			}
			first := opened(a)
			select {
			case <-asked:
			case err := <-first:
				t.Fatalf("open = %v, before it has made a clock", err)
			}
			second := opened(b)
			// Until it is at the file's lock, or past it.
			for len(b.shards[0].turn) == 0 && len(second) == 0 {
				time.Sleep(time.Millisecond)
			}
			close(write)
			for _, done := range []<-chan error{first, second} {
				if err := <-done; err != nil {
					t.Fatalf("open = %v", err)
				}
			}
			if a.id != b.id || !a.base.Equal(b.base) {
				t.Errorf("two clocks in one folder: %s from %v, and %s from %v", a.id, a.base, b.id,
					b.base)
			}
		})
	}
}
