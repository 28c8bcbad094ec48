package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/filebackend"
)

// ownFolder makes, if need be, and returns the folder that keeps this user's locks where no store
// is named: /var/lock/holdfast-UID where every user may write to /var/lock, else
// /tmp/holdfast-UID.
//
// Two processes of a user that look at different folders do not exclude each other. So nothing
// that may differ between them decides: no environment (a cron job has no XDG_RUNTIME_DIR, and
// that folder is gone when its user logs out), and no attempt that may fail for one of them.
func ownFolder() (string, error) {
	above := "/tmp"
	if info, err := os.Stat("/var/lock"); err == nil && info.Mode()&fs.ModeSticky != 0 &&
		info.Mode().Perm()&0o002 != 0 {
		above = "/var/lock"
	}
	dir := filepath.Join(above, "holdfast-"+strconv.Itoa(os.Geteuid()))
	return dir, claimFolder(dir, os.Geteuid())
}

// claimFolder makes dir for the user uid alone, or sees that it is. Others may write to the folder
// above it, and may have been first.
func claimFolder(dir string, uid int) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return fmt.Errorf("%w: %s is no folder", backend.ErrUnsafe, dir)
	case !ok || int64(stat.Uid) != int64(uid):
		return fmt.Errorf("%w: %s belongs to another user", backend.ErrUnsafe, dir)
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Errorf("%w: others may use %s too, its permissions are %v and not 0700",
			backend.ErrUnsafe, dir, info.Mode().Perm())
	}
	return nil
}

// machineClock returns what is to be said of this machine's clock. It fails where the kernel does
// not tell, as in some sandboxes.
func machineClock() (backend.Finding, error) {
	var t unix.Timex // that sets nothing
	state, err := unix.Adjtimex(&t)
	if err != nil {
		return backend.Finding{}, err
	}
	//nolint:unconvert // of 32 bits on some machines
	return kernelClock(int64(t.Tick), int64(t.Freq),
		state != unix.TIME_ERROR && t.Status&unix.STA_UNSYNC == 0), nil
}

// endWithParent has the kernel kill the command when we end, and reports whether it does.
func endWithParent(attr *syscall.SysProcAttr) bool {
	attr.Pdeathsig = syscall.SIGKILL
	return true
}

// signsOfLife are what a command inherits so that the store does not take us for gone while it is
// at work: the kernel kills it when we are killed, but after it has told others that we ended.
func signsOfLife(b backend.Backend) []*os.File {
	if f, ok := b.(*filebackend.Backend); ok {
		return []*os.File{f.Process()}
	}
	return nil
}
