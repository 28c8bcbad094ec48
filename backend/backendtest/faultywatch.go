package backendtest

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Watch subscribes over the bad network. Wake-ups may be lost, late or false afterwards.
func (f *FaultyBackend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if ctx.Err() != nil || backend.ValidateKey(c.Key) != nil {
		return f.Backend.Watch(ctx, c)
	}
	if !f.begin() {
		return nil, backend.ErrClosed
	}
	in, err := f.subscribe(ctx, c)
	if err != nil {
		f.tasks.Done()
		return nil, err
	}
	n := f.n.Add(1)
	w := &faultyWatch{
		f: f, in: in, out: make(chan backend.Wake, 1), n: n, key: c.Key, limit: f.faults.limit(c),
		random: rand.New(rand.NewPCG(f.seed, n)),
	}
	go func() {
		defer f.tasks.Done()
		w.forward(ctx)
	}()
	return w.out, nil
}

func (f *FaultyBackend) subscribe(ctx context.Context,
	c backend.Claim,
) (<-chan backend.Wake, error) {
	p := f.next("Watch", c)
	if !f.sleep(ctx, p.there) {
		return nil, ctx.Err()
	}
	switch p.fate {
	case refuse:
		return nil, fmt.Errorf("%w: %w %d", backend.ErrUnavailable, ErrFault, p.n)
	case late, loseReply, vanish:
		return nil, p.fault()
	}
	return f.Backend.Watch(ctx, c)
}

// sleep waits for d, and reports false if ctx or Close ended it.
func (f *FaultyBackend) sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
	case <-f.ctx.Done():
	}
	return false
}

// A faultyWatch hands on the wake-ups of one watch.
type faultyWatch struct {
	f      *FaultyBackend
	in     <-chan backend.Wake
	out    chan backend.Wake
	n      uint64
	key    string
	limit  time.Duration
	random *rand.Rand
}

// forward hands on until the watch ends. A watch that is closed below, or by Close, is closed
// above: poll.
func (w *faultyWatch) forward(ctx context.Context) {
	falsely := time.NewTimer(w.interval())
	defer falsely.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.f.ctx.Done():
			close(w.out)
			return
		case <-falsely.C:
			if !w.f.ended.Load() {
				w.signal(backend.Wake{})
			}
			falsely.Reset(w.interval())
		case wake, open := <-w.in:
			if !open {
				close(w.out)
				return
			}
			if !w.hand(ctx, wake, falsely) {
				return
			}
		}
	}
}

// hand hands a wake-up on, perhaps. It reports false if the watch ended meanwhile. What came while
// one was delayed comes with it, and the next false one later: of two at one moment nobody could
// say which is first.
func (w *faultyWatch) hand(ctx context.Context, wake backend.Wake, falsely *time.Timer) bool {
	switch u := w.random.Float64(); {
	case w.f.ended.Load():
	case u < w.f.faults.LoseWake:
		w.f.note("watch %d of %s: wake-up lost", w.n, short(w.key))
		return true
	case w.random.Float64() < w.f.faults.DelayWake:
		if !w.f.sleep(ctx, fraction(w.random, w.limit)) {
			return ctx.Err() == nil // Close is seen by forward
		}
		select {
		case next, open := <-w.in:
			if open && next.Granted {
				wake = next
			}
		default:
		}
		falsely.Reset(w.interval())
	}
	w.signal(wake)
	return true
}

// signal puts a wake-up into the slot. One with a grant takes the place of what waits there, others
// are dropped then. Only forward's goroutine sends.
func (w *faultyWatch) signal(wake backend.Wake) {
	if wake.Granted {
		select {
		case <-w.out:
		default:
		}
	}
	select {
	case w.out <- wake:
	default:
	}
}

// interval draws the time until the next false wake-up.
func (w *faultyWatch) interval() time.Duration {
	mean := w.f.faults.FalseWake
	if mean <= 0 {
		return 1 << 62
	}
	return max(time.Microsecond, time.Duration(w.random.ExpFloat64()*float64(mean)))
}
