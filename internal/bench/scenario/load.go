package scenario

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/pin"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// A load is n goroutines that lock and unlock as fast as they can. What they do counts from begin to end.
type load struct {
	client impl.Client
	key    func(i int) string
	judge  func(i int) *judge

	phase    atomic.Int32
	shares   []atomic.Int64
	wait     stats.Hist // of Lock; whoever still waits at the end counts with the time so far
	pair     stats.Hist // of Lock and Unlock
	errors   atomic.Int64
	last     atomic.Pointer[string]
	finished atomic.Int64

	tasks  sync.WaitGroup
	cancel context.CancelFunc
	began  time.Time
	used   time.Duration // until it began, and from then on when it has been stopped
	lasted time.Duration
}

// The phases of a load.
const (
	warming = iota
	measuring
	ending
)

// A loadResult is what a load has done, in this process or another.
type loadResult struct {
	Shares     []int64
	Wait, Pair stats.Snapshot
	Elapsed    time.Duration
	CPU        time.Duration
	Errors     int64
	LastError  string
	Stuck      int64 // goroutines that did not come back though their ctx was cancelled
}

// startLoad starts the goroutines.
func startLoad(ctx context.Context, client impl.Client, n int, key func(int) string, j func(int) *judge) *load {
	l := &load{client: client, key: key, judge: j, shares: make([]atomic.Int64, n)}
	ctx, l.cancel = context.WithCancel(ctx)
	for i := range n {
		l.tasks.Go(func() {
			defer l.finished.Add(1)
			me := int64(os.Getpid())<<20 + int64(i) + 1
			for l.phase.Load() < ending {
				l.once(ctx, i, me)
			}
		})
	}
	return l
}

// once makes one acquisition.
func (l *load) once(ctx context.Context, i int, me int64) {
	key, began := l.key(i), time.Now()
	h, err := l.client.Lock(ctx, key)
	for err != nil {
		if ctx.Err() != nil {
			if began.After(l.began) { // a starved waiter must not vanish from the figures
				l.wait.Add(time.Since(began))
			} else {
				l.wait.Add(time.Since(l.began))
			}
			return
		}
		l.failed(err)
		h, err = l.client.Lock(ctx, key)
	}
	locked := time.Now()
	j := l.judge(i)
	j.enter(me, h.Token())
	counts := l.phase.Load() == measuring
	j.leave(me)
	if err := h.Unlock(); err != nil && ctx.Err() == nil { // a raw client's release ends with ctx
		l.failed(err)
	}
	if counts {
		l.shares[i].Add(1)
		l.wait.Add(locked.Sub(began))
		l.pair.Add(time.Since(began))
	}
}

func (l *load) failed(err error) {
	text := err.Error()
	l.errors.Add(1)
	l.last.Store(&text)
}

// begin is the end of the warm-up.
func (l *load) begin() {
	l.began, l.used = time.Now(), pin.Used()
	l.phase.Store(measuring)
}

// stop stops counting. Who has or wants a lock now goes on until it is through, and then no further.
func (l *load) stop() {
	if l.phase.Swap(ending) != ending {
		l.lasted, l.used = time.Since(l.began), l.usedSoFar()
	}
}

// end stops counting, unless that was done, and then the goroutines.
func (l *load) end() loadResult {
	l.stop()
	r := loadResult{Elapsed: l.lasted, CPU: l.used}
	l.cancel()
	done := make(chan struct{})
	go func() {
		l.tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drain):
		r.Stuck = int64(len(l.shares)) - l.finished.Load()
	}
	for i := range l.shares {
		r.Shares = append(r.Shares, l.shares[i].Load())
	}
	r.Wait, r.Pair, r.Errors = l.wait.Snapshot(), l.pair.Snapshot(), l.errors.Load()
	if last := l.last.Load(); last != nil {
		r.LastError = *last
	}
	return r
}

// metrics are the figures of one or more loads that ran at the same time, and the operations they made together.
func metrics(results ...loadResult) (Metrics, float64) {
	var wait, pair stats.Hist
	var all, perProcess []int64
	m := Metrics{}
	for _, r := range results {
		var sum int64
		for _, s := range r.Shares {
			sum += s
		}
		all, perProcess = append(all, r.Shares...), append(perProcess, sum)
		m["rate"] += float64(sum) / r.Elapsed.Seconds()
		m["errors"] += float64(r.Errors)
		m["stuck"] += float64(r.Stuck)
		wait.Merge(r.Wait)
		pair.Merge(r.Pair)
	}
	ops := 0.0
	for _, s := range all {
		ops += float64(s)
	}
	m["jain"], m["maxmin"], m["pmaxmin"] = stats.Jain(all), stats.MaxMin(all), stats.MaxMin(perProcess)
	m["p50"], m["p99"], m["max"] = micros(wait.Quantile(0.5)), micros(wait.Quantile(0.99)), micros(wait.Max())
	m["pairp50"], m["pairp99"] = micros(pair.Quantile(0.5)), micros(pair.Quantile(0.99))
	return m, ops
}

// usedSoFar is the CPU time since begin.
func (l *load) usedSoFar() time.Duration { return pin.Used() - l.used }
