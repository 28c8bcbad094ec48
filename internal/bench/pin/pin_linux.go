// Package pin puts processes on CPUs and reads what they used of them.
package pin

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// To puts every thread of a process, 0 for this one, on some CPUs; threads and children that come
// later inherit it. Unpinned, one PING on loopback takes 9 or 65 µs by the scheduler's luck.
func To(pid int, cpus ...int) error {
	name := "self"
	if pid != 0 {
		name = strconv.Itoa(pid)
	}
	var set unix.CPUSet
	for _, cpu := range cpus {
		set.Set(cpu)
	}
	for range 2 { // again, for threads that started meanwhile from one that was not pinned yet
		tasks, err := os.ReadDir("/proc/" + name + "/task")
		if err != nil {
			return err
		}
		for _, task := range tasks {
			tid, err := strconv.Atoi(task.Name())
			if err != nil {
				continue
			}
			if err := unix.SchedSetaffinity(tid, &set); err != nil && err != unix.ESRCH {
				return err
			}
		}
	}
	return nil
}

// Used is the CPU time that this process has used.
func Used() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
