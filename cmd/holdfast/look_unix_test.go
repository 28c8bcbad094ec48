//go:build unix

package main

import (
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A command whose lock the store says is another's has its time to end, also if that is found just when it is
// looked whether the lease was renewed.
//
// covers: G8
func TestLookAtALockThatWasLost(t *testing.T) {
	b := membackend.New()
	defer b.Close()
	l, err := locker.New(b, locker.Bare, locker.Config{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	g, err := l.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = g.Unlock() }()
	child := exec.CommandContext(t.Context(), "sleep", "60")
	child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // what the look does to its group is not done to ours
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = child.Process.Kill(), child.Wait() }()
	w := &work{
		process: &process{pid: child.Process.Pid}, g: g, renewals: &renewals{}, grace: 10 * time.Second, latest: g.Until().Add(-time.Second),
		watch: time.NewTimer(time.Hour), longest: time.NewTimer(time.Hour), late: time.NewTimer(time.Hour),
	}
	if _, err := backend.ForceReleaseBy(t.Context(), b, "k", g.Hold().Token); err != nil {
		t.Fatal(err)
	}
	if err := g.Check(t.Context()); err == nil {
		t.Fatal("the store does not say that it was lost")
	}
	<-g.Lost()
	if w.look(); w.lost != nil || !w.late.Reset(time.Hour) {
		t.Errorf("the look itself ends the command, at once: %v", w.lost)
	}
	w.latest = time.Now() // too late for that
	if w.look(); w.lost == nil {
		t.Error("the command goes on when its time is over")
	}
}
