package filebackend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// OpenAlone opens dir as another process would: with nothing in common with this process's other
// clients but the files. It counts as alive until this process ends.
func OpenAlone(ctx context.Context, dir string) (*Backend, error) {
	return openAlone(ctx, dir, bootClock)
}

// OpenBooted is [OpenAlone] on a machine that was booted so long ago.
func OpenBooted(ctx context.Context, dir string, ago time.Duration) (*Backend, error) {
	now := bootClock()
	return openAlone(ctx, dir, func() time.Duration { return bootClock() - now + ago })
}

func openAlone(ctx context.Context, dir string, clock func() time.Duration) (*Backend, error) {
	f := &folder{dir: dir, clock: clock, claims: map[string]bool{"stay": true}, clients: 1}
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	apart.Lock()
	defer apart.Unlock()
	apart.all = append(apart.all, f)
	return &Backend{folder: f}, nil
}

// apart keeps the files of processes open: the collector would close them.
var apart struct {
	sync.Mutex
	all []*folder
}

// RecordOf is the path of key's file in dir.
func RecordOf(dir, key string) string { return (&folder{dir: dir}).path(name(key)) }

// Reboot has every file in dir be of another boot.
func Reboot(t testing.TB, dir string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, keysDir, "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range files {
		var rec keyFile
		rewrite(t, path, &rec, func() { rec.Boot = "another" })
	}
	var c clock
	rewrite(t, filepath.Join(dir, clockName), &c, func() { c.Boot = "another" })
}

// CalendarAhead makes the clock that the calendar was so far ahead when the machine was booted.
func CalendarAhead(t testing.TB, dir string, ahead time.Duration) {
	t.Helper()
	var c clock
	rewrite(t, filepath.Join(dir, clockName), &c, func() { c.Base = c.Base.Add(ahead) })
}

func rewrite(t testing.TB, path string, v any, change func()) {
	t.Helper()
	if _, err := read(path, v); err != nil {
		t.Fatal(err)
	}
	change()
	content, err := encode(format, v)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// LockOf is the path of the file that is locked while key's record changes.
func LockOf(dir, key string) string {
	return filepath.Join(dir, locksDir, fmt.Sprintf("%02x", shardOf(name(key))))
}

// Die ends what the process does by itself, and does what the kernel does with its file then.
func (b *Backend) Die() {
	b.folder.stop()
	b.folder.tasks.Wait()
	_ = b.folder.process.Close()
}

// ProcessPath is where others look for the process.
func (b *Backend) ProcessPath() string { return b.folder.processPath(b.folder.me) }

var (
	BootClock    = bootClock
	RefuseShared = refuseShared
)

// MaxFile is how many bytes a file may have.
const MaxFile = maxFile

// RefuseTimeNamespace is the check of a process's clock.
var RefuseTimeNamespace = refuseTimeNamespace

// Synced has each file and folder that is written to the disk told to f, until the test ends.
func Synced(t testing.TB, f func(path string)) {
	Syncing(t, func(path string) error {
		f(path)
		return nil
	})
}

// Syncing has each file and folder that is to be written to the disk told to f, whose error is that
// of the disk, until the test ends.
func Syncing(t testing.TB, f func(path string) error) {
	was := syncFile
	t.Cleanup(func() { syncFile = was })
	syncFile = func(file *os.File) error {
		if err := f(file.Name()); err != nil {
			return err
		}
		return was(file)
	}
}
