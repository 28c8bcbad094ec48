package demo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/holdfast-go/holdfast/backend"
)

var (
	// ErrUsage is wrapped by errors about flags: nothing was tried.
	ErrUsage = errors.New("bad usage")
	// ErrInterrupted is what an interrupted sale ends with, after its report.
	ErrInterrupted = errors.New("interrupted")
)

func usage(format string, args ...any) error { return &usageError{fmt.Sprintf(format, args...)} }

// A usageError is ErrUsage, but does not say so: the text alone is clear.
type usageError struct{ text string }

func (e *usageError) Error() string        { return e.text }
func (e *usageError) Is(target error) bool { return target == ErrUsage }

// options are the flags.
type options struct {
	stock, workers, processes int
	think, rest               time.Duration
	ttl, duration             time.Duration
	key, backend, config      string
	trace                     string
	noLock, kill, json        bool
}

const long = `A flash sale: buyers in several goroutines, and in several processes, buy from one small
stock. Each looks how much is left, thinks (pays), and writes down what is left then. Two that do so
at once sell one item twice, which a lock prevents; see what happens without one by --no-lock.

The stock is what the guards protect: it refuses fencing tokens that are older than one it has seen,
so that not even a buyer that lost its lock without knowing could sell.`

const examples = `  holdfast demo                                               # in memory: nothing to install
  holdfast demo --no-lock                                     # what it is for
  holdfast demo --processes 2 --kill                          # in a folder, on Linux: nothing to install either
  holdfast demo --backend redis://localhost:6379 --processes 2
  holdfast demo --backend redis://localhost:6379 --processes 2 --kill
  holdfast demo --trace http://localhost:4318                 # the waits in Jaeger
  HOLDFAST_BACKEND=redis://:secret@localhost:6379 holdfast demo --processes 4 --json`

// Command returns the command demo.
func Command() *cobra.Command {
	var o options
	cmd := &cobra.Command{
		Use:     "demo",
		Short:   "Sell a small stock to many buyers, without selling too much",
		Long:    long,
		Example: examples,
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			for _, name := range []string{"backend", "config", "trace"} {
				// An empty value is a variable that was not set, more likely than a wish for the
				// default.
				if f := cmd.Flags().Lookup(name); f.Changed && f.Value.String() == "" {
					return usage("--%s is empty", name)
				}
			}
			if cmd.Flags().Changed("ttl") && o.ttl <= 0 { // 0 is the default only for who does not say so
				return usage("--ttl %v is not positive", o.ttl)
			}
			return Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.IntVar(&o.stock, "stock", 200, "items to sell")
	f.IntVar(&o.workers, "workers", 8, "buyers in each process")
	f.IntVar(&o.processes, "processes", 1, "processes; more than one needs a store that they share")
	f.DurationVar(&o.think, "think", time.Millisecond, "time between looking and buying, under the lock")
	f.DurationVar(&o.rest, "rest", time.Millisecond, "about how long a buyer rests between two purchases; with 0\n"+
		"the one who was just served is the quickest to ask again")
	f.DurationVar(&o.duration, "duration", 8*time.Second, "end then, even if not all is sold")
	f.StringVar(&o.backend, "backend", "", "URL of the store that keeps the lock, such as redis://host:6379\n"+
		"(default: the configuration's, else mem://, and for several processes a folder of their own on Linux)")
	f.StringVar(&o.config, "config", "", "configuration file, YAML or JSON;\n"+
		"HOLDFAST_... variables win over it, and flags over both")
	f.DurationVar(&o.ttl, "ttl", 0,
		"how long a crashed holder blocks others (default: the configuration's, else 2s)")
	f.StringVar(&o.key, "key", "flash-sale", "name of the lock")
	f.StringVar(&o.trace, "trace", "", "send traces to this OTLP endpoint, such as Jaeger:\n"+
		"http://localhost:4318, or grpc://localhost:4317; https and grpcs with TLS (default: the configuration's)")
	f.BoolVar(&o.noLock, "no-lock", false, "take no lock, and sell too much")
	f.BoolVar(&o.kill, "kill", false,
		"kill one of the processes while it holds the lock, and see when the lock is free again")
	f.BoolVar(&o.json, "json", false, "print the result as JSON")
	return cmd
}

// check refuses what makes no sense before anything is opened.
func (o options) check() error {
	for _, f := range []struct {
		name     string
		n, limit int
	}{{"stock", o.stock, math.MaxInt32}, {"workers", o.workers, 1000}, {"processes", o.processes, 64}} {
		if f.n < 1 || f.n > f.limit {
			return usage("--%s %d is not between 1 and %d", f.name, f.n, f.limit)
		}
	}
	switch {
	case o.think < 0:
		return usage("--think %v is negative", o.think)
	case o.rest < 0:
		return usage("--rest %v is negative", o.rest)
	case o.duration <= 0:
		return usage("--duration %v is not positive", o.duration)
	case o.trace != "" && o.noLock:
		return usage("--trace shows waiting for the lock: not together with --no-lock")
	case o.kill && o.noLock:
		return usage("--kill shows a lock becoming free: not together with --no-lock")
	case o.kill && o.processes < 2:
		return usage("--kill needs --processes 2 or more: somebody has to survive")
	}
	if err := backend.ValidateKey(o.key); err != nil {
		return fmt.Errorf("--key: %w", err)
	}
	return nil
}

// WorkerCommand returns the hidden command that [Command] runs in the other processes.
func WorkerCommand() *cobra.Command {
	return &cobra.Command{
		Use:    workerName,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runWorker(cmd.Context(), os.Stdin, os.Stdout)
		},
	}
}

// Run holds a sale and prints what came of it on standard output, and the progress on standard
// error. The error says if anything went wrong: more sold than there was although there is a lock,
// a store that fails, traces that were not sent, an interruption.
func Run(ctx context.Context, o options) (err error) {
	s, err := newSale(ctx, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	r, err := s.run(ctx)
	if err != nil {
		return err
	}
	if err := r.print(os.Stdout, o.json); err != nil {
		return err
	}
	return r.err()
}
