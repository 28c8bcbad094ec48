package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"
)

// A fleet is the other processes of a sale.
type fleet struct {
	tally    *tally
	children []*child
	fail     context.CancelCauseFunc // ends all of them because of one
	begin    func()                  // called when all are ready
}

// A child is one process, which runs [WorkerCommand].
type child struct {
	spec  spec
	cmd   *exec.Cmd
	in    io.WriteCloser
	out   io.ReadCloser
	ready chan struct{} // closed when the child's backend is open, or the child has ended
	ended error
}

// killAfter is how long a child that was told to end may take.
const killAfter = closeGrace + 2*time.Second

// runFleet runs spec in n processes until they are done or ctx ends. The error is the first that
// one of them reported.
func runFleet(ctx context.Context, s spec, n, victim int, t *tally, begin func()) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f := &fleet{tally: t, fail: cancel, begin: begin}
	var wg sync.WaitGroup
	defer wg.Wait()
	for i := 1; i <= n; i++ {
		s.Process, s.FreezeAt = i, 0
		if i == victim {
			s.FreezeAt = killTurn
		}
		c, err := start(ctx, s)
		if err != nil {
			cancel(err)
			return fmt.Errorf("process %d: %w", i, err)
		}
		f.children = append(f.children, c)
		wg.Go(func() { f.follow(ctx, c) })
	}
	f.letGo(ctx)
	wg.Wait()
	for _, c := range f.children {
		if c.ended != nil {
			return c.ended
		}
	}
	return nil
}

// killTurn is the turn at which the process that is to be killed stops in mid-hold: not its first,
// so that it is seen to work.
const killTurn = 3

func start(ctx context.Context, s spec) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	c := &child{spec: s, ready: make(chan struct{})}
	c.cmd = exec.CommandContext(ctx, self, workerName)
	c.cmd.Stderr = os.Stderr
	c.cmd.Cancel = func() error { return c.in.Close() } // it then gives its locks back and ends
	c.cmd.WaitDelay = killAfter
	if c.in, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	if c.out, err = c.cmd.StdoutPipe(); err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	_ = json.NewEncoder(c.in).Encode(s) // a child that does not read has ended, which follow finds
	return c, nil
}

// letGo waits until every child is ready or has ended, and gives the sign to begin.
func (f *fleet) letGo(ctx context.Context) {
	for _, c := range f.children {
		select {
		case <-c.ready:
		case <-ctx.Done():
			return
		}
	}
	f.begin()
	for _, c := range f.children {
		_, _ = io.WriteString(c.in, "\n")
	}
}

// follow takes in what a child tells until it ends.
func (f *fleet) follow(ctx context.Context, c *child) {
	ready := sync.OnceFunc(func() { close(c.ready) })
	defer ready()
	var told error
	for dec := json.NewDecoder(c.out); ; {
		var e event
		if err := dec.Decode(&e); err != nil {
			break // the end; or the half line of one that was killed
		}
		switch e.Kind {
		case evReady:
			ready()
		case evFailed:
			told = errors.New(e.Error)
		case evUnsent:
			f.tally.notSent(e.Error)
		case evFrozen:
			f.tally.killed(c.spec.Process, c.cmd.Process.Pid, e.Token)
			_ = c.cmd.Process.Kill()
		default:
			f.tally.add(e)
		}
	}
	err := c.cmd.Wait()
	switch {
	case f.tally.wasKilled(c.spec.Process), ctx.Err() != nil && told == nil:
	case told != nil:
		c.ended = told
	case err != nil:
		c.ended = fmt.Errorf("process %d: %w", c.spec.Process, err)
	}
	if c.ended != nil {
		f.fail(c.ended)
	}
}
