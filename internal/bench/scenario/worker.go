package scenario

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
)

// An order is what a worker process is to do. It says "ready" when it is at it, is told by lines on its standard input
// what comes next, and answers with JSON.
type order struct {
	Mode   string // load, hold, wait
	Impl   string
	Addr   string
	N      int    // goroutines, or keys to hold
	Keys   int    // different keys that are waited for
	Shared string // the judges' file
}

// Work is the whole of a worker process; arg is its order.
func Work(arg string) error {
	var o order
	if err := json.Unmarshal([]byte(arg), &o); err != nil {
		return err
	}
	runtime.GOMAXPROCS(1)
	im, ok := impl.Named(o.Impl)
	if !ok {
		return fmt.Errorf("no implementation %q", o.Impl)
	}
	client, err := open(context.Background(), im, o.Addr)
	if err != nil {
		return err
	}
	defer closing(im, client)
	in := bufio.NewScanner(os.Stdin)
	switch o.Mode {
	case "load":
		return workLoad(o, client, in)
	case "hold":
		return workHold(o, client, in)
	case "wait":
		return workWait(o, client, in)
	}
	return fmt.Errorf("no mode %q", o.Mode)
}

func workLoad(o order, client impl.Client, in *bufio.Scanner) error {
	all, unmap, err := judges(o.Shared, 1)
	if err != nil {
		return err
	}
	defer unmap()
	l := startLoad(context.Background(), client, o.N, func(int) string { return "bench-one" }, func(int) *judge { return &all[0] })
	fmt.Println("ready")
	in.Scan()
	l.begin()
	in.Scan()
	return json.NewEncoder(os.Stdout).Encode(l.end())
}

func workHold(o order, client impl.Client, in *bufio.Scanner) error {
	held := make([]impl.Held, o.N)
	errs := make([]error, o.N)
	var tasks sync.WaitGroup
	limit := make(chan struct{}, 32)
	for i := range held {
		limit <- struct{}{}
		tasks.Go(func() {
			held[i], errs[i] = client.Lock(context.Background(), "bench-"+strconv.Itoa(i))
			<-limit
		})
	}
	tasks.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	fmt.Println("ready")
	in.Scan()
	runtime.KeepAlive(held) // a guard that is dropped is renewed no more
	os.Exit(0)              // the server is flushed anyway; thousands of releases would only take time
	return nil
}

// usage is what the waiters of a process cost it, each.
type usage struct {
	Heap, Stack, Goroutines float64
	Waiting                 int // how many still wait, and so count
}

func workWait(o order, client impl.Client, in *bufio.Scanner) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := memory()
	got := make(chan struct{}, o.N)
	for i := range o.N {
		go func() {
			key := "bench-" + strconv.Itoa(i%o.Keys)
			for ctx.Err() == nil {
				if _, err := client.Lock(ctx, key); err == nil {
					got <- struct{}{}
					return
				}
			}
		}()
	}
	fmt.Println("ready")
	in.Scan()
	after := memory()
	n := float64(o.N)
	u := usage{
		Heap: float64(after.HeapAlloc-min(before.HeapAlloc, after.HeapAlloc)) / n, Waiting: o.N - len(got),
		Stack:      float64(after.StackInuse-min(before.StackInuse, after.StackInuse)) / n,
		Goroutines: float64(after.goroutines-before.goroutines) / n,
	}
	if err := json.NewEncoder(os.Stdout).Encode(u); err != nil {
		return err
	}
	in.Scan()
	os.Exit(0)
	return nil
}

type memStats struct {
	runtime.MemStats
	goroutines int
}

func memory() (m memStats) {
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m.MemStats)
	m.goroutines = runtime.NumGoroutine()
	return m
}

// A worker is a worker process, seen from its parent.
type worker struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

// startWorker starts one, and waits until it is ready.
func startWorker(env *Env, o order) (*worker, error) {
	arg, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	w := &worker{cmd: exec.Command(env.Worker[0], append(env.Worker[1:], string(arg))...)}
	w.cmd.Stderr = os.Stderr
	w.cmd.Env = append(os.Environ(), WorkerEnv+"=1")
	if w.in, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	w.out = bufio.NewReader(out)
	return w, w.cmd.Start()
}

// WorkerEnv is set in the environment of worker processes.
const WorkerEnv = "HOLDFAST_BENCH_WORKER"

func (w *worker) ready(limit time.Duration) error {
	late := time.AfterFunc(limit, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	line, err := w.out.ReadString('\n')
	if err == nil && line != "ready\n" {
		err = fmt.Errorf("a worker says %q", line)
	}
	return err
}

// next tells the worker to go on.
func (w *worker) next() error {
	_, err := io.WriteString(w.in, "next\n")
	return err
}

// answer reads its answer.
func (w *worker) answer(v any) error {
	late := time.AfterFunc(3*drain, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	line, err := w.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("a worker did not answer: %w", err)
	}
	return json.Unmarshal(line, v)
}

// stop waits for its end, and sees to it.
func (w *worker) stop() {
	if w == nil || w.cmd.Process == nil {
		return
	}
	_ = w.in.Close()
	late := time.AfterFunc(2*drain, func() { _ = w.cmd.Process.Kill() })
	defer late.Stop()
	_ = w.cmd.Wait()
}
