package backendtest

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

// workerEnv tells a process that it is a worker, and what to do.
const workerEnv = "HOLDFAST_BACKENDTEST_WORKER"

// orders are what a worker process is told.
type orders struct {
	URL     string
	Key     string
	TTL     time.Duration
	Name    string // of the process
	History string // the file that it records to

	Workers  int // 0 is workersEach
	Passes   int // see waiting.Config, as for Fallback
	Fallback time.Duration
	Sale     bool          // buy, see FlashSale; History is a journal then
	Work     time.Duration // of FlashSale, under the lock
	Turns    bool          // record what FairProcesses looks at as well
	Relay    bool          // hand on by tickets, see Relay
	Open     bool          // open and close what the lock protects, see OneOpen
}

// What parent and worker say to each other, a line each.
const (
	sayHold    = "hold"    // to the worker: lock, and keep it
	sayHolding = "holding" // from the worker: that is done
	sayLocked  = "locked"  // from the worker: one more hold is over
)

// workersEach is how many goroutines compete in each process.
const workersEach = 8

// Main does the work of a process that [Processes] started, and then ends it. In any other process
// it does nothing. Call it first thing in TestMain, or in an init function of the test's package.
func Main() {
	text := os.Getenv(workerEnv)
	if text == "" {
		return
	}
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	switch {
	case err != nil:
	case o.Sale:
		err = sell(o)
	case o.Relay:
		err = relay(o)
	case o.Open:
		err = openAndClose(o)
	default:
		err = work(o)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "worker:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// A team is the workers of one process.
type team struct {
	orders
	locker *locker.Client[struct{}]
	rec    *history.Recorder
	hold   atomic.Bool // the parent wants the lock to be kept by whoever gets it next
	mu     sync.Mutex  // one line at a time
}

// work competes for the lock.
func work(o orders) error {
	c := &team{orders: o}
	var observer locker.Observer
	if o.Turns {
		observer = &turns{c}
	}
	return c.run(locker.Bare, observer, func(line string) {
		c.hold.Store(line == sayHold)
	}, c.compete)
}

// run opens the store, the file to record to, and a Client whose guards protect what bind makes.
// The workers then do their part, see serve, and all of it is closed.
func (c *team) run(
	bind locker.Binder[struct{}], observer locker.Observer, heard func(line string),
	do func(ctx context.Context, worker string) error,
) error {
	b, err := backend.Open(context.Background(), c.URL)
	if err != nil {
		return err
	}
	defer func() { _ = b.Close() }()
	if c.rec, err = history.NewRecorder(c.History, c.Name); err != nil {
		return err
	}
	defer func() { _ = c.rec.Close() }()
	wait := waiting.Config{Passes: c.Passes, Fallback: c.Fallback}
	if c.locker, err = locker.New(b, bind,
		locker.Config{TTL: c.TTL, Wait: wait, Observer: observer}); err != nil {
		return err
	}
	err = serve(cmp.Or(c.Workers, workersEach), heard, do)
	closing, stop := context.WithTimeout(context.Background(), patience)
	defer stop()
	if e := c.locker.Shutdown(closing); err == nil {
		err = e
	}
	return err
}

// serve has n workers do their part until they are done, or the parent closes our input, by intent
// or by its death. Then ctx ends, and the process does even if somebody does not. heard takes what
// the parent says. The first error ends the others, and is returned.
func serve(n int, heard func(line string),
	do func(ctx context.Context, worker string) error,
) (err error) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		for in := bufio.NewScanner(os.Stdin); in.Scan(); {
			heard(in.Text())
		}
		cancel()
		time.AfterFunc(2*patience, func() { os.Exit(2) })
	}()
	errs := make(chan error, n)
	for i := range n {
		go func() { errs <- do(ctx, fmt.Sprint(i)) }()
	}
	for range n {
		if e := <-errs; e != nil && err == nil {
			err = e
			cancel()
		}
	}
	return err
}

func (c *team) say(line string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Println(line)
}

// compete locks and unlocks until ctx is done.
func (c *team) compete(ctx context.Context, worker string) error {
	for ctx.Err() == nil {
		asked := history.Now()
		g, err := c.locker.Lock(ctx, c.Key)
		if ctx.Err() != nil {
			_ = g.Unlock()
			return nil
		}
		if err != nil {
			return err
		}
		event := history.Event{Worker: worker, Key: c.Key, Token: g.Hold().Token, Asked: asked}
		if err := c.believe(ctx, g, event); err != nil {
			return err
		}
		if err := g.Unlock(); err != nil {
			return err
		}
		c.say(sayLocked)
	}
	return nil
}

// believe records a hold from now on, for a moment of work, or for as long as the parent wants.
func (c *team) believe(ctx context.Context, g *locker.Guard[struct{}], event history.Event) error {
	belief, err := c.rec.Begin(event, history.At(g.Until()))
	if err != nil {
		return err
	}
	for kept := c.hold.Load(); kept && ctx.Err() == nil; time.Sleep(c.TTL / 20) {
		c.say(sayHolding)
		if err := belief.Renew(history.At(g.Until())); err != nil {
			return err
		}
	}
	time.Sleep(rand.N(time.Millisecond))
	return belief.End(history.At(g.Until()))
}
