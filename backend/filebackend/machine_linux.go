package filebackend

import (
	"fmt"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/holdfast-go/holdfast/backend"
)

// bootClock is the time since this machine was booted, also while it was suspended. Every process
// sees the same.
func bootClock() time.Duration {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		panic("filebackend: no boot clock: " + err.Error()) // it is there since Linux 2.6.39
	}
	return time.Duration(ts.Nano())
}

// shared are the file systems whose files other machines may have as well, where flock may be
// theirs alone and boot clocks are many.
var shared = map[uint32]string{
	unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS",
	unix.SMB2_SUPER_MAGIC: "SMB",
	unix.CEPH_SUPER_MAGIC: "Ceph", unix.AFS_SUPER_MAGIC: "AFS", unix.AFS_FS_MAGIC: "AFS",
	unix.CODA_SUPER_MAGIC: "Coda",
	unix.V9FS_MAGIC:       "9P", unix.FUSE_SUPER_MAGIC: "FUSE", unix.OCFS2_SUPER_MAGIC: "OCFS2",
	0x01161970: "GFS2", 0x0BD00BD0: "Lustre",
}

// local refuses folders that are not this machine's alone, and processes whose boot clock is not
// the machine's.
func local(dir string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return notDone(&os.PathError{Op: "statfs", Path: dir, Err: err})
	}
	//nolint:gosec // a magic number of 32 bits, sign-extended on some platforms
	if err := refuseShared(dir, uint32(stat.Type)); err != nil {
		return err
	}
	offsets, err := os.ReadFile("/proc/self/timens_offsets")
	if err != nil {
		return nil // no time namespaces
	}
	return refuseTimeNamespace(string(offsets))
}

// refuseTimeNamespace refuses a process whose boot clock is not the machine's, by its
// timens_offsets.
func refuseTimeNamespace(offsets string) error {
	for line := range strings.Lines(offsets) {
		f := strings.Fields(line)
		own := len(f) == 3 && f[0] == "boottime" && (f[1] != "0" || f[2] != "0")
		if own { // safeguard: file-time-namespace
			return fmt.Errorf("%w: this process is in a time namespace of its own, so its boot "+
				"clock is not that of others", backend.ErrUnsafe)
		}
	}
	return nil
}

// refuseShared refuses dir if its file system, by statfs's magic number, is one of those.
func refuseShared(dir string, magic uint32) error {
	if name, is := shared[magic]; is {
		return fmt.Errorf("%w: %s is on %s, which other machines may use as well; locks need a "+
			"file system of this machine", backend.ErrUnsafe, dir, name)
	}
	return nil
}
