package main

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// The folder of one's own is nobody else's, whoever was first to make it.
func TestClaimFolder(t *testing.T) {
	above, me := t.TempDir(), os.Geteuid()
	path := func(name string) string { return filepath.Join(above, name) }
	for range 2 { // made, and found
		if err := claimFolder(path("mine"), me); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(path("mine")); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("made with %v, %v", info.Mode(), err)
	}
	err := errors.Join(
		os.Mkdir(path("open"), 0o700), os.Chmod(path("open"), 0o770),
		os.Symlink(path("mine"), path("link")), os.WriteFile(path("file"), nil, 0o600))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		uid  int
		want error
	}{
		{"mine", me + 1, backend.ErrUnsafe},
		{"open", me, backend.ErrUnsafe},
		{"link", me, backend.ErrUnsafe},
		{"file", me, backend.ErrUnsafe},
		{"none/mine", me, backend.ErrUnavailable},
	} {
		if err := claimFolder(path(c.name), c.uid); !errors.Is(err, c.want) {
			t.Errorf("claimFolder(%s, %d) = %v, want %v", c.name, c.uid-me, err, c.want)
		}
	}
}

func TestFileURL(t *testing.T) {
	dir := "/tmp/a b?c%#"
	u, err := fileURL(dir)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := backend.ParseURL(u.Reveal()); err != nil || back.Path != dir {
		t.Errorf("%s is read as %q, %v", u.Reveal(), back.Path, err)
	}
}
