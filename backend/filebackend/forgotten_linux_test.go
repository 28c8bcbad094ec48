package filebackend

import (
	"os"
	"path/filepath"
	"testing"
	"time"
)

// Whenever a key is forgotten, what its shard has noted for the clock of the next boot is above the
// key's last token. It is noted ahead, so that keys which are forgotten within a second have one
// note.
//
// covers: K1
func TestNoteIsAboveEveryForgottenToken(t *testing.T) {
	now := time.Duration(0)
	f := &folder{
		dir:   filepath.Join(t.TempDir(), "locks"),
		base:  time.Now().Round(0).Truncate(time.Microsecond), // tokens are microseconds
		clock: func() time.Duration { return now },
	}
	if err := f.prepare(); err != nil {
		t.Fatal(err)
	}
	s := &shard{folder: f, forgottenPath: filepath.Join(f.dir, forgottenDir, "00")}
	path := f.path(name("k"))
	var before os.FileInfo
	for _, of := range []struct {
		at    time.Duration // of the last token, which the clock has just passed
		noted bool
	}{
		{0, true},
		{forgottenAhead / 2, false},
		{forgottenAhead, false},
		{forgottenAhead + time.Microsecond, true}, // where the clock of the next boot would begin
		{time.Hour, true},
		{time.Hour + forgottenAhead, false},
		{24 * time.Hour, true},
	} {
		last := f.base.Add(of.at)
		now = of.at + time.Microsecond
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := s.forget(path, uint64(last.UnixMicro()), false); err != nil {
			t.Fatalf("forget after %v = %v", of.at, err)
		}
		if _, err := os.Lstat(path); !os.IsNotExist(err) {
			t.Errorf("after %v: the record of a key that was forgotten: %v", of.at, err)
		}
		if noted := s.lastForgotten(); !noted.After(last) {
			t.Errorf("after %v: a key was forgotten whose last token is of %v, and the next "+
				"boot begins at %v",
				of.at, last, noted)
		}
		after, err := os.Lstat(s.forgottenPath)
		if err != nil {
			t.Fatal(err)
		}
		if noted := before == nil || !os.SameFile(before, after); noted != of.noted {
			t.Errorf("after %v: a new note: %v, want %v", of.at, noted, of.noted)
		}
		before = after
	}
}
