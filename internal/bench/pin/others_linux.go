package pin

import (
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

const tick = 10 * time.Millisecond // USER_HZ is 100 on every Linux that Go knows

// Busy is the time that the CPUs 0 and 1 have spent on anything, and on other virtual machines,
// since the machine started.
func Busy() time.Duration {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	var busy time.Duration
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 9 || f[0] != "cpu0" && f[0] != "cpu1" {
			continue
		}
		// user nice system irq softirq steal; not idle and iowait.
		for _, i := range []int{1, 2, 3, 6, 7, 8} {
			n, _ := strconv.Atoi(f[i])
			busy += time.Duration(n) * tick
		}
	}
	return busy
}

// Ours is the CPU time of this process and of its children that have ended.
func Ours() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_CHILDREN, &u); err != nil {
		return 0
	}
	return Used() + time.Duration(u.Utime.Nano()+u.Stime.Nano())
}

// Of is the CPU time of another process; 0 of one that is gone.
func Of(pid int) time.Duration {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	_, after, ok := strings.Cut(string(text), ") ")
	f := strings.Fields(after)
	if err != nil || !ok || len(f) < 13 {
		return 0
	}
	user, _ := strconv.Atoi(f[11])
	system, _ := strconv.Atoi(f[12])
	return time.Duration(user+system) * tick
}
