package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// folders reports whether there is file:// here.
const folders = runtime.GOOS == "linux"

var errTimeUp = errors.New("time is up")

const (
	openLimit = 5 * time.Second            // how long a store may take to be opened
	killAfter = closeGrace + 2*time.Second // how long a process that was told to end may take
	lookEach  = 2 * time.Millisecond       // how often the parent looks into the ledger

	// killTurn is the turn at which the process that is to be killed stops in mid-hold: not its
	// first, so that it is seen to work.
	killTurn = 3
)

// hold holds a sale, and returns what came of it, also if it was interrupted, the store failed in
// the middle, or its time was up. Meanwhile it calls show each so often. With a result, the error
// says that traces were not sent.
func hold(ctx context.Context, s Spec, with Opener, each time.Duration,
	show func(account),
) (r *result, err error) {
	dir, err := os.MkdirTemp("", "holdfast-demo-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	s.Process, s.Ledger = 1, filepath.Join(dir, "ledger")
	if s.Processes > 1 && folders {
		s.Folder = (&url.URL{Scheme: "file", Path: filepath.Join(dir, "locks")}).String()
	}
	books, err := openLedger(s.Ledger, s.Stock, 0)
	if err != nil {
		return nil, err
	}
	defer books.close()
	var st *Store // nil without a lock
	if !s.NoLock {
		if st, err = s.openHere(ctx, with); err != nil {
			return nil, err
		}
	}
	r, err = s.run(ctx, st, books, each, show)
	if st != nil {
		err = errors.Join(err, st.close())
	}
	return r, err
}

// openHere opens the store in this process, also if others use it: it is here that errors are best
// told.
func (s Spec) openHere(ctx context.Context, with Opener) (st *Store, err error) {
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	if st, err = s.open(ctx, with); err != nil {
		return nil, err
	}
	ttl := st.Config.TTL
	switch {
	case st.local() && s.Processes > 1:
		err = Usage("--processes %d: %s keeps locks in the memory of one process, "+
			"so that several would not exclude each other; "+
			"give them a store to share, such as --backend redis://localhost:6379",
			s.Processes, st.Name)
	case s.Kill && ttl >= s.Duration:
		err = Usage("--kill: the lock is free again after the TTL of %v, "+
			"and the sale ends after %v; "+
			"give a shorter --ttl or a longer --duration", ttl, s.Duration)
	}
	if err != nil {
		return nil, errors.Join(err, st.close())
	}
	return st, nil
}

// A sale is going on.
type sale struct {
	Spec
	books    *ledger
	cancel   context.CancelCauseFunc // ends it
	working  sync.WaitGroup
	children []*child // none if the buyers are in this process
	began    time.Time
	begun    bool
}

// run lets everybody buy: the buyers of one process here, those of several in processes of their
// own.
func (s Spec) run(ctx context.Context, st *Store, books *ledger, each time.Duration,
	show func(account),
) (*result, error) {
	inner, cancel := context.WithCancelCause(ctx)
	a := &sale{Spec: s, books: books, cancel: cancel, began: time.Now()}
	defer a.working.Wait()
	defer cancel(nil) // before that
	if err := a.start(inner, st); err != nil {
		return nil, err
	}
	ended := make(chan struct{})
	go func() {
		a.working.Wait()
		close(ended)
	}()
	var now account
	for shown, over := a.began, false; !over; {
		select {
		case <-ended:
			over = true
		case <-time.After(lookEach):
		}
		var err error
		if now, err = books.audit(); err != nil {
			return nil, err
		}
		if now.failed != nil {
			cancel(now.failed)
		}
		if !over {
			a.direct(now)
		}
		if !over && time.Since(shown) >= each {
			shown = time.Now()
			show(now)
		}
	}
	r := s.result(st, now, time.Since(a.began))
	switch why := context.Cause(inner); {
	case ctx.Err() != nil: // whatever failed on the way out
		r.Ended = "interrupted"
	case errors.Is(why, errTimeUp) && now.left > 0:
		r.Ended = why.Error()
	case why != nil && !errors.Is(why, errTimeUp) && !errors.Is(why, context.Canceled):
		r.Ended, r.failed = "failed", why
	}
	return r, now.unsent
}

// start has the buyers begin, or starts their processes.
func (a *sale) start(ctx context.Context, st *Store) error {
	if a.begun = a.Processes == 1; a.begun {
		a.working.Go(func() { a.cancel(a.workHere(ctx, st)) })
		return nil
	}
	for i := 1; i <= a.Processes; i++ {
		s := a.Spec
		if s.Process = i; s.Kill && i == s.Processes {
			s.FreezeAt = killTurn
		}
		c, err := startChild(ctx, s)
		if err != nil {
			return fmt.Errorf("process %d: %w", i, err)
		}
		a.children = append(a.children, c)
		a.working.Go(func() {
			if err := c.cmd.Wait(); err != nil && !c.killed.Load() {
				a.cancel(fmt.Errorf("process %d: %w", i, err))
			}
		})
	}
	return nil
}

// direct does what is the parent's to do, as the ledger stands.
func (a *sale) direct(now account) {
	switch {
	case !a.begun && len(now.pids) == a.Processes:
		// None has sold everything before the last has started.
		a.began, a.begun = time.Now(), true
		for _, c := range a.children {
			_, _ = io.WriteString(c.in, "\n")
		}
	case a.begun && time.Since(a.began) >= a.Duration:
		a.cancel(errTimeUp)
	case now.frozen.PID != 0 && now.kill == nil:
		c := a.children[now.frozen.Process-1]
		c.killed.Store(true)
		_ = a.books.post(entry{Kind: kindKilled, At: time.Now()})
		_ = c.cmd.Process.Kill()
	}
}

// workHere is the work of the only process.
func (s Spec) workHere(ctx context.Context, st *Store) error {
	stock, err := openLedger(s.Ledger, s.Stock, s.Process)
	if err != nil {
		return err
	}
	defer stock.close()
	return s.work(ctx, st, stock)
}

// A child is one process of several, which runs [Work].
type child struct {
	cmd    *exec.Cmd
	in     io.WriteCloser
	killed atomic.Bool // by us
}

func startChild(ctx context.Context, s Spec) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.CommandContext(ctx, self, Worker)}
	c.cmd.Stderr = os.Stderr
	c.cmd.Cancel = func() error { return c.in.Close() } // it then gives its locks back and ends
	c.cmd.WaitDelay = killAfter
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	_ = json.NewEncoder(c.in).Encode(s) // a child that does not read has ended, which Wait finds
	return c, nil
}

// Worker is the hidden subcommand for the other processes of a sale, which calls [Work].
//
// The parent writes the spec on one line, and another line when all processes are ready. Then it
// keeps the pipe open for as long as the work is to go on: the pipe ends with the parent, however
// that ends, and the worker ends with the pipe. What the worker has to tell is in the ledger.
const Worker = "demo-worker"

// Work is what [Worker] does.
func Work(ctx context.Context, in io.Reader, with Opener) error {
	lines := bufio.NewReader(in)
	line, err := lines.ReadBytes('\n')
	var s Spec
	if err != nil || json.Unmarshal(line, &s) != nil {
		return Usage("%s is for the demo to run, not for people", Worker)
	}
	stock, err := openLedger(s.Ledger, s.Stock, s.Process)
	if err != nil {
		return err
	}
	defer stock.close()
	if err := s.workUnderParent(ctx, lines, stock, with); err != nil {
		return stock.post(entry{Kind: kindFailed, Error: err.Error()})
	}
	return nil
}

func (s Spec) workUnderParent(ctx context.Context, in *bufio.Reader, stock *ledger,
	with Opener,
) error {
	var st *Store // nil without a lock
	if !s.NoLock {
		var err error
		if st, err = s.open(ctx, with); err != nil {
			return err
		}
		defer func() {
			if err := st.close(); err != nil {
				_ = stock.post(entry{Kind: kindUnsent, Error: err.Error()})
			}
		}()
	}
	if err := stock.post(entry{Kind: kindReady, PID: os.Getpid()}); err != nil {
		return err
	}
	if _, err := in.ReadBytes('\n'); err != nil {
		return nil // the parent has changed its mind
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the process, as it reads standard input
		_, _ = in.ReadByte()
		cancel(errors.New("the parent has ended"))
	}()
	return s.work(ctx, st, stock)
}
