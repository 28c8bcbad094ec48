package demo

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/cmd/holdfast/internal/opening"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/locker/config"
)

// defaultTTL is short, for a demo: nobody wants to wait for half a minute to see a killed holder's
// lock be free again.
const defaultTTL = 2 * time.Second

// A spec is what the crew of one process is to do. A child gets it on its standard input and not as
// arguments, which every user of the machine can read: Backend may hold a password.
type spec struct {
	Backend string // instead of the configuration's; empty for that
	Folder  string // for the locks if neither names a store; empty for memory
	Config  string // path; empty for none
	TTL     time.Duration
	Key     string
	NoLock  bool
	Trace   string // URL of an OTLP endpoint; empty for none

	Ledger  string // path
	Stock   int
	Think   time.Duration // between looking and buying
	Rest    time.Duration // after buying, on average
	Workers int

	Process  int // number, from 1
	FreezeAt int // the turn at which to stop in mid-hold and wait to be killed; 0 for never
}

// A store is an open backend with what is to be known about it.
type store struct {
	backend.Backend
	name  string // the URL without secrets
	local bool   // in the memory of one process
	cfg   locker.Config
	trace *tracer // nil for none
}

// open opens the backend, and has it traced if asked to. Every process of a sale comes through
// here, the parent included.
func (s spec) open(ctx context.Context) (*store, error) {
	f, err := config.Load(s.Config)
	if err != nil {
		return nil, err
	}
	if s.Backend != "" {
		if f.Backend, err = config.ParseURL(s.Backend); err != nil {
			return nil, fmt.Errorf("--backend: %w", err)
		}
	}
	if f.Backend.IsZero() && s.Folder != "" {
		if f.Backend, err = opening.FileURL(s.Folder); err != nil {
			return nil, err
		}
	}
	b, cfg, err := opening.Open(ctx, f)
	if err != nil {
		return nil, err
	}
	cfg.TTL = cmp.Or(s.TTL, cfg.TTL, defaultTTL)
	cfg.Service = cmp.Or(cfg.Service, "holdfast demo")
	cfg.Require.Fencing = true                                 // the ledger refuses by token
	if _, err := locker.New(b, locker.Bare, cfg); err != nil { // tells now of a TTL that is too long, and the like
		_ = b.Close()
		return nil, err
	}
	_, local := b.(*membackend.Backend)
	st := &store{Backend: b, name: cmp.Or(f.Backend.String(), config.DefaultBackend), local: local, cfg: cfg}
	endpoint := cmp.Or(s.Trace, f.Tracing.Endpoint.Reveal())
	if endpoint == "" {
		return st, nil
	}
	if st.trace, err = startTracing(ctx, endpoint, s.Process); err == nil {
		err = st.trace.watch(st)
	}
	if err != nil {
		_ = b.Close()
		return nil, err
	}
	return st, nil
}

// closeGrace is how long a crew's locks may take to be given back when it is over.
const closeGrace = 3 * time.Second

// work runs the crew of one process on st, which is nil without a lock, until it is done.
func (s spec) work(ctx context.Context, st *store, emit func(event)) (err error) {
	stock, err := openLedger(s.Ledger, s.Stock, s.Process)
	if err != nil {
		return err
	}
	defer stock.close()
	c := &crew{spec: s, store: st, stock: stock, emit: emit}
	if st != nil {
		lock, err := locker.New(st, stock.bind, st.cfg)
		if err != nil {
			return err
		}
		c.lock = lock
		defer func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeGrace)
			defer cancel()
			_ = lock.Shutdown(ctx) // what a silent store keeps runs out by itself
		}()
	}
	return c.run(ctx)
}
