package filebackend_test

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/filebackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

func claim(key string) backend.Claim {
	return backend.Claim{Key: key, Owner: backend.NewOwner(), TTL: time.Hour, NoneInFlight: true}
}

// alone opens dir as a process of its own.
func alone(t *testing.T, dir string) *filebackend.Backend {
	t.Helper()
	b, err := filebackend.OpenAlone(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	return b
}

func acquire(t *testing.T, b backend.Backend, c backend.Claim) backend.Grant {
	t.Helper()
	g, err := b.TryAcquire(t.Context(), c)
	if err != nil {
		t.Fatalf("TryAcquire = %v", err)
	}
	return g
}

// held must refuse c because another holds.
func held(t *testing.T, b backend.Backend, c backend.Claim) (position int) {
	t.Helper()
	_, err := b.TryAcquire(t.Context(), c)
	var held *backend.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("TryAcquire = %v, want that it is held", err)
	}
	return held.Position
}

// left are the names of the files in dir.
func left(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

func TestRefusedURLs(t *testing.T) {
	for _, url := range []string{
		"file://", "file://host/x", "file://x", "file:///x?fsync=1", "file:///x?sync=true",
		"file:///x#y", "file://u:p@/x", "file:///a%00b",
	} {
		if _, err := backend.Open(t.Context(), url); !errors.Is(err, backend.ErrInvalid) {
			t.Errorf("Open(%s) = %v, want ErrInvalid", url, err)
		}
	}
	const unknown = `"sync": is not a known query parameter (known: fsync)`
	if _, err := backend.Open(t.Context(), "file:///x?sync=true&fsync=true"); err == nil ||
		!strings.HasSuffix(err.Error(), unknown) {
		t.Errorf("Open = %v, want %s", err, unknown)
	}
	parent := t.TempDir()
	if err := os.WriteFile(filepath.Join(parent, "file"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{
		filepath.Join(parent, "none", "x"): backend.ErrUnavailable,
		filepath.Join(parent, "file"):      backend.ErrForeign,
		"/proc/holdfast":                   backend.ErrUnavailable,
	} {
		if _, err := backend.Open(t.Context(), "file://"+path); !errors.Is(err, want) ||
			!strings.Contains(err.Error(), path) {
			t.Errorf("Open(%s) = %v, want %v", path, err, want)
		}
	}
	if names := left(t, parent); len(names) != 1 {
		t.Errorf("refused URLs have left %q", names)
	}
}

// Whoever may write to the folder can put anything where a record, a lock file or a process's file
// is looked for. It is refused at once, whatever it is, and Close does not wait for it.
func TestNoRegularFile(t *testing.T) {
	elsewhere := folder(t)
	other := open(t, elsewhere)
	defer other.Close()
	acquire(t, other, claim("k"))
	for what, put := range map[string]func(path string) error{
		"a link to a device without end": func(path string) error {
			return os.Symlink("/dev/zero", path)
		},
		"a link to a record": func(path string) error {
			return os.Symlink(filebackend.RecordOf(elsewhere, "k"), path)
		},
		"a FIFO without a writer": func(path string) error { return unix.Mkfifo(path, 0o600) },
		"a folder":                func(path string) error { return os.Mkdir(path, 0o700) },
		"a socket": func(path string) error {
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			defer func() { _ = unix.Close(fd) }()
			link := filepath.Join(t.TempDir(), "f") // a socket's path is 107 bytes at most
			if err := os.Symlink(filepath.Dir(path), link); err != nil {
				return err
			}
			return unix.Bind(fd, &unix.SockaddrUnix{Name: filepath.Join(link, filepath.Base(path))})
		},
		"too large": func(path string) error {
			if err := os.WriteFile(path, nil, 0o600); err != nil {
				return err
			}
			return os.Truncate(path, filebackend.MaxFile+1)
		},
	} {
		for where, of := range map[string]func(dir,
			key string) string{"record": filebackend.RecordOf, "lock": filebackend.LockOf} {
			if what == "too large" && where == "lock" {
				continue // nobody reads it
			}
			t.Run(where+"/"+what, func(t *testing.T) {
				dir := folder(t)
				b := open(t, dir)
				defer b.Close()
				path := of(dir, "k")
				if err := put(path); err != nil {
					t.Fatal(err)
				}
				stop := writeEach(t, path, 3*time.Second)
				defer stop()
				c := claim("k")
				_, err := b.TryAcquire(t.Context(), c)
				verbs := map[string]error{
					"TryAcquire": err, "Renew": b.Renew(t.Context(), c),
					"Release": storetest.Release(t.Context(), b, c),
				}
				if where == "record" {
					_, verbs["Inspect"] = b.Inspect(t.Context(), "k")
				}
				for verb, err := range verbs {
					if !errors.Is(err, backend.ErrForeign) || !strings.Contains(err.Error(), path) {
						t.Errorf("%s = %v, want ErrForeign with the path", verb, err)
					}
					if what == "too large" && !strings.Contains(err.Error(), "larger than") {
						t.Errorf("%s = %v, which does not say how large a file may be", verb, err)
					}
				}
			})
		}
	}
}

// writeEach opens a FIFO at path for writing, again and again, so that a reader that waits for it
// fails the test instead of hanging it.
func writeEach(t *testing.T, path string, pause time.Duration) (stop func()) {
	t.Helper()
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-done:
				return
			case <-time.After(pause):
			}
			if info, err := os.Lstat(path); err != nil || info.Mode()&fs.ModeNamedPipe == 0 {
				continue // anything else opens for writing without a reader
			}
			if fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NONBLOCK|unix.O_CLOEXEC,
				0); err == nil {
				_ = unix.Close(fd)
				t.Errorf("a verb waits for the writer of %s", path)
			}
		}
	}()
	return func() { close(done); <-ended }
}

// A process's file that is none says nothing about the process: its claims last.
func TestProcessFileReplaced(t *testing.T) {
	dir := folder(t)
	a, b := open(t, dir), alone(t, dir)
	defer a.Close()
	acquire(t, b, claim("k"))
	path := b.ProcessPath()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(path, 0o600); err != nil {
		t.Fatal(err)
	}
	held(t, a, claim("k"))
}

// One folder is one store however its path is written.
func TestOneFolder(t *testing.T) {
	dir, link := folder(t), filepath.Join(t.TempDir(), "link")
	a := open(t, dir)
	defer a.Close()
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	b := open(t, link+"/.//")
	defer b.Close()
	mine, err := a.Identity(t.Context())
	if other, err2 := b.Identity(t.Context()); err != nil || err2 != nil || mine != other {
		t.Errorf("Identity = %q, %v and %q, %v", mine, err, other, err2)
	}
	acquire(t, a, claim("k"))
	held(t, b, claim("k"))
}

func TestFsync(t *testing.T) {
	dir := folder(t)
	b := open(t, dir+"?fsync=true")
	defer b.Close()
	c := claim("k")
	var synced []string
	filebackend.Synced(t, func(path string) { synced = append(synced, path) })
	acquire(t, b, c)
	keys := filepath.Dir(filebackend.RecordOf(dir, "k"))
	// The new record, before it has its name, and then that.
	if len(synced) != 2 || filepath.Dir(synced[0]) != dir || synced[1] != keys {
		t.Errorf("a grant is written to the disk by %q, want a file of %s and then %s", synced, dir,
			keys)
	}
	leaves := claim("k")
	leaves.NoneInFlight = false
	synced = nil
	if _, err := b.ReleaseAll(t.Context(), []backend.Claim{leaves, claim("k")}); err != nil ||
		len(synced) != 2 {
		t.Errorf("tombstones of claims that are released together are written to the "+
			"disk by %q, %v", synced, err)
	}
	c.Save = []byte("state")
	if _, err := b.Release(t.Context(), c); err != nil {
		t.Error(err)
	}
	if state, err := b.Saved(t.Context(), "k"); string(state) != "state" || err != nil {
		t.Errorf("Saved = %q, %v", state, err)
	}
}

// What a disk refuses before a record has its name is a no; behind that the grant may outlast a
// power failure or not, so it is unknown.
func TestFsyncFails(t *testing.T) {
	dir := folder(t)
	b := open(t, dir+"?fsync=true")
	defer b.Close()
	acquire(t, b, claim("k")) // the folder of the records is there
	keys := filepath.Dir(filebackend.RecordOf(dir, "k"))
	for name, fails := range map[string]struct {
		folder bool
		want   backend.Answer
	}{"the record": {false, backend.No}, "its name": {true, backend.Unknown}} {
		t.Run(name, func(t *testing.T) {
			filebackend.Syncing(t, func(path string) error {
				if (path == keys) == fails.folder {
					return unix.EIO
				}
				return nil
			})
			key := "of " + name
			_, err := b.TryAcquire(t.Context(), claim(key))
			if got := backend.AnswerOf(err); got != fails.want || !errors.Is(err, unix.EIO) {
				t.Errorf("TryAcquire = %v, which is %v; want %v for EIO", err, got, fails.want)
			}
			_, err = os.Stat(filebackend.RecordOf(dir, key))
			if there := err == nil; there != fails.folder {
				t.Errorf("the record is there: %v (%v)", there, err)
			}
		})
	}
}

// What is noted of a key's last token is on the disk before its record goes, which has it until
// then.
//
// covers: K1
func TestForgottenIsOnTheDiskFirst(t *testing.T) {
	dir := folder(t)
	b := open(t, dir+"?fsync=true")
	defer b.Close()
	c := claim("k")
	acquire(t, b, c)
	record := filebackend.RecordOf(dir, "k")
	var fails error
	synced := 0
	filebackend.Syncing(t, func(path string) error {
		if _, err := os.Stat(record); err != nil {
			t.Errorf("the record has gone before %s is on the disk: %v", path, err)
		}
		synced++
		return fails
	})
	fails = unix.EIO
	if _, err := b.Release(t.Context(), c); backend.AnswerOf(err) != backend.No {
		t.Errorf("Release when nothing can be noted = %v, want a no", err)
	}
	held(t, b, claim("k"))
	synced, fails = 0, nil
	if _, err := b.Release(t.Context(), c); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(record); !errors.Is(err, fs.ErrNotExist) || synced != 2 {
		t.Errorf("the record is there still (%v), and %d of a file and its folder are on the disk",
			err, synced)
	}
}

// What cannot be read is no free lock, and stays as it is.
func TestTorn(t *testing.T) {
	dir := folder(t)
	b := open(t, dir)
	defer b.Close()
	c := claim("k")
	acquire(t, b, c)
	path := filebackend.RecordOf(dir, "k")
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for what, content := range map[string]string{
		"empty":       "",
		"torn":        string(whole[:len(whole)-10]),
		"a torn head": string(whole[:17]),
		"changed":     strings.Replace(string(whole), `"Key":"k"`, `"Key":"j"`, 1),
		"newer":       strings.Replace(string(whole), "file 1", "file 3", 1),
		"zeros":       strings.Repeat("\x00", len(whole)),
		"foreign":     "#!/bin/sh\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		other := claim("k")
		_, acquired := b.TryAcquire(t.Context(), other)
		_, inspected := b.Inspect(t.Context(), "k")
		for verb, err := range map[string]error{
			"TryAcquire": acquired, "Inspect": inspected, "Renew": b.Renew(t.Context(), c),
			"Release": storetest.Release(t.Context(), b, c),
		} {
			if !errors.Is(err, backend.ErrForeign) || !strings.Contains(err.Error(), path) {
				t.Errorf("%s with a file that is %s = %v, want ErrForeign with its path", verb,
					what, err)
			}
		}
		var listed error
		for _, err := range b.List(t.Context(), "") {
			listed = cmp.Or(err, listed)
		}
		if (listed == nil) != (what == "foreign" || what == "zeros") { // may it be a lock?
			t.Errorf("List with a file that is %s ends with %v", what, listed)
		}
		if after, err := os.ReadFile(path); err != nil || string(after) != content {
			t.Errorf("a file that is %s was changed to %q, %v", what, after, err)
		}
	}
	other := filebackend.RecordOf(dir, "other")
	if err := os.WriteFile(other, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.TryAcquire(t.Context(), claim("other")); !errors.Is(err, backend.ErrForeign) {
		t.Errorf("TryAcquire with another key's file = %v", err)
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Release(t.Context(), c); err != nil {
		t.Errorf("Release with the file as it was = %v", err)
	}
}

// A record with a weight is of another format, which versions refuse that would count the permit
// once; and any other is of the format that they know.
//
// covers: R23
func TestWeightFormat(t *testing.T) {
	dir := folder(t)
	b, another := open(t, dir), open(t, dir)
	defer b.Close()
	defer another.Close()
	permit := func(weight int, queue bool) backend.Claim {
		c := claim("k")
		c.Mode, c.Limit, c.Weight = backend.Permit, 3, weight
		if queue {
			c.Queue, c.WaiterTTL = true, c.TTL
		}
		return c
	}
	written := func(when, format string, weights bool) {
		t.Helper()
		content, err := os.ReadFile(filebackend.RecordOf(dir, "k"))
		if err != nil || !strings.HasPrefix(string(content), "holdfast file "+format+" ") {
			t.Errorf("%s: %.20q, %v, want format %s", when, content, err, format)
		}
		if got := strings.Contains(string(content), `"Weight"`); got != weights {
			t.Errorf("%s: the record names weights: %v, want %v", when, got, weights)
		}
	}
	light, waits, heavy := permit(0, false), permit(3, true), permit(2, false)
	acquire(t, b, light)
	written("one light permit", "1", false)
	if _, err := b.TryAcquire(t.Context(), waits); !errors.Is(err, backend.ErrHeld) {
		t.Errorf("TryAcquire of all permits = %v", err)
	}
	written("a heavy one waits", "2", true)
	if _, err := b.Release(t.Context(), waits); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Release of a claim that waits = %v", err)
	}
	written("it has left", "1", false)
	acquire(t, b, heavy)
	written("a heavy one holds", "2", true)
	if _, err := another.TryAcquire(t.Context(), permit(1, false)); !errors.Is(err,
		backend.ErrHeld) {
		t.Errorf("TryAcquire by another client = %v", err)
	}
	if _, err := b.Release(t.Context(), heavy); err != nil {
		t.Errorf("Release = %v", err)
	}
	written("it was released", "1", false)
	if _, err := b.Release(t.Context(), light); err != nil {
		t.Errorf("Release = %v", err)
	}
}

// Of a key that is free nothing is left, and tokens rise all the same.
func TestNothingLeft(t *testing.T) {
	dir := folder(t)
	b := open(t, dir)
	last := uint64(0)
	for range 20 {
		c := claim("k")
		c.Reserve = 2
		g := acquire(t, b, c)
		if g.Token <= last {
			t.Errorf("token %d after %d", g.Token, last)
		}
		last = g.Token + uint64(g.Reserved) - 1
		if _, err := b.Release(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.Inspect(t.Context(), "never"); err != nil {
		t.Error(err)
	}
	if names := left(t, filepath.Join(dir, "keys")); len(names) > 0 {
		t.Errorf("files of free keys are left: %q", names)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	for _, sub := range []string{"processes", "keys"} {
		if names := left(t, filepath.Join(dir, sub)); len(names) > 0 {
			t.Errorf("left in %s: %q", sub, names)
		}
	}
}

// A process that ended holds nothing and stands nowhere.
//
// covers: W5, W9
func TestDead(t *testing.T) {
	dir := folder(t)
	holder, first, second := alone(t, dir), alone(t, dir), alone(t, dir)
	one, two := claim("k"), claim("k")
	one.Queue, one.WaiterTTL = true, time.Hour
	two.Queue, two.WaiterTTL = true, time.Hour
	acquire(t, holder, claim("k"))
	if p := held(t, first, one); p != 1 {
		t.Errorf("position %d", p)
	}
	wake, err := second.Watch(t.Context(), two)
	if err != nil {
		t.Fatal(err)
	}
	if p := held(t, second, two); p != 2 {
		t.Errorf("position %d", p)
	}
	first.Die()
	<-wake
	if p := held(t, second, two); p != 1 {
		t.Errorf("position %d behind one who died", p)
	}
	holder.Die()
	<-wake
	acquire(t, second, two)
	state, err := second.Inspect(t.Context(), "k")
	if err != nil || len(state.Holders) != 1 || state.Holders[0].Owner != two.Owner ||
		len(state.Waiters) != 0 {
		t.Errorf("Inspect = %+v, %v", state, err)
	}
}

// Of two processes that look at once whether a third has ended, neither takes the other for it.
//
// covers: W5
func TestTwoThatLookForAProcessThatEnded(t *testing.T) {
	dir := folder(t)
	holder, waiter, other := alone(t, dir), alone(t, dir), alone(t, dir)
	acquire(t, holder, claim("k"))
	head := claim("k")
	head.Queue, head.WaiterTTL = true, time.Hour
	held(t, waiter, head)
	for _, process := range []*filebackend.Backend{holder, waiter} {
		process.Die()
		looking, err := os.Open(process.ProcessPath()) // as one that is at it is for a moment
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = looking.Close() })
		err = syscall.Flock(int(looking.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
		if err != nil {
			t.Fatal(err)
		}
	}
	acquire(t, other, claim("k"))
}

// The hold of a process that ended stays for its lease if a child of it has inherited the process's
// file, if nobody can know that it ended, and if another process has vouched for it since.
func TestNotDead(t *testing.T) {
	dir := folder(t)
	holder, other := alone(t, dir), alone(t, dir)
	acquire(t, holder, claim("inherited"))
	fd, err := syscall.Dup(int(holder.Process().Fd()))
	if err != nil {
		t.Fatal(err)
	}
	holder.Die()
	held(t, other, claim("inherited"))
	if err := syscall.Close(fd); err != nil {
		t.Fatal(err)
	}
	acquire(t, other, claim("inherited"))

	unknown := alone(t, dir)
	acquire(t, unknown, claim("unknown"))
	if err := os.Remove(unknown.ProcessPath()); err != nil {
		t.Fatal(err)
	}
	unknown.Die()
	held(t, other, claim("unknown"))

	first := alone(t, dir)
	c := claim("vouched")
	acquire(t, first, c)
	if err := other.Renew(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	first.Die()
	held(t, other, claim("vouched"))
}

// After a reboot nobody holds, and what outlives holds is there.
//
// covers: K1
func TestReboot(t *testing.T) {
	dir := folder(t)
	b := alone(t, dir)
	id, err := b.Identity(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	c := claim("k")
	c.MinToken = uint64(time.Now().Add(time.Minute).UnixMicro())
	g := acquire(t, b, c)
	once := claim("once")
	acquire(t, b, once)
	once.NotBefore = 24 * time.Hour
	if _, err := b.Release(t.Context(), once); err != nil {
		t.Fatal(err)
	}
	c.Save = []byte("state")
	if err := b.Renew(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	filebackend.Reboot(t, dir)

	// Somebody who lives and whose boot is another is on another machine.
	foreign := alone(t, dir)
	if _, err := foreign.TryAcquire(t.Context(), claim("k")); !errors.Is(err, backend.ErrUnsafe) {
		t.Errorf("TryAcquire beside a process of another boot = %v, want ErrUnsafe", err)
	}
	b.Die()

	after := alone(t, dir)
	if now, err := after.Identity(t.Context()); err != nil || now == id {
		t.Errorf("Identity = %q, %v; it was %q before the boot", now, err, id)
	}
	if err := after.Renew(t.Context(), c); !errors.Is(err, backend.ErrLost) {
		t.Errorf("Renew of a hold of another boot = %v", err)
	}
	next := claim("k")
	next.Load = true
	if n := acquire(t, after, next); n.Token <= g.Token || string(n.State) != "state" {
		t.Errorf("after a boot: token %d after %d, state %q", n.Token, g.Token, n.State)
	}
	early := claim("once")
	early.NotBefore = 24 * time.Hour
	var e *backend.EarlyError
	if _, err := after.TryAcquire(t.Context(), early); !errors.As(err, &e) ||
		e.RetryAfter < 23*time.Hour {
		t.Errorf("TryAcquire before the mark = %v, want to be refused for a day", err)
	}
}

// The calendar is set back while the machine is booted anew: tokens go on rising all the same, also
// those of keys of which nothing is left.
// covers: K1
func TestRebootWithTheCalendarSetBack(t *testing.T) {
	const day = 24 * time.Hour
	dir := folder(t)
	booted := func(ago time.Duration) *filebackend.Backend {
		b, err := filebackend.OpenBooted(t.Context(), dir, ago)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	last := map[string]uint64{}
	next := func(b *filebackend.Backend, key string) backend.Claim {
		c := claim(key)
		g := acquire(t, b, c)
		if g.Token <= last[key] {
			t.Errorf("%s: token %d after %d", key, g.Token, last[key])
		}
		last[key] = g.Token
		return c
	}
	reboot := func(b *filebackend.Backend) {
		b.Die() // first: what the process swept afterwards would be swept by a dead one
		filebackend.Reboot(t, dir)
	}

	booted(10 * day).Die()
	filebackend.CalendarAhead(t, dir, 5*day)
	first := booted(10 * day)
	if _, err := first.Release(t.Context(), next(first, "free")); err != nil {
		t.Fatal(err)
	}
	next(first, "held")
	reboot(first)

	second := booted(time.Minute) // which forgets nothing
	next(second, "held")
	reboot(second)

	third := booted(time.Minute)
	next(third, "held")
	next(third, "free")
}

// A mark that was left before the calendar was set back at a reboot ends no later than after its
// length, counted from then.
func TestMarkAfterTheCalendarWasSetBack(t *testing.T) {
	const day, period = 24 * time.Hour, time.Hour
	dir := folder(t)
	booted := func(ago time.Duration) *filebackend.Backend {
		b, err := filebackend.OpenBooted(t.Context(), dir, ago)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b
	}
	booted(10 * day).Die()
	filebackend.CalendarAhead(t, dir, 5*day)
	first := booted(10 * day)
	job := claim("k")
	acquire(t, first, job)
	job.NotBefore = period
	if _, err := first.Release(t.Context(), job); err != nil {
		t.Fatal(err)
	}
	first.Die()
	filebackend.Reboot(t, dir)

	second := booted(time.Minute)
	var early *backend.EarlyError
	for range 2 { // the second by what the first has written
		again := claim("k")
		again.NotBefore = period
		_, err := second.TryAcquire(t.Context(), again)
		if !errors.As(err, &early) || early.RetryAfter > period+time.Minute ||
			early.RetryAfter < period-time.Minute {
			t.Errorf("a job after the calendar was set back by days = %v, want that "+
				"it waits for %v", err, period)
		}
	}
}

// A process that is stopped in the middle of a verb keeps others from it, who are told so in time.
func TestStuck(t *testing.T) {
	t.Parallel()
	dir := folder(t)
	b := open(t, dir)
	defer b.Close()
	c := claim("k")
	acquire(t, b, c)
	stuck, err := os.Open(filebackend.LockOf(dir, "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if err := syscall.Flock(int(stuck.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	err = b.Renew(t.Context(), c)
	if !errors.Is(err, backend.ErrUnavailable) || backend.AnswerOf(err) != backend.No {
		t.Errorf("Renew while another process is in the middle of a verb = %v", err)
	}
	if _, err := b.Inspect(t.Context(), "k"); err != nil {
		t.Errorf("Inspect, which changes nothing = %v", err)
	}
	if err := stuck.Close(); err != nil {
		t.Fatal(err)
	}
	if err := b.Renew(t.Context(), c); err != nil {
		t.Errorf("Renew afterwards = %v", err)
	}
	// A lock on a file that was deleted is nobody's.
	if stuck, err = os.Open(filebackend.LockOf(dir, "k")); err != nil {
		t.Fatal(err)
	}
	defer stuck.Close()
	if err := errors.Join(os.Remove(filebackend.LockOf(dir, "k")),
		syscall.Flock(int(stuck.Fd()), syscall.LOCK_EX)); err != nil {
		t.Fatal(err)
	}
	other := alone(t, dir)
	held(t, other, claim("k"))
	excluded, err := os.Open(filebackend.LockOf(dir, "k"))
	if err != nil {
		t.Fatal(err)
	}
	defer excluded.Close()
	if err := syscall.Flock(int(excluded.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- b.Renew(t.Context(), c) }()
	select {
	case err := <-done:
		t.Errorf("Renew has not noticed that its lock file was replaced: %v", err)
	case <-time.After(50 * time.Millisecond):
		if err := excluded.Close(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// The files of others who share the folder are theirs, too.
func TestPermissions(t *testing.T) {
	dir := folder(t)
	if err := errors.Join(os.Mkdir(dir, 0o700), os.Chmod(dir, 0o770)); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	defer b.Close()
	acquire(t, b, claim("k"))
	err := filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		want := os.FileMode(0o660)
		if d.IsDir() {
			want = 0o770
		}
		if err == nil && info.Mode().Perm() != want {
			t.Errorf("%s has permissions %v, want %v", path, info.Mode().Perm(), want)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// What was left by those who died is deleted when nobody can need it, also to be told that their
// leases ran out.
func TestSweep(t *testing.T) {
	dir, last := folder(t), map[string]uint64{}
	old := time.Now().Add(-48 * time.Hour)
	// swept returns when the backend has swept, which it does as soon as it is open, and begins
	// with the records and ends with temporary files.
	sweptBy := func(open func() *filebackend.Backend) *filebackend.Backend {
		t.Helper()
		last := filepath.Join(dir, "temp-last")
		if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(last, nil, 0o600),
			os.Chtimes(last, old, old)); err != nil {
			t.Fatal(err)
		}
		b := open()
		storetest.Eventually(t, "sweep", func() error {
			// last and old, in any order.
			left, err := filepath.Glob(filepath.Join(dir, "temp-[lo]*"))
			if len(left) > 0 {
				return errors.New("not yet")
			}
			return err
		})
		return b
	}
	swept := func() *filebackend.Backend {
		t.Helper()
		return sweptBy(func() *filebackend.Backend { return alone(t, dir) })
	}
	owner := swept()
	acquire(t, owner, claim("mine"))
	// holds has a process hold keys for a second, so long ago, and die if it is to.
	holds := func(ago time.Duration, dies bool, keys ...string) (b *filebackend.Backend) {
		t.Helper()
		// Before another one sweeps, who would be taken for it.
		b = sweptBy(func() *filebackend.Backend {
			b, err := filebackend.OpenBooted(t.Context(), dir, filebackend.BootClock()-ago)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = b.Close() })
			return b
		})
		for _, key := range keys {
			c := claim(key)
			c.TTL = time.Second
			last[key] = acquire(t, b, c).Token
		}
		if dies {
			b.Die()
		}
		return b
	}
	b := holds(2*time.Minute, true, "dead", "held")
	holds(2*time.Minute, false, "lost")
	lately := holds(30*time.Second, true, "dead lately")
	stopped := holds(30*time.Second, false, "lost lately")
	late := claim("asks late")
	late.TTL = time.Second
	last[late.Key] = acquire(t, stopped, late).Token
	renewed := owner.Renew(t.Context(), late)
	_, released := owner.Release(t.Context(), late)
	if !errors.Is(renewed, backend.ErrLost) || !errors.Is(released, backend.ErrLost) {
		t.Fatal(renewed, released)
	}
	temp, fresh := filepath.Join(dir, "temp-old"), filepath.Join(dir, "temp-new")
	for _, path := range []string{temp, fresh} {
		if err := os.WriteFile(path, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chtimes(temp, old, old); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Chtimes(b.ProcessPath(), old, old),
		os.Chtimes(owner.ProcessPath(), old, old)); err != nil {
		t.Fatal(err)
	}
	aLeaseAgo := time.Now().Add(-backend.MaxTTL) // which would not be over
	if err := os.Chtimes(lately.ProcessPath(), aLeaseAgo, aLeaseAgo); err != nil {
		t.Fatal(err)
	}
	swept()
	for _, key := range []string{"dead lately", "lost lately", "asks late"} {
		if g := acquire(t, owner, claim(key)); g.TookOver != last[key] {
			t.Errorf("%s: the next is told of token %d, want %d", key, g.TookOver, last[key])
		}
	}
	gone := func(path string) bool {
		_, err := os.Stat(path)
		return errors.Is(err, os.ErrNotExist)
	}
	for path, want := range map[string]bool{
		temp: true, fresh: false, b.ProcessPath(): true, owner.ProcessPath(): false,
		lately.ProcessPath():              false,
		filebackend.RecordOf(dir, "dead"): true, filebackend.RecordOf(dir, "held"): true,
		filebackend.RecordOf(dir, "lost"): true,
		filebackend.RecordOf(dir, "mine"): false,
	} {
		if gone(path) != want {
			t.Errorf("%s is gone: %v, want %v", path, !want, want)
		}
	}
}

// File systems by the numbers of the kernel's magic.h, as there are no servers of most of them
// here.
func TestFileSystems(t *testing.T) {
	for name, magic := range map[string]uint32{
		"NFS": 0x6969, "SMB": 0x517B, "CIFS": 0xFF534D42, "SMB2": 0xFE534D42, "Ceph": 0x00C36400,
		"AFS": 0x5346414F, "kAFS": 0x6B414653,
		"Coda": 0x73757245, "9P": 0x01021997, "FUSE": 0x65735546, "OCFS2": 0x7461636F,
		"GFS2": 0x01161970, "Lustre": 0x0BD00BD0,
	} {
		if err := filebackend.RefuseShared("/dir", magic); !errors.Is(err, backend.ErrUnsafe) ||
			!strings.Contains(err.Error(), "/dir") {
			t.Errorf("%s: %v, want ErrUnsafe and which folder", name, err)
		}
	}
	for name, magic := range map[string]uint32{
		"ext4": 0xEF53, "XFS": 0x58465342, "Btrfs": 0x9123683E, "tmpfs": 0x01021994,
		"overlay": 0x794C7630, "ZFS": 0x2FC12FC1, "F2FS": 0xF2F52010,
	} {
		if err := filebackend.RefuseShared("/dir", magic); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A process with a boot clock of its own is refused.
func TestTimeNamespaces(t *testing.T) {
	for offsets, want := range map[string]error{
		"monotonic           0         0\nboottime            0         0\n": nil,
		"monotonic        1000         0\nboottime            0         0\n": nil,
		"monotonic           0         0\nboottime         1000         0\n": backend.ErrUnsafe,
		"monotonic           0         0\nboottime           -1 500000000\n": backend.ErrUnsafe,
		"monotonic           0         0\nboottime            0 500000000\n": backend.ErrUnsafe,
	} {
		if err := filebackend.RefuseTimeNamespace(offsets); !errors.Is(err, want) {
			t.Errorf("%q: %v, want %v", offsets, err, want)
		}
	}
}

// A client is closed while a claim of it is left: the process lives for others, as its file is
// there and locked. When somebody has removed the folder, there is a new one.
func TestProcessOfAClosedClient(t *testing.T) {
	dir := folder(t)
	processes := filepath.Join(dir, "processes")
	b := open(t, dir)
	acquire(t, b, claim("k"))
	_ = b.Close()
	was := left(t, processes)
	if len(was) != 1 {
		t.Fatalf("%q are there of a process whose lease goes on", was)
	}
	held(t, alone(t, dir), claim("k"))
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	again := open(t, dir)
	defer again.Close()
	acquire(t, again, claim("k"))
	if now := left(t, processes); len(now) != 1 || now[0] == was[0] {
		t.Errorf("%q are there, want a new file of this process", now)
	}
}

// The clock counts from the boot, and nobody can set it.
func TestBootClock(t *testing.T) {
	uptime := func() time.Duration {
		text, err := os.ReadFile("/proc/uptime")
		if err != nil {
			t.Fatal(err)
		}
		seconds, _, _ := strings.Cut(string(text), " ")
		d, err := time.ParseDuration(seconds + "s")
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	before := uptime()
	now := filebackend.BootClock()
	if after := uptime() + 10*time.Millisecond; now < before || now > after { // it tells hundredths
		t.Errorf("the clock says %v, between an uptime of %v and of %v", now, before, after)
	}
}

// A key whose last token is ahead of the clock is not forgotten: the next token is above it.
func TestTokenAhead(t *testing.T) {
	b := open(t, folder(t))
	defer b.Close()
	c := claim("k")
	c.MinToken = uint64(time.Now().Add(time.Minute).UnixMicro())
	g := acquire(t, b, c)
	if _, err := b.Release(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	if next := acquire(t, b, claim("k")); next.Token <= g.Token {
		t.Errorf("token %d after %d", next.Token, g.Token)
	}
}
