//go:build unix

package main

import (
	"bufio"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A losing is a guard whose lock is lost right before a question is answered, or right after.
type losing struct {
	*locker.Guard[struct{}]
	before, after func()
}

func (l losing) Until() time.Time {
	l.before()
	defer l.after()
	return l.Guard.Until()
}

// A command whose lock the store says is another's has its time to end, also if that is found just
// when it is looked whether the lease was renewed.
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
	for name, before := range map[string]bool{"before": true, "after": false} {
		t.Run(name, func(t *testing.T) {
			g, err := l.Lock(t.Context(), name)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = g.Unlock() }()
			child := exec.CommandContext(t.Context(), "sleep", "60")
			// What the look does to its group is not done to ours.
			child.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			if err := child.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _, _ = child.Process.Kill(), child.Wait() }()
			lose := sync.OnceFunc(func() {
				if _, err := backend.ForceReleaseBy(t.Context(), b, name,
					g.Hold().Token); err != nil {
					t.Error(err)
				}
				if err := g.Check(t.Context()); err == nil {
					t.Error("the store does not say that it was lost")
				}
				<-g.Lost()
			})
			guard := losing{Guard: g, before: lose, after: func() {}}
			if !before {
				guard.before, guard.after = guard.after, guard.before
			}
			told := bootClock() + time.Until(g.Until()) - time.Second
			w := &work{
				process: &process{pid: child.Process.Pid}, g: guard, renewals: &renewals{},
				grace: 10 * time.Second, latest: told,
				watch: time.NewTimer(time.Hour), longest: time.NewTimer(time.Hour),
				late: time.NewTimer(time.Hour),
			}
			if w.look(); w.lost != nil || !w.late.Reset(time.Hour) || w.latest != told {
				t.Errorf("the look itself ends the command, at once: %v, %v", w.lost,
					w.latest-bootClock())
			}
			if w.pause(syscall.SIGSTOP); w.lost != nil || w.latest != told {
				t.Errorf("a command that stops is not left its time: %v, %v", w.lost,
					w.latest-bootClock())
			}
			w.latest = bootClock() // too late for that
			if w.look(); w.lost == nil {
				t.Error("the command goes on when its time is over")
			}
		})
	}
}

// A command whose lock was lost while it was started has its time to end, and from then on it is
// the command that somebody else kills if we cannot.
//
// covers: G8
func TestLostWhileTheCommandStarts(t *testing.T) {
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
	until := g.Until()
	if _, err := backend.ForceReleaseBy(t.Context(), b, "k", g.Hold().Token); err != nil {
		t.Fatal(err)
	}
	if err := g.Check(t.Context()); err == nil {
		t.Fatal("the store does not say that it was lost")
	}
	<-g.Lost()
	orders, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = orders.Close(), to.Close() }()
	w := &work{
		process: &process{pid: 1 << 30, deadman: &deadman{to: to}}, g: g,
		renewals: &renewals{}, grace: 10 * time.Second, watch: time.NewTimer(time.Hour),
		longest: time.NewTimer(time.Hour), late: time.NewTimer(time.Hour),
	}
	if w.begin(until); w.lost != nil {
		t.Errorf("it has no time to end: %v", w.lost)
	}
	_ = to.Close()
	order, err := bufio.NewReader(orders).ReadString('\n')
	if !strings.HasPrefix(order, "-1073741824 ") {
		t.Errorf("the deadman is told %q, %v", order, err)
	}
}

// A command that was told to end has the time that it was given: neither the end of the longest
// hold nor another look gives it another.
//
// covers: G8
func TestCommandIsToldToEndOnce(t *testing.T) {
	w := &work{
		process: &process{pid: 1 << 30}, watch: time.NewTimer(time.Hour),
		longest: time.NewTimer(time.Hour), late: time.NewTimer(0),
	}
	<-w.late.C
	w.end(locker.ErrLost, time.Hour)
	for what, timer := range map[string]*time.Timer{
		"the next look": w.watch, "the end of the longest hold": w.longest,
	} {
		if timer.Stop() {
			t.Error("it will be told again at", what)
		}
	}
	if !w.late.Stop() {
		t.Error("it is not killed when its time is over")
	}
}
