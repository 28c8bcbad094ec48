package worker

import (
	"context"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// drain is how long goroutines are waited for when a cell is over. Those that take longer stay.
const drain = time.Second

// A load is N goroutines that lock and unlock. What they do counts from begin to end.
type load struct {
	client impl.Client
	gap    time.Duration
	judges []judge

	phase  atomic.Int32
	shares []atomic.Int64
	wait   stats.Hist // of Lock
	errors atomic.Int64
	last   atomic.Pointer[string]
	began  time.Time
}

// The phases of a load.
const (
	warming = iota
	measuring
	ending
)

func (t *task) load(client impl.Client) error {
	all, _, err := judges(t.Judges, t.Keys)
	if err != nil {
		return err
	}
	l := &load{client: client, gap: t.Gap, judges: all, shares: make([]atomic.Int64, t.N)}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var tasks sync.WaitGroup
	for i := range t.N {
		key := key(i % t.Keys)
		tasks.Go(func() {
			for l.phase.Load() < ending {
				l.once(ctx, key, i)
			}
		})
	}
	time.Sleep(t.Warm)
	if err := t.ready(); err != nil {
		return err
	}
	m := start()
	l.began = m.began
	l.phase.Store(measuring)
	t.end()
	l.phase.Store(ending)
	var r Result
	m.stop(&r)
	cancel()
	done := make(chan struct{})
	go func() {
		tasks.Wait()
		close(done)
	}()
	select {
	case <-done:
	case <-time.After(drain):
	}
	for i := range l.shares {
		r.Shares = append(r.Shares, l.shares[i].Load())
	}
	r.Wait, r.Errors = l.wait.Snapshot(), l.errors.Load()
	if last := l.last.Load(); last != nil {
		r.LastError = *last
	}
	violations, disorder := faults(all)
	r.Faults = violations + disorder
	return t.answer(r)
}

// once makes one acquisition.
func (l *load) once(ctx context.Context, key string, i int) {
	if l.gap > 0 {
		time.Sleep(l.gap)
	}
	began := time.Now()
	h, err := l.client.Lock(ctx, key)
	for err != nil {
		if ctx.Err() != nil { // a starved waiter must not vanish from the figures
			l.wait.Add(min(time.Since(began), time.Since(l.began)))
			return
		}
		l.failed(err)
		h, err = l.client.Lock(ctx, key)
	}
	locked := time.Now()
	j, me := &l.judges[i%len(l.judges)], int64(os.Getpid())<<20+int64(i)+1
	j.enter(me, h.Token())
	counts := l.phase.Load() == measuring
	j.leave(me)
	if err := h.Unlock(); err != nil && ctx.Err() == nil { // a floor's release ends with ctx
		l.failed(err)
	}
	if counts {
		l.shares[i].Add(1)
		l.wait.Add(locked.Sub(began))
	}
}

func (l *load) failed(err error) {
	text := err.Error()
	l.errors.Add(1)
	l.last.Store(&text)
	if l.phase.Load() != ending {
		time.Sleep(time.Millisecond) // a server that is gone is not asked by a busy loop
	}
}
