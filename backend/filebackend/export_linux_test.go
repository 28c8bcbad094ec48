package filebackend

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// OpenAlone opens dir as another process would: with nothing in common with this process's other
// clients but the files. It counts as alive until this process ends.
func OpenAlone(ctx context.Context, dir string) (backend.Backend, error) {
	f := &folder{dir: dir, clock: bootClock, claims: map[string]bool{"stay": true}, clients: 1}
	if err := f.open(ctx); err != nil {
		return nil, err
	}
	return &Backend{folder: f}, nil
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
	content, err := encode(v)
	if err == nil {
		err = os.WriteFile(path, content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
