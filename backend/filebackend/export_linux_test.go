package filebackend

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// OpenAlone opens dir as another process would: with nothing in common with this process's other
// clients but the files. It counts as alive until this process ends.
func OpenAlone(ctx context.Context, dir string) (*Backend, error) {
	f := &folder{dir: dir, clock: bootClock, claims: map[string]bool{"stay": true}, clients: 1}
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
		var rec record
		rewrite(t, path, &rec, func() { rec.Boot = "another" })
	}
	var c clock
	rewrite(t, filepath.Join(dir, clockName), &c, func() { c.Boot = "another" })
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

// Die is what the kernel does with a process's file when the process ends.
func (b *Backend) Die() { _ = b.folder.process.Close() }

// ProcessPath is where others look for the process.
func (b *Backend) ProcessPath() string { return b.folder.processPath(b.folder.me) }

var (
	BootClock    = bootClock
	RefuseShared = refuseShared
)
