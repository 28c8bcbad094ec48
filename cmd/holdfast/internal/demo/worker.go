package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
)

// workerName is the hidden subcommand for the other processes of a sale.
//
// The parent writes the spec on one line, and another line when all processes are ready, so that no
// process has sold everything before the last has started. Then it keeps the pipe open for as long
// as the work is to go on: the pipe ends with the parent, however that ends, and the worker ends
// with the pipe. What the worker has to tell is JSON, an event per line.
const workerName = "demo-worker"

func runWorker(ctx context.Context, in io.Reader, out io.Writer) error {
	emit := emitter(out)
	err := workUnderParent(ctx, bufio.NewReader(in), emit)
	if errors.Is(err, ErrUsage) {
		return err // there is no parent
	}
	if err != nil {
		emit(event{Kind: evFailed, Error: err.Error()})
		return errReported
	}
	return nil
}

var errReported = errors.New("failed, and told the parent why")

func workUnderParent(ctx context.Context, in *bufio.Reader, emit func(event)) error {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return usage("%s is for holdfast demo to run, not for people", workerName)
	}
	var s spec
	if err := json.Unmarshal(line, &s); err != nil {
		return fmt.Errorf("spec: %w", err)
	}
	var st *store
	if !s.NoLock {
		if st, err = s.open(ctx); err != nil {
			return err
		}
		defer func() {
			if err := st.close(); err != nil {
				emit(event{Kind: evUnsent, Error: err.Error()})
			}
		}()
	}
	emit(event{Kind: evReady})
	if _, err := in.ReadBytes('\n'); err != nil {
		return nil // the parent has changed its mind
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() { // ends with the process, as it reads standard input
		_, _ = in.ReadByte()
		cancel(errors.New("the parent has ended"))
	}()
	return s.work(ctx, st, emit)
}

// emitter returns a function that writes events, one at a time. If nobody reads any more, nobody
// needs to know.
func emitter(w io.Writer) func(event) {
	var mu sync.Mutex
	enc := json.NewEncoder(w)
	return func(e event) {
		mu.Lock()
		defer mu.Unlock()
		_ = enc.Encode(e)
	}
}
