package demo

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	_ "github.com/holdfast-go/holdfast/backend/filebackend" // file:// on Linux
	_ "github.com/holdfast-go/holdfast/backend/membackend"  // mem://
	"github.com/holdfast-go/holdfast/locker"
)

// defaultTTL is short, for a demo: nobody wants to wait for half a minute to see a killed holder's
// lock be free again.
const defaultTTL = 2 * time.Second

// Service is who holds the lock, to those who wait for it, and what the traces of a sale are of.
const Service = "holdfast-demo"

// A Spec is what one process of a sale is to do. A child gets it on its standard input and not as
// arguments, which every user of the machine can read: Backend may hold a password.
type Spec struct {
	Options
	Process int    // number, from 1
	Folder  string // URL of the store if nothing else names one; empty for memory
	Plain   bool   // open it by [Open], whatever else the main has and is configured to

	Ledger string // path

	FreezeAt int // the turn at which to stop in mid-hold and wait to be killed; 0 for never
	SlowAt   int // the turn of the last process at which to pay for ten times as long; 0 for never
}

// A Store is where the lock of a sale is kept.
type Store struct {
	backend.Backend
	Name   string // the URL without secrets
	Config locker.Config

	Span func(ctx context.Context, name string) (_ context.Context, end func()) // nil: no traces

	Flush func() error // sends the traces that are left; nil likewise
}

// An Opener opens the store of a process.
type Opener func(ctx context.Context, s Spec) (*Store, error)

// Open is the [Opener] of a main that has mem:// and file:// only.
func Open(ctx context.Context, s Spec) (*Store, error) {
	url := cmp.Or(s.Backend, s.Folder, "mem://")
	b, err := backend.Open(ctx, url)
	if err != nil && s.Backend != "" {
		err = fmt.Errorf("--backend: %w", err)
	}
	return &Store{Backend: b, Name: backend.Redact(url)}, err
}

// open opens the store. Every process of a sale comes through here, the parent included.
func (s Spec) open(ctx context.Context, with Opener) (*Store, error) {
	if s.Plain {
		with = Open
	}
	st, err := with(ctx, s)
	if err != nil {
		return nil, err
	}
	cfg := &st.Config
	cfg.TTL = cmp.Or(s.TTL, cfg.TTL, defaultTTL)
	cfg.Service = cmp.Or(cfg.Service, Service)
	cfg.Classes = append(cfg.Classes, "flash-sale*") // what spans call its locks
	cfg.Require.Fencing = true                       // the ledger refuses by token
	// This tells now of a TTL that is too long, and the like.
	if _, err := locker.New(st, locker.Bare, *cfg); err != nil {
		_ = st.close()
		return nil, err
	}
	return st, nil
}

// local reports whether it is in the memory of one process.
func (st *Store) local() bool { return strings.HasPrefix(st.Name, "mem:") }

// span begins a span of the sale's own, such as a buyer's turn.
func (st *Store) span(ctx context.Context, name string) (_ context.Context, end func()) {
	if st == nil || st.Span == nil {
		return ctx, func() {}
	}
	return st.Span(ctx, name)
}

// close closes the store. The error says if traces did not get through: the sale itself went as
// reported.
func (st *Store) close() error {
	_ = st.Close()
	if st.Flush == nil {
		return nil
	}
	return st.Flush()
}
