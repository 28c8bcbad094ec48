package filebackend

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

// A keyFile is the content of a key's file.
type keyFile struct {
	Key  string
	Boot string // the boot whose clock Base is for
	// what the calendar said when that clock was 0; fixed for as long as the file is there
	Base  time.Time
	By    map[string]string // by Claim.ID: the process that asked for it last
	Image record.Record
}

// How a file begins that this version understands. The checksum of the rest follows. The second
// format is that of a record with weights, which a version that does not know them must refuse: it
// would read it, and count each permit once.
const (
	format       = "holdfast file 1 "
	weightFormat = "holdfast file 2 "
)

// format is the one to write the record in.
func (r *keyFile) format() string {
	if r.Image.Weighted() {
		return weightFormat
	}
	return format
}

// maxFile is how many bytes a file may have: more than 100,000 waiters of one key take, and no more
// than a process can read.
const maxFile = 64 << 20

// checksum is that of a file's body, as its head has it.
func checksum(body []byte) string {
	// The library makes the table once.
	return fmt.Sprintf("%08x", crc32.Checksum(body, crc32.MakeTable(crc32.Castagnoli)))
}

// encode returns v as the content of a file.
func encode(format string, v any) ([]byte, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return append([]byte(format+checksum(body)+"\n"), body...), nil
}

// errStranger is of a file that has nothing to do with locks.
var errStranger = errors.New("not holdfast's")

// decode undoes encode. What it refuses is no lock of ours, or not one to rely on.
func decode(path string, content []byte, v any) error {
	bad := func(why string) error {
		return fmt.Errorf("%w: %s %s; it stays as it is until somebody deletes it, which "+
			"frees the lock", backend.ErrForeign, path, why)
	}
	head, body, whole := bytes.Cut(content, []byte{'\n'})
	sum, ours := strings.CutPrefix(string(head), format)
	if !ours {
		sum, ours = strings.CutPrefix(string(head), weightFormat)
	}
	switch {
	case !ours && bytes.HasPrefix(head, []byte("holdfast file ")):
		return bad(fmt.Sprintf("has a format that this version does not know (%.40q)", head))
	case len(content) == 0:
		return bad("is empty")
	case !ours:
		return fmt.Errorf("%w: %w", errStranger, bad("was not written by holdfast"))
	case !whole || sum != checksum(body):
		return bad("is torn or was changed: its checksum is wrong")
	}
	if err := json.Unmarshal(body, v); err != nil {
		return bad("cannot be read: " + err.Error())
	}
	return nil
}

// read decodes the file at path into v and returns its content, nil if there is no file.
func read(path string, v any) ([]byte, error) {
	file, err := openRegular(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case err != nil:
		return nil, notDone(err)
	}
	defer func() { _ = file.Close() }()
	content, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, notDone(err)
	case len(content) > maxFile:
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", backend.ErrForeign, path, maxFile)
	}
	return content, decode(path, content, v)
}

// openRegular opens a file for reading, and nothing but a regular file: what is in a folder that
// others may write to can be anything. Opening neither follows a symbolic link, which may lead to a
// device without an end, nor waits, as it would for the writer of a FIFO. Anything else is
// [backend.ErrForeign].
func openRegular(path string) (*os.File, error) {
	// safeguard: file-regular
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.ENXIO): // a link; a socket
		return nil, fmt.Errorf("%w: %s is no regular file", backend.ErrForeign, path)
	case err != nil:
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("%w: %s is no regular file", backend.ErrForeign, path)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return file, nil
}

var syncFile = (*os.File).Sync // a variable for tests

// replace puts content at path in one step. With lasting it is on the disk when that returns. An
// error before the rename is a no, and all behind it is the disk's: an unknown answer.
func (f *folder) replace(path string, content []byte, lasting bool) error {
	if len(content) > maxFile { // nobody would read it
		return notDone(fmt.Errorf("%s would be larger than %d bytes", path, maxFile))
	}
	var dir *os.File
	if lasting {
		var err error
		if dir, err = os.Open(filepath.Dir(path)); err != nil {
			return notDone(err)
		}
		defer func() { _ = dir.Close() }()
	}
	temp, err := f.create(filepath.Join(f.dir, tempPrefix+backend.NewOwner()))
	if err != nil {
		return notDone(err)
	}
	_, err = temp.Write(content)
	if err == nil && lasting { // safeguard: file-fsync
		err = syncFile(temp)
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		return notDone(err)
	}
	if !lasting {
		return nil
	}
	return syncFile(dir) // safeguard: file-fsync-folder
}

// create makes a file with the folder's permissions, whatever the umask is.
func (f *folder) create(path string) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, f.mode&0o600)
	if err == nil && f.mode&0o077 != 0 {
		if err = file.Chmod(f.mode & 0o666); err != nil {
			_ = file.Close()
			_ = os.Remove(path)
		}
	}
	return file, err
}

// notDone is an error before which nothing was changed, so it is a no.
func notDone(err error) error {
	switch {
	case errors.Is(err, backend.ErrForeign):
		return err
	case errors.Is(err, fs.ErrPermission):
		return fmt.Errorf("%w: %w", backend.ErrDenied, err)
	}
	return fmt.Errorf("%w: %w", backend.ErrNotServing, err)
}

// view makes of what is in rec the record as f's clock and processes have it now. A key that has no
// file is a rec with nothing but the key.
//
// Another boot's claims are over: whoever held or waited was a process of that boot. If one of them
// lives, the folder is shared by two machines, whose clocks say nothing about each other.
func (f *folder) view(rec *keyFile) (now time.Time, err error) {
	dead := map[string]bool{}
	for _, process := range rec.By {
		if _, known := dead[process]; !known && process != f.me {
			dead[process] = f.dead(process)
			if rec.Boot != f.boot && f.lives(process) { // safeguard: file-boot
				return now, fmt.Errorf("%w: another machine uses the folder %s", backend.ErrUnsafe,
					f.dir)
			}
		}
	}
	if rec.Boot != f.boot {
		rec.Boot, rec.Base, rec.By, rec.Image = f.boot, f.base, nil, rec.Image.Lasting()
		// If the calendar was set back, a mark would stand for that much longer. It was left by a
		// hold whose token was the clock's, so its length from now on is long enough.
		//nolint:gosec // a time
		back := time.UnixMicro(int64(rec.Image.Token)).Sub(rec.Base.Add(f.clock()))
		if back > 0 {
			rec.Image.Shift(-back) // safeguard: file-mark
		}
	}
	rec.Image.Over(func(id string) bool { return dead[rec.By[id]] })
	return rec.Base.Add(f.clock()), nil
}

// take drops what is over of the record. The claims of ids are this process's, if they are
// there. It reports whether the key may be forgotten: when nothing is left of it, and the clock has
// passed its last token, so that the first token of a new file is above it. (Within one boot:
// f.base is that of every file that is made in it.)
func (f *folder) take(rec *keyFile, now time.Time, ids []string) (forget bool) {
	empty := rec.Image.Trim(now)
	by := map[string]string{}
	keep := func(id string) {
		if by[id] = rec.By[id]; slices.Contains(ids, id) {
			by[id] = f.me
		}
	}
	for _, h := range rec.Image.Holds {
		keep(h.ID)
	}
	for _, p := range rec.Image.Queue {
		keep(p.Claim.ID())
	}
	rec.By = by
	return empty && rec.Image.Passed(f.base.Add(f.clock()))
}
