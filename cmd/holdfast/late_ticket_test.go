//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A slowStore does not answer the first attempt, which is on its way for as long as the test wants.
type slowStore struct {
	backend.Backend
	once sync.Once
	late backend.Claim // the attempt that is on its way
}

func (s *slowStore) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	s.once.Do(func() { s.late, err = c, backend.ErrUnavailable })
	if err != nil {
		return g, err
	}
	return s.Backend.TryAcquire(ctx, c)
}

// clientOf is a client of b, without the command's flags.
func clientOf(t *testing.T, b backend.Backend) *client {
	t.Helper()
	cfg := locker.Config{TTL: time.Minute, Logger: slog.New(slog.DiscardHandler)}
	l, err := locker.New(b, locker.Bare, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &client{Client: l, backend: b, config: cfg, where: "mem://"}
}

// acquire's first attempt had no answer, and the second was granted. The first comes to the store
// when the ticket has been released, and holds nothing: nobody would know of it, or have its
// ticket.
//
// covers: A2, A4
func TestTicketIsReleasedBeforeItsFirstAttemptLands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &slowStore{Backend: membackend.New()}
		c := clientOf(t, s)
		defer func() { _ = c.close() }()
		opts := []locker.Option{locker.Reentrant(backend.NewOwner()), locker.TTL(30 * time.Minute)}
		g, err := c.Lock(t.Context(), "k", opts...) // as acquire does
		if err != nil {
			t.Fatal(err)
		}
		taken, err := g.Detach()
		if err != nil {
			t.Fatal(err)
		}
		printed, err := parseTicket(ticket{taken, "", c.where}.String())
		if again := printed.claim(); err != nil || s.late.Hold == "" || s.late.ID() != again.ID() {
			t.Fatalf("%v: the ticket is not of the attempt without an answer: %+v, %+v", err,
				printed, s.late)
		}
		var out bytes.Buffer
		cmd := &cobra.Command{}
		cmd.SetOut(&out)
		cmd.SetContext(t.Context())
		err = (&common{output: "text"}).releaseTicket(cmd, c, printed)
		if err != nil || !strings.Contains(out.String(), "released") {
			t.Fatalf("release: %v, %s", err, out.String())
		}
		if g, err := s.TryAcquire(t.Context(), s.late); !errors.Is(err, backend.ErrLost) {
			t.Errorf("the attempt that lands after the release holds with %+v, %v; want %v", g, err,
				backend.ErrLost)
		}
		if state, err := s.Inspect(t.Context(), "k"); err != nil || len(state.Holders) > 0 {
			t.Errorf("nobody has a ticket, and the key is held by %+v, %v", state.Holders, err)
		}
	})
}

// A closing pipe is an output whose reader is ended, by the signal that ends the command.
type closingPipe struct{ signal context.CancelFunc }

func (p closingPipe) Write([]byte) (int, error) {
	p.signal()
	return 0, syscall.EPIPE
}

// Ctrl-C ends acquire together with the shell that was to read the ticket: the hold that nobody
// knows of is released all the same.
//
// covers: C5
func TestTicketThatIsNotPrintedAtCtrlC(t *testing.T) {
	defer signal.Reset(syscall.SIGPIPE)
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		c := clientOf(t, b)
		defer func() { _ = c.close() }()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		cmd := &cobra.Command{}
		cmd.SetOut(closingPipe{cancel})
		cmd.SetContext(ctx)
		a := acquirer{ttl: 12 * time.Hour}
		if err := a.acquire(cmd, c, "k", time.Now()); !errors.Is(err, syscall.EPIPE) ||
			errors.Is(err, context.Canceled) {
			t.Errorf("acquire = %v, want only that the ticket was not printed", err)
		}
		if state, err := b.Inspect(t.Context(), "k"); err != nil || len(state.Holders) > 0 {
			t.Errorf("nobody has a ticket, and the key is held by %+v, %v", state.Holders, err)
		}
	})
}

// started starts a process that does nothing, in a group of its own, and ends it with the test.
func started(t *testing.T) *os.Process {
	t.Helper()
	path, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	attr := &os.ProcAttr{Sys: &syscall.SysProcAttr{Setpgid: true}}
	p, err := os.StartProcess(path, []string{"sleep", "60"}, attr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.Kill()
		_, _ = p.Wait()
	})
	return p
}

// While holdfast was stopped the deadman has killed its command, and holdfast goes on before the
// lease ends: the command was cut off, and does not count as a run. One that somebody has killed
// earlier counts.
//
// covers: G7
func TestCommandThatTheDeadmanKilledIsNoRun(t *testing.T) {
	runtime.LockOSThread() // as the one who started the command
	defer runtime.UnlockOSThread()
	for name, late := range map[string]bool{"by the deadman": true, "by somebody": false} {
		t.Run(name, func(t *testing.T) {
			c := clientOf(t, membackend.New())
			defer func() { _ = c.close() }()
			var lost, held error
			l := &lock{client: c}
			once := func(work func(ctx context.Context, _ struct{}) error) (ran bool) {
				ran, err := locker.Once(t.Context(), l, "k", time.Hour, work, locker.OnSuccess())
				if err != nil && !errors.Is(err, lost) {
					t.Error(err)
				}
				return ran
			}
			once(func(context.Context, struct{}) error {
				lost = killedAtWork(t, l.guard, late)
				held = cause(l.guard)
				return lost
			})
			if held != nil {
				t.Fatalf("the lease was over: %v", held)
			}
			if errors.Is(lost, errUnconfirmed) != late || (lost != nil) != late {
				t.Errorf("it is said to be cut off by %v, and that it was is %v", lost, late)
			}
			if again := once(func(context.Context, struct{}) error { return nil }); again != late {
				t.Errorf("that it runs again is %v, want %v", again, late)
			}
		})
	}
}

// killedAtWork has a command at work under g killed, late after the time at which the deadman does
// so, and returns why it was cut off.
func killedAtWork(t *testing.T, g *locker.Guard[struct{}], late bool) (lost error) {
	t.Helper()
	from, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	p := &process{
		pid: started(t).Pid, ended: make(chan ending, 1), stopped: make(chan syscall.Signal, 1),
		deadman: &deadman{started(t), to}, release: func() {},
	}
	w := &work{
		process: p, g: g, renewals: &renewals{}, grace: 10 * time.Second, latest: bootClock() +
			time.Until(g.Until()) - time.Second,
		watch: time.NewTimer(time.Hour), longest: time.NewTimer(time.Hour),
		late: time.NewTimer(time.Hour),
	}
	if late { // that time has come, and what is left of the lease is still to go
		w.latest = bootClock()
	}
	go p.await()
	p.kill()
	if status, _ := w.finishes(); status != killed {
		t.Fatalf("status %d, want %d", status, killed)
	}
	return w.lost
}
