package filebackend

import (
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

// How often a process looks for files that nobody needs any more.
const cleanEvery = 10 * time.Minute

// clean deletes them until ctx is done.
func (f *folder) clean(ctx context.Context) {
	for ctx.Err() == nil {
		f.sweep(ctx)
		wait := time.NewTimer(cleanEvery)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
		}
	}
}

// sweep deletes the records of keys of which nothing is left for a while, temporary files of
// processes that were killed while they wrote them, and the files of processes that ended so long
// ago that no lease of theirs can be left: each process's is as old as its last sweep.
func (f *folder) sweep(ctx context.Context) {
	now := time.Now()
	touch(f.processPath(f.me))
	for file, err := range f.records() {
		if err != nil || ctx.Err() != nil {
			return
		}
		rec, at, err := f.look(file)
		if err != nil || rec == nil || !f.take(rec, at, nil) {
			continue
		}
		// This looks again, and forgets it. safeguard: file-sweep-again
		_ = f.change(ctx, rec.Key, false, false, nil, func(*record.Record, time.Time) {})
	}
	for process, err := range entries(filepath.Join(f.dir, processesDir)) {
		if err != nil || ctx.Err() != nil {
			return
		}
		// safeguard: file-sweep
		if older(f.processPath(process), now.Add(-backend.MaxTTL-time.Hour)) && f.dead(process) {
			_ = os.Remove(f.processPath(process))
		}
	}
	for file, err := range entries(f.dir) {
		if err != nil || ctx.Err() != nil {
			return
		}
		if path := filepath.Join(f.dir, file); strings.HasPrefix(file, tempPrefix) &&
			older(path, now.Add(-time.Hour)) {
			_ = os.Remove(path)
		}
	}
}

// touch has the file at path be as old as now. It does not follow a symbolic link, whose target may
// be anybody's.
func touch(path string) {
	now := unix.Timespec{Nsec: unix.UTIME_NOW}
	_ = unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{now, now}, unix.AT_SYMLINK_NOFOLLOW)
}

func older(path string, than time.Time) bool {
	info, err := os.Lstat(path)
	return err == nil && info.ModTime().Before(than)
}

// records are the names of all keys' files.
func (f *folder) records() iter.Seq2[string, error] {
	return entries(filepath.Join(f.dir, keysDir))
}

// entries are the names in a folder, read in parts, as there may be many.
func entries(dir string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		d, err := os.Open(dir)
		if err != nil {
			yield("", notDone(err))
			return
		}
		defer func() { _ = d.Close() }()
		for {
			names, err := d.Readdirnames(256)
			for _, name := range names {
				if !yield(name, nil) {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield("", notDone(err))
				return
			}
		}
	}
}
