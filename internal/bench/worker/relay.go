package worker

import (
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/internal/bench/impl"
	"github.com/holdfast-go/holdfast/internal/bench/stats"
)

// A baton is one lock that two clients hand to each other: one waits while the other holds it for
// so long that everything has fallen asleep.
type baton struct {
	task
	clients [2]impl.Client
	judge   judge
	wait    stats.Hist
	errors  int64
	samples int64
	turn    int // who holds
	held    impl.Held
}

type taken struct {
	held impl.Held
	at   time.Time
	err  error
}

func (t *task) relay(a, b impl.Client) error {
	r := &baton{task: *t, clients: [2]impl.Client{a, b}}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var err error
	if r.held, err = a.Lock(ctx, key(0)); err != nil {
		return err
	}
	r.judge.enter(1, r.held.Token())
	for range 2 { // both clients have their connections and scripts
		if err := r.pass(ctx, false); err != nil {
			return err
		}
	}
	if err := t.ready(); err != nil {
		return err
	}
	over := make(chan struct{})
	go func() {
		t.end()
		close(over)
	}()
	m := start()
	for err == nil {
		select {
		case <-over:
			var res Result
			m.stop(&res)
			res.Shares = []int64{r.samples}
			res.Wait, res.Errors = r.wait.Snapshot(), r.errors
			res.Faults = r.judge.violations.Load() + r.judge.disorder.Load()
			return errors.Join(r.held.Unlock(), t.answer(res))
		default:
			err = r.pass(ctx, true)
		}
	}
	return err
}

// pass hands the lock to the other client.
func (r *baton) pass(ctx context.Context, counts bool) error {
	next := 1 - r.turn
	got := make(chan taken, 1)
	go func() {
		for {
			h, err := r.clients[next].Lock(ctx, key(0))
			at := time.Now()
			if err == nil || ctx.Err() != nil {
				got <- taken{h, at, err}
				return
			}
			r.errors++ // the library gave up; only this goroutine writes until got
		}
	}()
	time.Sleep(r.Gap)
	r.judge.leave(int64(r.turn) + 1)
	began := time.Now()
	if err := r.held.Unlock(); err != nil {
		return err
	}
	t := <-got
	if t.err != nil {
		return t.err
	}
	r.turn, r.held = next, t.held
	r.judge.enter(int64(next)+1, t.held.Token())
	if counts {
		r.samples++
		r.wait.Add(t.at.Sub(began))
	}
	return nil
}
