// Command demo is the tour of holdfast: go run ./cmd/demo. It has only the stores that need no
// server, so that it is built in seconds; holdfast demo is the same with all of them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/pflag"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/cmd/internal/demo"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C ends things in order, the second at once
	os.Exit(run(ctx, os.Args[1:]))
}

func run(ctx context.Context, args []string) int {
	err := start(ctx, args)
	if err == nil {
		return 0
	}
	for line := range strings.Lines(err.Error()) {
		fmt.Fprintf(os.Stderr, "demo: %s\n", strings.TrimSpace(line))
	}
	switch {
	case errors.Is(err, demo.ErrInterrupted), errors.Is(err, context.Canceled) && ctx.Err() != nil:
		return 130
	case errors.Is(err, demo.ErrUsage), errors.Is(err, backend.ErrInvalid):
		return 2
	}
	return 1
}

func start(ctx context.Context, args []string) error {
	if len(args) > 0 && args[0] == demo.Worker {
		return demo.Work(ctx, os.Stdin, demo.Open)
	}
	var o demo.Options
	f := pflag.NewFlagSet("demo", pflag.ContinueOnError)
	o.Flags(f, false)
	f.BoolVar(&o.NoColor, "no-color", false, "print no colours")
	f.Usage = func() { fmt.Printf("%s\n\nFlags:\n%s", demo.Long, f.FlagUsagesWrapped(80)) }
	err := f.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		return nil
	case err != nil:
		return demo.Usage("%v; --help lists the flags", demo.FlagError(err))
	case f.NArg() > 0:
		return demo.Usage("%q is no flag; --help lists them", f.Arg(0))
	}
	return demo.Run(ctx, o, demo.Open)
}
