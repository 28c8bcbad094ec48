package filebackend

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

func init() { backend.Register("file", open) }

// Backend is one client of a folder.
type Backend struct {
	backend.Base
	folder *folder
	fsync  bool // each change is on the disk before it is answered

	mu     sync.RWMutex // held shared by verbs, so that Close waits for them
	closed bool
}

var _ backend.Backend = (*Backend)(nil)

// open serves file:///FOLDER and file:///FOLDER?fsync=true. The folder is made if it does not
// exist, the one above it is not.
func open(ctx context.Context, u *url.URL) (backend.Backend, error) {
	query := u.Query()
	fsync := query.Get("fsync")
	delete(query, "fsync")
	if unknown := slices.Sorted(maps.Keys(query)); len(unknown) > 0 {
		return nil, &backend.InvalidError{
			Field: "url", Value: unknown[0],
			Reason: "is not a known query parameter (known: fsync)",
		}
	}
	if u.User != nil || u.Host != "" || u.Fragment != "" || !filepath.IsAbs(u.Path) ||
		strings.ContainsRune(u.Path, 0) {
		return nil, &backend.InvalidError{
			Field: "url",
			Reason: "file:// takes the absolute path of a folder, and fsync, as in " +
				"file:///var/lock/app",
		}
	}
	if fsync != "" && fsync != "true" && fsync != "false" {
		return nil, &backend.InvalidError{
			Field: "url", Value: fsync,
			Reason: "fsync is true or false",
		}
	}
	dir := filepath.Clean(u.Path)
	// A folder is one, however it is reached.
	if above, err := filepath.EvalSymlinks(filepath.Dir(dir)); err == nil {
		dir = filepath.Join(above, filepath.Base(dir))
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	f, err := enter(ctx, dir)
	if err != nil {
		return nil, err
	}
	return &Backend{folder: f, fsync: fsync == "true"}, nil
}

// Capabilities says what a folder can do soundly: all, but that the loss of a hold is learnt by
// renewals.
func (b *Backend) Capabilities() backend.Capabilities {
	return capabilities
}

var capabilities = func() backend.Capabilities {
	caps := record.Capabilities
	caps.Name = "file"
	return caps
}()

// use returns the folder until done is called.
func (b *Backend) use(ctx context.Context) (f *folder, done func(), err error) {
	b.mu.RLock()
	if b.closed {
		b.mu.RUnlock()
		return nil, nil, backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		b.mu.RUnlock()
		return nil, nil, err
	}
	return b.folder, b.mu.RUnlock, nil
}

// change makes one verb about c, and returns the verb's error or why it could not be made.
func (b *Backend) change(ctx context.Context, c backend.Claim, urgent bool,
	verb func(*record.Record, time.Time) error,
) error {
	f, done, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	var answer error
	err = f.change(ctx, c.Key, b.fsync, urgent, []string{c.ID()},
		func(r *record.Record, now time.Time) {
			answer = verb(r, now)
		})
	if err != nil {
		return err
	}
	return answer
}

// TryAcquire implements [backend.Backend].
func (b *Backend) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	if err := c.Validate(capabilities); err != nil {
		return backend.Grant{}, err
	}
	err = b.change(ctx, c, false, func(r *record.Record, now time.Time) (err error) {
		g, err = r.Acquire(c, now)
		return err
	})
	if err != nil {
		return backend.Grant{}, err
	}
	return g, nil
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := c.Validate(capabilities); err != nil {
		return err
	}
	return b.change(ctx, c, true, func(r *record.Record, now time.Time) error {
		return r.Renew(c, now)
	})
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, c backend.Claim) (told backend.Released, err error) {
	if err := c.ValidateRelease(capabilities); err != nil {
		return told, err
	}
	err = b.change(ctx, c, false, func(r *record.Record, now time.Time) (err error) {
		told, err = r.Release(c, now)
		return err
	})
	if err != nil {
		return backend.Released{}, err
	}
	return told, nil
}

// Heartbeat implements [backend.Backend], one key after the other.
func (b *Backend) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if err := backend.ValidateHeartbeat(claims, capabilities); err != nil {
		return nil, err
	}
	f, done, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	answers := make([]error, len(claims))
	b.together(ctx, f, claims, backend.ByKey(claims), answers, (*record.Record).Heartbeat)
	return answers, nil
}

// ReleaseAll implements [backend.Backend], one key after the other.
func (b *Backend) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	groups, answers, err := backend.ValidateReleaseAll(claims, capabilities)
	if err != nil {
		return nil, err
	}
	f, done, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	b.together(ctx, f, claims, groups, answers, (*record.Record).ReleaseAll)
	return answers, nil
}

// together makes one verb about the claims of each key.
func (b *Backend) together(
	ctx context.Context, f *folder, claims []backend.Claim, groups [][]int, answers []error,
	verb func(*record.Record, []backend.Claim, time.Time) []error,
) {
	backend.Together(claims, groups, answers, func(some []backend.Claim) (told []error, err error) {
		ids := make([]string, len(some))
		for n := range some {
			ids[n] = some[n].ID()
		}
		// safeguard: file-release-all
		err = f.change(ctx, some[0].Key, b.fsync, false, ids,
			func(r *record.Record, now time.Time) {
				told = verb(r, some, now)
			})
		return told, err
	})
}

// Watch implements [backend.Backend]. It signals when a process that holds or waits has ended, too.
// Where the kernel has no more inotify instances to give (fs.inotify.max_user_instances), it is
// [errors.ErrUnsupported], and waiters poll.
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	w, err := b.watcher(ctx, c.Key)
	if err != nil {
		return nil, err
	}
	return w.enter(ctx, c), nil
}

// Inspect implements [backend.Backend].
func (b *Backend) Inspect(ctx context.Context, key string) (state backend.State, err error) {
	err = b.look(ctx, key, func(r *record.Record, now time.Time) { state = r.Inspect(now) })
	return state, err
}

// Observe implements [backend.Backend]. A hold has to last for as long as the kernel takes to tell
// and a record to be read, some 100 µs. Where the kernel has no more inotify instances to give, it
// is [errors.ErrUnsupported].
func (b *Backend) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	return func(yield func(backend.State, error) bool) {
		w, err := b.watcher(ctx, key)
		if err != nil {
			yield(backend.State{}, err)
			return
		}
		file := name(key)
		changed, leave := w.enterTopic(file, observerTopic(file))
		defer leave()
		look := func(ctx context.Context) (backend.State, error) { return b.Inspect(ctx, key) }
		if backend.ObserveBy(ctx, backend.SlowLook, changed, look, yield) {
			yield(backend.State{}, fmt.Errorf("%w: inotify tells nothing any more of %s",
				errors.ErrUnsupported, b.folder.dir))
		}
	}
}

// watcher returns the folder's, for one who is about to watch key.
func (b *Backend) watcher(ctx context.Context, key string) (*watcher, error) {
	if err := backend.ValidateKey(key); err != nil {
		return nil, err
	}
	f, done, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return f.watcher()
}

// Saved implements [backend.Backend].
func (b *Backend) Saved(ctx context.Context, key string) (state []byte, err error) {
	err = b.look(ctx, key, func(r *record.Record, _ time.Time) { state = r.Saved })
	return state, err
}

// look calls see with what there is of key; not if there is nothing.
func (b *Backend) look(ctx context.Context, key string, see func(*record.Record, time.Time)) error {
	if err := backend.ValidateKey(key); err != nil {
		return err
	}
	f, done, err := b.use(ctx)
	if err != nil {
		return err
	}
	defer done()
	rec, now, err := f.look(name(key))
	if err == nil && rec != nil {
		see(&rec.Image, now)
	}
	return err
}

// List implements [backend.Backend]. What has nothing to do with locks is passed over; what may be
// a lock and cannot be read is an error, after all others.
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		f, done, err := b.use(ctx)
		if err != nil {
			yield(backend.Listed{}, err)
			return
		}
		done() // not while the caller is at work
		var unread error
		for file, err := range f.records() {
			if err = cmp.Or(err, ctx.Err()); err != nil {
				yield(backend.Listed{}, err)
				return
			}
			rec, now, err := f.look(file)
			if err != nil && !errors.Is(err, errStranger) {
				unread = err
			}
			if rec == nil || !strings.HasPrefix(rec.Key, prefix) {
				continue
			}
			state := rec.Image.Inspect(now)
			if (state.Holders != nil || state.Waiters != nil) &&
				!yield(backend.Listed{Key: rec.Key, State: state}, nil) {
				return
			}
		}
		if unread != nil {
			yield(backend.Listed{}, unread)
		}
	}
}

// ForceRelease implements [backend.Backend].
func (b *Backend) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, b, key, token)
}

// Identity implements [backend.Backend]: it is another one after each boot.
func (b *Backend) Identity(ctx context.Context) (string, error) {
	f, done, err := b.use(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return f.id, nil
}

// Diagnose implements [backend.Backend].
func (b *Backend) Diagnose(ctx context.Context) ([]backend.Finding, error) {
	_, done, err := b.use(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	return []backend.Finding{{
		Check: "processes", Level: backend.OK,
		Text: "locks are for those of this machine, and keep none on another out",
	}}, nil
}

// Process returns the file by whose lock others know that this process lives, for a child that goes
// on with the work of a hold if this process is killed: one that inherits it ([os.ProcAttr].Files)
// keeps this process's holds from being ended at once, and they end with their leases. The file is
// this process's, and stays open; it must not be closed or unlocked.
func (b *Backend) Process() *os.File { return b.folder.process }

// Close implements [backend.Backend]. Leases that this client holds run out by themselves, or end
// with the process.
func (b *Backend) Close() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.closed {
		b.closed = true
		b.folder.leave()
	}
	return nil
}
