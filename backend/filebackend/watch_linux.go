package filebackend

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/waiting"
)

// A watcher has the kernel tell of every record that changes and of every process that ends, and
// signals those of this process whom that concerns. What it does depends on what the record is when
// it looks, so it does not matter how many changes one look is for.
type watcher struct {
	hub    waiting.Hub[backend.Wake]
	folder *folder
	file   *os.File // of inotify
	keys   int32    // watch descriptors of the two folders
	ended  chan struct{}

	mu      sync.Mutex
	watched map[string]int // by the name of a record: how many watch it
}

// watcher returns the folder's, which it starts for the first. An error says that the kernel has no
// more of them to give.
func (f *folder) watcher() (*watcher, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.watch != nil {
		return f.watch, nil
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("%w: inotify: %w", errors.ErrUnsupported, err)
	}
	w := &watcher{
		folder: f, file: os.NewFile(uintptr(fd), "inotify"), ended: make(chan struct{}),
		watched: map[string]int{},
	}
	keys, err := unix.InotifyAddWatch(fd, filepath.Join(f.dir, keysDir),
		unix.IN_MOVED_TO|unix.IN_DELETE)
	if err == nil {
		// The kernel closes the file of a process that ends.
		_, err = unix.InotifyAddWatch(fd, filepath.Join(f.dir, processesDir), unix.IN_CLOSE_WRITE)
	}
	if err != nil {
		_ = w.file.Close()
		return nil, fmt.Errorf("%w: inotify: %w", errors.ErrUnsupported, err)
	}
	w.keys = int32(keys)
	f.watch = w
	go w.run()
	return w, nil
}

// close ends the watcher and waits for it. Those who still watch are told to poll.
func (w *watcher) close() {
	_ = w.file.Close()
	<-w.ended
}

// enter adds a watch until ctx is done. A claim that is queued is signalled with what is handed to
// it, anybody else when the key may be free.
func (w *watcher) enter(ctx context.Context, c backend.Claim) <-chan backend.Wake {
	c.Key = name(c.Key)
	wake, leave := w.enterTopic(c.Key, record.Topic(c))
	context.AfterFunc(ctx, leave)
	return wake
}

// enterTopic adds a watch of a record's file until leave is called.
func (w *watcher) enterTopic(file, topic string) (wake <-chan backend.Wake, leave func()) {
	w.mu.Lock()
	w.watched[file]++
	w.mu.Unlock()
	wake, leaveHub := w.hub.Enter(topic)
	return wake, func() {
		leaveHub()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.watched[file]--; w.watched[file] == 0 {
			delete(w.watched, file)
		}
	}
}

// observerTopic is the topic of those who hear of every change.
func observerTopic(file string) string { return file + "!" }

// run reads what the kernel tells until the watcher is closed, or the folder is gone.
func (w *watcher) run() {
	defer close(w.ended)
	defer w.hub.Close()
	buffer := make([]byte, 64<<10)
	for {
		n, err := w.file.Read(buffer)
		if err != nil || !w.told(buffer[:n]) {
			return
		}
	}
}

// told does what some events ask for; false says that there will be no more.
func (w *watcher) told(events []byte) bool {
	records, died := map[string]bool{}, []string(nil)
	all := false
	for len(events) >= unix.SizeofInotifyEvent {
		watch := int32(binary.NativeEndian.Uint32(events))
		mask := binary.NativeEndian.Uint32(events[4:])
		length := int(binary.NativeEndian.Uint32(events[12:]))
		file := strings.TrimRight(
			string(events[unix.SizeofInotifyEvent:unix.SizeofInotifyEvent+length]), "\x00")
		events = events[unix.SizeofInotifyEvent+length:]
		switch {
		case mask&unix.IN_IGNORED != 0:
			return false
		case mask&unix.IN_Q_OVERFLOW != 0:
			all = true
		case watch == w.keys:
			records[file] = true
		default:
			died = append(died, file)
		}
	}
	for file := range records {
		w.mu.Lock()
		concerned := w.watched[file] > 0
		w.mu.Unlock()
		if concerned {
			w.look(file)
		}
	}
	for _, process := range died {
		w.folder.await(process)
		all = true
	}
	if all { // few die; whoever wakes asks, and finds out
		w.hub.WakeAll(backend.Wake{})
	}
	return true
}

// look signals whoever watches a record and can have the key now, and whoever observes it.
func (w *watcher) look(file string) {
	w.hub.Wake(observerTopic(file), backend.Wake{})
	rec, now, err := w.folder.look(file)
	if err != nil || rec == nil { // whoever asks learns the same
		w.hub.Wake(file, backend.Wake{})
		return
	}
	rec.Image.Trim(now)
	rec.Image.Signal(&w.hub, file)
}

// await returns when a process that is ending has ended: the kernel tells that its file was closed
// a moment before it gives up the lock.
func (f *folder) await(process string) {
	for range 1000 {
		if !f.lives(process) {
			return
		}
		time.Sleep(100 * time.Microsecond)
	}
}
