// Command holdfast shows what locks do: holdfast demo.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the first Ctrl-C ends things in order, the second at once
	os.Exit(run(ctx, os.Args[1:]))
}
