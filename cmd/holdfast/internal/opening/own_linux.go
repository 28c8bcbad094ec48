package opening

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"github.com/holdfast-go/holdfast/backend"
)

// OwnFolder makes, if need be, and returns the folder that keeps this user's locks where no store
// is named: /var/lock/holdfast-UID where every user may write to /var/lock, else
// /tmp/holdfast-UID.
//
// Two processes of a user that look at different folders do not exclude each other. So nothing
// that may differ between them decides: no environment (a cron job has no XDG_RUNTIME_DIR, and
// that folder is gone when its user logs out), and no attempt that may fail for one of them.
func OwnFolder() (string, error) {
	above := "/tmp"
	if info, err := os.Stat("/var/lock"); err == nil && info.Mode()&fs.ModeSticky != 0 && info.Mode().Perm()&0o002 != 0 {
		above = "/var/lock"
	}
	dir := filepath.Join(above, "holdfast-"+strconv.Itoa(os.Geteuid()))
	return dir, claim(dir, os.Geteuid())
}

// claim makes dir for the user uid alone, or sees that it is. Others may write to the folder above
// it, and may have been first.
func claim(dir string, uid int) error {
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
		return fmt.Errorf("%w: others may use %s too, its permissions are %v and not 0700", backend.ErrUnsafe, dir, info.Mode().Perm())
	}
	return nil
}
