package worker

import (
	"os"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A judge checks that holders of one key exclude each other and that their tokens rise. It lies in
// memory that processes share, so that it sees all of them at once.
type judge struct {
	holder, token, violations, disorder atomic.Int64
}

// judges are a judge per key, in a file that is mapped into every process that takes part; "" for
// this process alone.
func judges(file string, n int) ([]judge, func(), error) {
	if file == "" {
		return make([]judge, n), func() {}, nil
	}
	size := int(unsafe.Sizeof(judge{})) * n
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = f.Close() }()
	if err := f.Truncate(int64(size)); err != nil {
		return nil, nil, err
	}
	mem, err := unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, nil, err
	}
	all := unsafe.Slice((*judge)(unsafe.Pointer(&mem[0])), n)
	return all, func() { _ = unix.Munmap(mem) }, nil
}

// enter is called by who has just got the lock.
func (j *judge) enter(me int64, token uint64) {
	if !j.holder.CompareAndSwap(0, me) {
		j.violations.Add(1)
	}
	if token != 0 && j.token.Swap(int64(token)) >= int64(token) {
		j.disorder.Add(1)
	}
}

// leave is called by who is about to give it back.
func (j *judge) leave(me int64) {
	if !j.holder.CompareAndSwap(me, 0) {
		j.violations.Add(1)
	}
}

// faults adds up what was seen.
func faults(all []judge) (violations, disorder int64) {
	for i := range all {
		violations += all[i].violations.Load()
		disorder += all[i].disorder.Load()
	}
	return violations, disorder
}
