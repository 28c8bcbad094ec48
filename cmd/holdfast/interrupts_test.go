package main

import (
	"context"
	"errors"
	"os"
	"syscall"
	"testing"
)

// A signal goes to the command that runs, and none is started when one has arrived.
func TestSignalsReachTheCommand(t *testing.T) {
	ctx, end := context.WithCancelCause(t.Context())
	i := &interrupts{end: end}
	to := make(chan os.Signal, 1)
	stop, ok := i.forward(to)
	if !ok {
		t.Fatal("no command is started")
	}
	i.arrived(syscall.SIGTERM)
	if s := <-to; s != syscall.SIGTERM {
		t.Errorf("the command gets %v", s)
	}
	if err := context.Cause(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("the context ends with %v", err)
	}
	if status, of := interruptedBy(ctx); status != 143 || of.of != syscall.SIGTERM {
		t.Errorf("it ends with %d, %v", status, of)
	}
	stop()
	if _, ok := i.forward(to); ok {
		t.Error("a command is started that nobody tells of the signal")
	}
}
