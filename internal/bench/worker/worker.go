// Package worker is what a process of the benchmark does: each cell is measured in processes of
// their own, so that one implementation's goroutines, garbage and connections are not in another's
// figures, and so that a library that hangs can be ended.
package worker

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"strconv"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// Env is set in the environment of worker processes, to their order.
const Env = "HOLDFAST_BENCH_ORDER"

// The modes of an order.
const (
	Load  = "load"  // goroutines lock and unlock as fast as they can
	Relay = "relay" // two clients hand one lock to each other, each holds it for Gap
	Hold  = "hold"  // Keys are locked and kept
	Wait  = "wait"  // N goroutines wait for what others hold
	Once  = "once"  // N keys are locked and unlocked once
)

// An Order is what a process is to do. It says "ready" when it is at it, begins to count when it is
// told by a line, and ends and answers with a [Result] at the next one.
type Order struct {
	Mode    string
	Impl    string
	Addr    string
	CPUs    []int // where it runs, if that can be chosen
	N       int   // goroutines, or keys of Hold and Once
	Keys    int   // different keys
	Warm    time.Duration
	Gap     time.Duration // before each Lock
	Judges  string        // the file of the judges that processes share; "" for one process
	Profile string        // a file for a CPU profile
}

// A Result is what a process has done between begin and end.
type Result struct {
	Shares    []int64        // pairs, by goroutine
	Wait      stats.Snapshot // of Lock; of Relay, from Unlock to the other's Lock
	Elapsed   time.Duration
	CPU       time.Duration
	Allocs    float64 // of the whole process
	Errors    int64
	LastError string
	Faults    int64

	Heap, Stack, Goroutines float64 // of Wait, for each
	Waiting                 int
}

// key is the name of key i.
func key(i int) string { return "bench-" + strconv.Itoa(i) }

// Main is the whole of a worker process. It does not return.
func Main(order string) {
	if err := run(order); err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0) // whatever still runs: the server is flushed anyway
}

func run(text string) error {
	var o Order
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		return err
	}
	if len(o.CPUs) > 0 {
		if err := pin.To(0, o.CPUs...); err != nil {
			return err
		}
		runtime.GOMAXPROCS(len(o.CPUs)) // pools are made for as many CPUs as there are for us
	}
	im, ok := impl.Named(o.Impl)
	if !ok {
		return fmt.Errorf("no implementation %q", o.Impl)
	}
	open := func() (impl.Client, error) {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		c, err := im.Open(ctx, o.Addr)
		if err != nil {
			return nil, fmt.Errorf("%s: open: %w", im.Name, err)
		}
		return c, nil
	}
	client, err := open()
	if err != nil {
		return err
	}
	t := &task{Order: o, in: bufio.NewScanner(os.Stdin)}
	switch o.Mode {
	case Load:
		return t.load(client)
	case Relay:
		other, err := open()
		if err != nil {
			return err
		}
		return t.relay(client, other)
	case Hold:
		return t.hold(client)
	case Wait:
		return t.wait(client)
	case Once:
		return t.once(client)
	}
	return fmt.Errorf("no mode %q", o.Mode)
}

// A task is an order that is being done.
type task struct {
	Order
	in *bufio.Scanner
}

// ready waits until the measurement begins.
func (t *task) ready() error {
	fmt.Println("ready")
	t.in.Scan()
	if t.Profile == "" {
		return nil
	}
	f, err := os.Create(t.Profile)
	if err != nil {
		return err
	}
	return pprof.StartCPUProfile(f)
}

// end waits until the measurement is over.
func (t *task) end() {
	t.in.Scan()
	pprof.StopCPUProfile()
}

func (t *task) answer(r Result) error { return json.NewEncoder(os.Stdout).Encode(r) }

// A meter measures what the process uses.
type meter struct {
	began  time.Time
	used   time.Duration
	allocs uint64
}

func allocs() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.Mallocs
}

func start() meter {
	n := allocs()
	return meter{time.Now(), pin.Used(), n}
}

func (m meter) stop(r *Result) {
	r.Elapsed, r.CPU = time.Since(m.began), pin.Used()-m.used
	r.Allocs = float64(allocs() - m.allocs)
}
