package filebackend

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

// What is in a folder.
const (
	keysDir      = "keys"      // a record for each key, by the hash of the key
	locksDir     = "locks"     // empty files that are locked while a record changes; they stay
	processesDir = "processes" // an empty file for each process, which has it locked while it lives
	// Up to when the clock was when keys were forgotten, for each shard that has forgotten one.
	forgottenDir = "forgotten"
	clockName    = "clock"
	tempPrefix   = "temp-"
)

const (
	shards         = 64               // how many keys can change at once
	requestTimeout = 15 * time.Second // of a verb whose ctx has no earlier end
)

// A folder is what the clients of one process that opened the same folder have in common.
type folder struct {
	dir  string
	mode fs.FileMode // of its permissions, which its files get

	id    string    // of the clock file: another one after each boot
	boot  string    // this one
	base  time.Time // the calendar when boot's clock was 0, the same for every process
	clock func() time.Duration

	me      string   // this process's file in processesDir
	process *os.File // that file, locked
	shards  [shards]shard

	mu     sync.Mutex
	claims map[string]bool // keys in whose records this process may be named
	watch  *watcher        // nil before the first watch

	stop  context.CancelFunc // ends the cleaner
	tasks sync.WaitGroup

	clients int // with open folders' lock
}

// folders are those that are open, by their paths, and those that were closed while claims were
// left: their leases go on, as this process does, so its file stays locked.
var folders struct {
	sync.Mutex
	m map[string]*folder
}

// enter returns the process's folder at dir for one more client.
func enter(ctx context.Context, dir string) (*folder, error) {
	folders.Lock()
	defer folders.Unlock()
	f := folders.m[dir]
	if f == nil || f.clients == 0 {
		// A verb that was given up, or a list, may go on with what closed clients had.
		before := f
		f = &folder{dir: dir, clock: bootClock, claims: map[string]bool{}}
		switch {
		case before == nil:
		case sameFile(before.process, before.processPath(before.me)):
			// safeguard: file-opened-again
			f.me, f.process, f.claims = before.me, before.process, before.claims
		default: // somebody has removed the folder, and what was claimed in it
			_ = before.process.Close()
		}
		if err := f.open(ctx); err != nil {
			return nil, err
		}
	}
	if folders.m == nil {
		folders.m = map[string]*folder{}
	}
	folders.m[dir] = f
	f.clients++
	return f, nil
}

// leave is for each client's Close.
func (f *folder) leave() {
	folders.Lock()
	defer folders.Unlock()
	if f.clients--; f.clients > 0 {
		return
	}
	f.stop()
	f.tasks.Wait()
	if f.watch != nil {
		f.watch.close()
		f.watch = nil
	}
	for i := range f.shards {
		f.shards[i].close()
	}
	if len(f.claims) == 0 { // no record names us
		_ = os.Remove(f.processPath(f.me))
		_ = f.process.Close()
		if folders.m[f.dir] == f {
			delete(folders.m, f.dir)
		}
	}
}

// open makes or joins the folder.
func (f *folder) open(ctx context.Context) (err error) {
	if err := f.prepare(); err != nil {
		return err
	}
	for i := range f.shards {
		name := fmt.Sprintf("%02x", i)
		f.shards[i] = shard{
			folder: f, queue: make(chan struct{}, 1), turn: make(chan struct{}, 1),
			path:          filepath.Join(f.dir, locksDir, name),
			forgottenPath: filepath.Join(f.dir, forgottenDir, name),
		}
	}
	defer func() {
		if err != nil {
			for i := range f.shards {
				f.shards[i].close()
			}
		}
	}()
	if err := f.readClock(ctx); err != nil {
		return err
	}
	if f.process == nil {
		if err := f.appear(); err != nil {
			return err
		}
	}
	ctx, f.stop = context.WithCancel(context.Background())
	f.tasks.Go(func() { f.clean(ctx) })
	return nil
}

// prepare makes the folder, but not the one above it, and what belongs into it.
func (f *folder) prepare() error {
	if err := os.Mkdir(f.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return notDone(err)
	}
	info, err := os.Stat(f.dir)
	if err != nil {
		return notDone(err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%w: %s is no folder", backend.ErrForeign, f.dir)
	}
	f.mode = info.Mode().Perm()
	if err := local(f.dir); err != nil {
		return err
	}
	for _, name := range []string{keysDir, locksDir, processesDir, forgottenDir} {
		path := filepath.Join(f.dir, name)
		err := os.Mkdir(path, f.mode)
		if err == nil { // the umask may have taken something
			err = os.Chmod(path, info.Mode()&(fs.ModePerm|fs.ModeSetgid|fs.ModeSticky))
		}
		if errors.Is(err, fs.ErrExist) {
			err = isFolder(path)
		}
		if err != nil {
			return notDone(err)
		}
	}
	return nil
}

// isFolder refuses what is no folder, a symbolic link to one included.
func isFolder(path string) error {
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() {
		return fmt.Errorf("%w: %s is no folder", backend.ErrForeign, path)
	}
	return err
}

// A clock is the content of the clock file: which calendar time every process of a boot takes the
// start of its clock for.
type clock struct {
	ID   string
	Boot string
	Base time.Time
}

// readClock reads the clock file, or makes one for this boot.
func (f *folder) readClock(ctx context.Context) error {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return fmt.Errorf("%w: file:// needs to know which boot this is: %w", errors.ErrUnsupported,
			err)
	}
	f.boot = strings.TrimSpace(string(boot))
	path := filepath.Join(f.dir, clockName)
	unlock, err := f.shards[0].lock(ctx, false) // safeguard: file-one-clock
	if err != nil {
		return err
	}
	defer unlock()
	var c clock
	_, err = read(path, &c)
	if err != nil {
		return err
	}
	if c.Boot != f.boot {
		// Above the tokens of all keys that were forgotten, as the calendar may have been set back.
		base := time.Now().Round(0).Add(-f.clock())
		for i := range f.shards {
			if last := f.shards[i].lastForgotten(); base.Before(last) { // safeguard: file-calendar
				base = last
			}
		}
		c = clock{backend.NewOwner(), f.boot, base}
		content, err := encode(format, c)
		if err == nil {
			err = f.replace(path, content, true)
		}
		if err != nil {
			return err
		}
	}
	f.id, f.base = c.ID, c.Base
	return nil
}

// appear makes this process's file. It is locked before it has the name by which others find it, so
// whoever can lock it shared knows that the process has ended: the kernel gives up the lock when
// the last descriptor of this open file is closed, and no goroutine can run then. The name is
// random and nobody else's ever, so an ended process is not mistaken for a later one, as by its
// pid.
func (f *folder) appear() error {
	f.me = backend.NewOwner()
	temp, err := f.create(filepath.Join(f.dir, tempPrefix+f.me))
	if err != nil {
		return notDone(err)
	}
	err = unix.Flock(int(temp.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		err = os.Rename(temp.Name(), f.processPath(f.me))
	}
	if err != nil {
		_ = os.Remove(temp.Name())
		_ = temp.Close()
		return notDone(err)
	}
	f.process = temp
	return nil
}

func (f *folder) processPath(id string) string {
	return filepath.Join(f.dir, processesDir, filepath.Base(id))
}

// dead reports whether a process has certainly ended. One without a file may live: its claims end
// with their leases.
func (f *folder) dead(process string) bool {
	ended, err := f.probe(process)
	return err == nil && ended // safeguard: file-dead
}

// lives reports whether a process certainly lives.
func (f *folder) lives(process string) bool {
	ended, err := f.probe(process)
	return err == nil && !ended
}

// probe reports whether a process has ended. The shared lock that it takes for a moment is in
// nobody's way: an ended process's file is never locked exclusively again.
func (f *folder) probe(process string) (ended bool, err error) {
	file, err := openRegular(f.processPath(process))
	if err != nil {
		return false, err
	}
	defer func() { _ = file.Close() }()
	err = unix.Flock(int(file.Fd()), unix.LOCK_SH|unix.LOCK_NB) // safeguard: file-probe
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// name is that of a key's record.
func name(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// shardOf returns which shard a record belongs to.
func shardOf(name string) int {
	n, _ := strconv.ParseUint(name[:2], 16, 8) // hexadecimal by its making
	return int(n) % shards
}

func (f *folder) path(name string) string { return filepath.Join(f.dir, keysDir, name) }

// change makes one verb about key, in one step: verb changes the record of that key, and
// nobody else reads or writes the record between its reading and its replacement. ids are the
// claims that this process is heard of by this. With lasting, the change is on the disk afterwards;
// with urgent, it is made before others of this process that wait.
func (f *folder) change(ctx context.Context, key string, lasting, urgent bool, ids []string,
	verb func(*record.Record, time.Time),
) error {
	file := name(key)
	unlock, err := f.shards[shardOf(file)].lock(ctx, urgent)
	if err != nil {
		return err
	}
	defer unlock()
	rec := keyFile{Key: key, Boot: f.boot, Base: f.base}
	before, err := read(f.path(file), &rec)
	if err != nil {
		return err
	}
	if rec.Key != key {
		return fmt.Errorf("%w: %s is the file of another key", backend.ErrForeign, f.path(file))
	}
	now, err := f.view(&rec)
	if err != nil {
		return err
	}
	verb(&rec.Image, now)
	forget := f.take(&rec, now, ids)
	f.note(&rec)
	if forget {
		if before == nil {
			return nil
		}
		return f.shards[shardOf(file)].forget(f.path(file), rec.Image.Token, lasting)
	}
	after, err := encode(rec.format(), rec)
	if err != nil || bytes.Equal(after, before) {
		return err
	}
	return f.replace(f.path(file), after, lasting)
}

// note remembers whether rec names this process.
func (f *folder) note(rec *keyFile) {
	named := false
	for _, process := range rec.By {
		named = named || process == f.me
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if named {
		f.claims[rec.Key] = true
	} else {
		delete(f.claims, rec.Key)
	}
}

// look returns a record as it is now, without changing it. Files are replaced as a whole, so that
// needs no lock. There is none (nil) if there is no file.
func (f *folder) look(file string) (*keyFile, time.Time, error) {
	rec := &keyFile{}
	content, err := read(f.path(file), rec)
	if err != nil || content == nil {
		return nil, time.Time{}, err
	}
	now, err := f.view(rec)
	if err != nil {
		return nil, now, err
	}
	return rec, now, nil
}

// A shard is the right to change the records of some keys.
type shard struct {
	folder *folder
	// of the goroutines of this process that are not urgent: one of them waits for turn
	queue chan struct{}
	turn  chan struct{} // of the goroutines of this process
	path  string
	file  *os.File // with turn

	forgottenPath string
	forgotten     time.Time // what this process has written there; with turn
}

// lock waits for the shard: first among the goroutines of this process, then among processes, in
// the kernel's queue. Whoever is urgent has one that is not before it at most: the attempts of a
// thousand waiters take seconds, and a renewal has a sixth of its TTL. An error is a no.
func (s *shard) lock(ctx context.Context, urgent bool) (unlock func(), err error) {
	timeout := time.NewTimer(requestTimeout)
	defer timeout.Stop()
	enter := func(gate chan struct{}) error {
		select {
		case gate <- struct{}{}:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-timeout.C:
			return s.stuck()
		}
	}
	if !urgent { // safeguard: file-renewals-first
		if err := enter(s.queue); err != nil {
			return nil, err
		}
		defer func() { <-s.queue }()
	}
	if err := enter(s.turn); err != nil {
		return nil, err
	}
	locked, err := s.flock(unix.LOCK_NB)
	if err != nil {
		<-s.turn
		return nil, notDone(err)
	}
	if locked {
		return s.unlock, nil
	}
	// A blocking flock cannot be given up. A caller that waits no longer leaves it to
	// a goroutine, which keeps the turn: nobody else of this process could be quicker.
	done := make(chan error, 1)
	go func() {
		locked, err := false, error(nil)
		for !locked && err == nil {
			locked, err = s.flock(0)
		}
		done <- err
	}()
	select {
	case err = <-done:
		if err != nil {
			<-s.turn
			return nil, notDone(err)
		}
		return s.unlock, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-timeout.C:
		err = s.stuck()
	}
	go func() {
		if <-done == nil { // safeguard: file-given-up
			s.unlock()
		} else {
			<-s.turn
		}
	}()
	return nil, err
}

// forgottenAhead is how far ahead of the clock it is written what was forgotten, so that keys which
// come and go cost one more file a second.
const forgottenAhead = time.Second

// forget deletes the record of a key whose last token was token. The caller has the shard.
//
// Safety: nothing else remembers the token, and the first one of a new record is the clock's. In
// this boot the clock has passed it already, see take. The clock of the next boot begins with the
// calendar, which may have been set back (or begins in the past, on a machine without a battery):
// so it begins at what is written here, before the record goes, or later. What is written only
// rises, as it follows the clock and is written by one at a time.
func (s *shard) forget(path string, token uint64, lasting bool) error {
	//nolint:gosec // the clock has passed it
	last := time.UnixMicro(int64(token)) // safeguard: file-forgotten-again
	if !last.Before(s.forgotten) {
		ahead := s.folder.base.Add(s.folder.clock() + forgottenAhead)
		content, err := encode(format, ahead)
		if err == nil {
			err = s.folder.replace(s.forgottenPath, content, lasting) // safeguard: file-forgotten
		}
		if err != nil {
			return err
		}
		s.forgotten = ahead
	}
	if err := os.Remove(path); err != nil {
		return notDone(err)
	}
	return nil
}

// lastForgotten is when the clock had not passed the last token yet that forget has noted. A file
// that cannot be read, as after a power failure, says nothing.
func (s *shard) lastForgotten() (last time.Time) {
	if _, err := read(s.forgottenPath, &last); err != nil {
		return time.Time{}
	}
	return last
}

func (s *shard) stuck() error {
	return fmt.Errorf("%w: %s is locked by a process that does not go on", backend.ErrNotServing,
		s.path)
}

// unlock does not close the file, as a child that is being started may have the descriptor too, and
// with it the lock.
func (s *shard) unlock() {
	// safeguard: file-turn-last
	_ = unix.Flock(int(s.file.Fd()), unix.LOCK_UN)
	<-s.turn
}

// flock locks the file that has the shard's name. The lock of one that was deleted excludes nobody.
// False says that it is to be tried again.
func (s *shard) flock(how int) (locked bool, err error) {
	if s.file == nil {
		s.file, err = openRegular(s.path)
		if errors.Is(err, fs.ErrNotExist) {
			if err = s.create(); err == nil {
				s.file, err = openRegular(s.path)
			}
		}
		if err != nil {
			return false, err
		}
	}
	err = unix.Flock(int(s.file.Fd()), unix.LOCK_EX|how) // safeguard: file-lock
	switch {
	case err != nil && !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR):
		return false, err
	case sameFile(s.file, s.path):
		return err == nil, nil
	}
	err = s.file.Close()
	s.file = nil
	return false, err
}

// create makes the shard's file, which then has its permissions from the start.
func (s *shard) create() error {
	temp, err := s.folder.create(filepath.Join(s.folder.dir, tempPrefix+backend.NewOwner()))
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(temp.Name()) }()
	_ = temp.Close()
	if err := os.Link(temp.Name(), s.path); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// close closes the file. No verb is under way any more; one that was given up still has the turn,
// and the file goes with it.
func (s *shard) close() {
	select {
	case s.turn <- struct{}{}:
		if s.file != nil {
			_ = s.file.Close()
			s.file = nil
		}
		<-s.turn
	default:
	}
}

// sameFile reports whether file is still the one at path.
func sameFile(file *os.File, path string) bool {
	mine, err := file.Stat()
	if err != nil {
		return false
	}
	there, err := os.Lstat(path)
	return err == nil && os.SameFile(mine, there)
}
