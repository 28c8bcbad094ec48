package worker

import (
	"context"
	"errors"
	"runtime"
	"sync"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
)

// side is how many keys are locked side by side.
const side = 32

// each locks N keys, and unlocks them if that is asked for.
func (t *task) each(client impl.Client, unlock bool) ([]impl.Held, error) {
	held, errs := make([]impl.Held, t.N), make([]error, t.N)
	var tasks sync.WaitGroup
	next := make(chan int)
	for range side {
		tasks.Go(func() {
			for i := range next {
				held[i], errs[i] = client.Lock(context.Background(), key(i))
				if unlock && errs[i] == nil {
					errs[i] = held[i].Unlock()
					held[i] = nil
				}
			}
		})
	}
	for i := range t.N {
		next <- i
	}
	close(next)
	tasks.Wait()
	return held, errors.Join(errs...)
}

// once leaves what N keys that were used once leave.
func (t *task) once(client impl.Client) error {
	if _, err := t.each(client, true); err != nil {
		return err
	}
	if err := t.ready(); err != nil {
		return err
	}
	t.end()
	return t.answer(Result{Shares: []int64{int64(t.N)}})
}

func (t *task) hold(client impl.Client) error {
	held, err := t.each(client, false)
	if err != nil {
		return err
	}
	if err := t.ready(); err != nil {
		return err
	}
	t.end()
	runtime.KeepAlive(held) // a guard that is dropped is renewed no more
	return t.answer(Result{})
}

// wait has N goroutines wait. What they cost is measured at the end, when all have settled.
func (t *task) wait(client impl.Client) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	before := memory()
	got := make(chan struct{}, t.N)
	for i := range t.N {
		key := key(i % t.Keys)
		go func() {
			for ctx.Err() == nil {
				if _, err := client.Lock(ctx, key); err == nil {
					got <- struct{}{}
					return
				}
			}
		}()
	}
	if err := t.ready(); err != nil {
		return err
	}
	t.end()
	after := memory()
	n := float64(t.N)
	return t.answer(Result{
		Heap: (after.heap - before.heap) / n, Stack: (after.stack - before.stack) / n,
		Goroutines: (after.goroutines - before.goroutines) / n, Waiting: t.N - len(got),
	})
}

type usage struct{ heap, stack, goroutines float64 }

func memory() usage {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return usage{float64(m.HeapAlloc), float64(m.StackInuse), float64(runtime.NumGoroutine())}
}
