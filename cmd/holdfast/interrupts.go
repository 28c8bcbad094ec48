package main

import (
	"context"
	"os"
	"os/signal"
	"slices"
	"sync"
	"syscall"
)

// interrupts are the signals to this process that ask it to end. They go to the command that runs,
// if one does, and end the context of everything else.
type interrupts struct {
	mu    sync.Mutex
	first os.Signal
	to    chan<- os.Signal // the command's
	end   context.CancelCauseFunc
}

var sent interrupts

// An interruption is why a context has ended.
type interruption struct{ os.Signal }

func (i interruption) Error() string        { return i.String() + " received" }
func (i interruption) Is(target error) bool { return target == context.Canceled }

// asksToEnd are the signals that ask a process to end, but for those that were ignored when this
// one began, as nohup and a script's "&" have it: they stay so, here and in the command.
func asksToEnd() []os.Signal {
	// Go keeps SIGHUP and SIGINT ignored, and tells; the others it handles before anybody can look.
	// A shell ignores SIGQUIT where it ignores SIGINT.
	if quit := syscall.SIGQUIT; signal.Ignored(os.Interrupt) {
		signal.Ignore(quit) // safeguard: run-ignored
	}
	all := []os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}
	return slices.DeleteFunc(all, signal.Ignored)
}

// watch returns a context that ends with the first of the signals. The second ends the process at
// once.
func (i *interrupts) watch(ctx context.Context) context.Context {
	ctx, i.end = context.WithCancelCause(ctx)
	arrive := make(chan os.Signal, 8)
	signal.Notify(arrive, asksToEnd()...)
	go func() {
		for s := range arrive {
			i.arrived(s)
		}
	}()
	return ctx
}

func (i *interrupts) arrived(s os.Signal) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.first == nil {
		i.first = s
		i.end(interruption{s})
	}
	if i.to == nil {
		signal.Reset(asksToEnd()...)
		return
	}
	select {
	case i.to <- s:
	default: // as many are there already
	}
}

// forward has signals go to a command from now on, until stop is called. It does not if one has
// arrived before, which nobody would tell the command of.
func (i *interrupts) forward(to chan<- os.Signal) (stop func(), ok bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.first != nil {
		return nil, false
	}
	i.to = to
	return func() {
		i.mu.Lock()
		defer i.mu.Unlock()
		if i.to = nil; i.first != nil {
			signal.Reset(asksToEnd()...)
		}
	}, true
}

// A death is how this process is to end if a signal is why: of that signal, so that a shell ends
// the script or the loop that it is in.
type death struct {
	of    syscall.Signal // 0 for none
	group bool           // the signal was the terminal's, and reached the command alone
}
