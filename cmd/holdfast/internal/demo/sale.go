package demo

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"sync"
	"time"
)

// A sale is one run of the demo.
type sale struct {
	options
	spec  spec
	store *store // nil without a lock
	dir   string // of the ledger, and of locks that no other store keeps
	tally *tally
}

var errTimeUp = errors.New("time is up")

// openLimit is how long a backend may take to be opened.
const openLimit = 5 * time.Second

// newSale checks the flags, makes the ledger's directory, and opens the backend.
func newSale(ctx context.Context, o options) (*sale, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	s := &sale{options: o, tally: newTally()}
	s.spec = spec{
		Backend: o.backend, Config: o.config, TTL: o.ttl, Key: o.key, NoLock: o.noLock,
		Stock: o.stock, Think: o.think, Rest: o.rest, Workers: o.workers, Process: 1, Trace: o.trace,
	}
	var err error
	if s.dir, err = os.MkdirTemp("", "holdfast-demo-"); err != nil {
		return nil, err
	}
	s.spec.Ledger = filepath.Join(s.dir, "ledger")
	if s.processes > 1 && runtime.GOOS == "linux" { // elsewhere there is no file://
		s.spec.Folder = filepath.Join(s.dir, "locks")
	}
	if err := s.open(ctx); err != nil {
		_ = s.close()
		return nil, err
	}
	return s, nil
}

// open opens the backend in this process too if others use it, as it is here that errors are best
// told.
func (s *sale) open(ctx context.Context) (err error) {
	if s.noLock {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, openLimit)
	defer cancel()
	if s.store, err = s.spec.open(ctx); err != nil {
		return err
	}
	if s.store.local && s.processes > 1 {
		return usage("--processes %d: %s keeps locks in the memory of one process, "+
			"so that several would not exclude each other; give them a store to share, such as --backend redis://localhost:6379", s.processes, s.store.name)
	}
	if ttl := s.store.cfg.TTL; s.kill && ttl >= s.duration {
		return usage("--kill: the lock is free again after the TTL of %v, and the sale ends after %v; "+
			"give a shorter --ttl or a longer --duration", ttl, s.duration)
	}
	return nil
}

// close returns an error if not all traces were sent, from whichever process.
func (s *sale) close() (err error) {
	if s.store != nil {
		err = s.store.close()
	}
	if s.dir != "" {
		_ = os.RemoveAll(s.dir)
	}
	if err == nil {
		err = s.tally.unsent
	}
	return err
}

// run lets everybody buy and returns what came of it. An interruption, a store that fails in the
// middle and a sale whose time is up have a result too.
func (s *sale) run(ctx context.Context) (*result, error) {
	ledger, err := openLedger(s.spec.Ledger, s.stock, 0)
	if err != nil {
		return nil, err
	}
	defer ledger.close()
	saleCtx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)

	working, stop := context.WithCancel(ctx)
	var shown sync.WaitGroup
	shown.Go(func() { s.tally.progress(working, os.Stderr, s.stock) })
	over := time.AfterFunc(s.duration, func() { cancel(errTimeUp) })
	defer over.Stop()
	over.Stop()                        // the sale has not begun yet
	failed := s.work(saleCtx, func() { // when all processes are ready
		s.tally.begin()
		over.Reset(s.duration)
	})
	elapsed := time.Since(s.tally.since) // nobody else has the tally any more
	stop()
	shown.Wait()

	books, err := ledger.audit()
	if err != nil {
		return nil, err
	}
	r := s.result(books, elapsed)
	switch {
	case ctx.Err() != nil: // whatever failed on the way out
		r.Ended = "interrupted"
	case failed != nil:
		r.Ended, r.failed = "failed", failed
	case saleCtx.Err() != nil && books.left > 0:
		r.Ended = "time is up"
	}
	return r, nil
}

func (s *sale) work(ctx context.Context, begin func()) error {
	if s.processes == 1 {
		begin()
		return s.spec.work(ctx, s.store, s.tally.add)
	}
	victim := 0
	if s.kill {
		victim = s.processes
	}
	return runFleet(ctx, s.spec, s.processes, victim, s.tally, begin)
}

// result puts together what the ledger and the tally know, when nothing moves any more.
func (s *sale) result(books account, elapsed time.Duration) *result {
	t := s.tally
	r := &result{
		Ended: "sold out", Lock: !s.noLock, Key: s.key, Processes: s.processes, Workers: s.workers,
		Stock: s.stock, Sold: books.total(), Oversell: books.oversell(s.stock), ElapsedMS: ms(elapsed),
		Kill: t.kill, wantKill: s.kill,
	}
	killed := 0
	if t.kill != nil {
		killed = t.kill.Process
	}
	r.Shares = sharesOf(books.sold, s.processes, s.workers, killed)
	r.Fairness = fairnessOf(r.Shares)
	if s.store != nil {
		r.Backend, r.TTLMS = s.store.name, ms(s.store.cfg.TTL)
		r.Waits, r.Acquisitions, r.PerSecond = waitsOf(t.waits), len(t.waits), per(len(t.waits), elapsed)
		r.Lost, r.Refused = t.lost, books.refused
		r.Tokens = &tokens{books.first, books.highest, !books.doubled}
	}
	return r
}
