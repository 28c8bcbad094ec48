package backendtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Faulty returns b behind a bad network: requests and replies are late, lost and doubled, and
// wake-ups as well, after the mix of faults that [Swarm] makes of seed, for requests of about a
// millisecond.
func Faulty(b backend.Backend, seed uint64) backend.Backend {
	return FaultyWith(b, seed, Swarm(seed, time.Millisecond))
}

// FaultyWith is [Faulty] with a given mix.
func FaultyWith(b backend.Backend, seed uint64, f Faults) *FaultyBackend {
	fb := &FaultyBackend{Backend: b, faults: f, seed: seed, start: time.Now()}
	fb.ctx, fb.cancel = context.WithCancel(context.Background())
	return fb
}

// A FaultyBackend is a backend behind a bad network. Everything that it does may happen to a
// correct backend; a caller that breaks on one is wrong, and so is a backend that breaks under one.
//
// What it keeps to is what a connection-oriented store with a client that does not retry keeps to:
//
//   - A definite answer is given only when nothing of its request is in flight any more: a request
//     that is executed twice is answered after the second time. (A copy that lands after a definite
//     answer needs a client that retries by itself, which a backend must turn off: the claim would
//     rightly say that none is in flight.) The answer is the last one of TryAcquire and Renew, and
//     the first one of Release, since the second can only say that the first was there.
//   - After an unknown answer the request, and its copy, may be executed at any time up to 1.5
//     times the claim's TTL later: tombstones last longer.
//   - Watch fails, or is subscribed when it returns.
//
// What befalls the n-th request depends on the seed and on n. Inspect, Observe and Capabilities are
// not disturbed, as tests look with them. It works in testing/synctest bubbles.
type FaultyBackend struct {
	backend.Backend

	faults Faults
	seed   uint64
	start  time.Time
	n      atomic.Uint64
	ended  atomic.Bool
	ctx    context.Context // of watches; ends with Close
	cancel context.CancelFunc

	mu     sync.Mutex // guards the rest, and tasks.Add against tasks.Wait
	closed bool
	tasks  sync.WaitGroup // requests and watches under way
	log    []string
}

// longestLog is how many of the last faults are remembered.
const longestLog = 400

// EndFaults ends the faults for requests and wake-ups from now on. Those under way take their
// course; [FaultyBackend.Settle] waits for them.
func (f *FaultyBackend) EndFaults() { f.ended.Store(true) }

// Settle returns when every request that was under way has been executed, those included whose
// callers have left. It is called when nothing new is asked and no watch is open.
func (f *FaultyBackend) Settle() { f.tasks.Wait() }

// Log returns the last faults in order, for the message of a test that fails.
func (f *FaultyBackend) Log() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string(nil), f.log...)
}

func (f *FaultyBackend) note(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.log) == longestLog {
		f.log = append(f.log[:0], f.log[1:]...)
	}
	f.log = append(f.log, fmt.Sprintf("%12v ", time.Since(f.start))+fmt.Sprintf(format, args...))
}

// begin counts a task in, unless Close was called.
func (f *FaultyBackend) begin() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	f.tasks.Add(1)
	return true
}

// next draws what befalls the next request.
func (f *FaultyBackend) next(verb string, c backend.Claim) plan {
	n := f.n.Add(1)
	if f.ended.Load() {
		return plan{n: n}
	}
	p := f.faults.plan(f.seed, n, c)
	if p.fate != pass {
		f.note("%s %d of %s, owner …%s: %s, after %v", verb, n, short(c.Key), tail(c.Owner),
			fateNames[p.fate], p.there)
	}
	return p
}

// tail is the part of an owner that differs within a process.
func tail(owner string) string { return owner[max(0, len(owner)-6):] }

// TryAcquire makes an attempt over the bad network.
func (f *FaultyBackend) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	var g backend.Grant
	err := f.request(ctx, "TryAcquire", c, func(ctx context.Context) (err error) {
		got, err := f.Backend.TryAcquire(ctx, c)
		return keep(f, &g, got, err)
	})
	return kept(f, &g, err)
}

// keep stores what was answered under the lock, since a late execution may bring it when the caller
// has left.
func keep[T any](f *FaultyBackend, to *T, got T, err error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	*to = got
	return err
}

// kept returns what keep has stored; nothing with an error.
func kept[T any](f *FaultyBackend, from *T, err error) (got T, _ error) {
	if err != nil {
		return got, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return *from, nil
}

// Renew renews over the bad network.
func (f *FaultyBackend) Renew(ctx context.Context, c backend.Claim) error {
	return f.request(ctx, "Renew", c, func(ctx context.Context) error {
		return f.Backend.Renew(ctx, c)
	})
}

// Release releases over the bad network.
func (f *FaultyBackend) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	return firstOf(ctx, f, "Release", c, func(ctx context.Context) (backend.Released, error) {
		return f.Backend.Release(ctx, c)
	})
}

// ReleaseAll releases claims over the bad network, in one request. The answers that arrive are
// those of its first execution.
func (f *FaultyBackend) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	return firstOfAll(ctx, f, "ReleaseAll", claims, f.Backend.ReleaseAll)
}

// TryAcquireAll makes attempts over the bad network, in one request. Of one that is executed twice
// the first grants what is free, and the second would find that held.
func (f *FaultyBackend) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) ([]backend.Grant, error) {
	return firstOfAll(ctx, f, "TryAcquireAll", claims, f.Backend.TryAcquireAll)
}

// TryReleaseAll releases claims over the bad network, in one request, likewise.
func (f *FaultyBackend) TryReleaseAll(ctx context.Context, claims []backend.Claim) ([]bool, error) {
	return firstOfAll(ctx, f, "TryReleaseAll", claims, f.Backend.TryReleaseAll)
}

// firstOfAll makes a request about claims, without a network if there are none or the store has no
// such request.
func firstOfAll[T any](
	ctx context.Context, f *FaultyBackend, verb string, claims []backend.Claim,
	send func(context.Context, []backend.Claim) (T, error),
) (T, error) {
	if none, err := send(ctx, nil); len(claims) == 0 || errors.Is(err, errors.ErrUnsupported) {
		return none, err
	}
	return firstOf(ctx, f, verb, claims[0], func(ctx context.Context) (T, error) {
		return send(ctx, claims)
	})
}

// firstOf makes a request that is answered by its first execution.
func firstOf[T any](
	ctx context.Context, f *FaultyBackend, verb string, c backend.Claim,
	send func(context.Context) (T, error),
) (T, error) {
	var told T
	first, answered := error(nil), false
	err := f.request(ctx, verb, c, func(ctx context.Context) error {
		got, err := send(ctx)
		if !answered {
			first, answered = keep(f, &told, got, err), true
		}
		return first
	})
	return kept(f, &told, err)
}

// Identity tells what the backend behind the network does. It is not disturbed.
func (f *FaultyBackend) Identity(ctx context.Context) (string, error) {
	return f.Backend.Identity(ctx)
}

// request sends a request in a goroutine of its own, which lives until the request is executed, and
// returns when it is answered or ctx is done.
func (f *FaultyBackend) request(ctx context.Context, verb string, c backend.Claim,
	send func(context.Context) error,
) error {
	if ctx.Err() != nil || c.Validate(f.Capabilities()) != nil {
		return send(ctx) // nothing of it reaches the network
	}
	if !f.begin() {
		return backend.ErrClosed
	}
	p := f.next(verb, c)
	answer := make(chan error, 1) // one slot: the request never waits for a caller that has left
	go func() {
		defer f.tasks.Done()
		f.carry(context.WithoutCancel(ctx), p, send, answer)
	}()
	select {
	case err := <-answer:
		return err
	case <-ctx.Done():
		f.note("%s %d: the caller left: %v", verb, p.n, ctx.Err())
		return ctx.Err()
	}
}

// carry takes a request to the store and its reply back.
func (f *FaultyBackend) carry(ctx context.Context, p plan, send func(context.Context) error,
	answer chan<- error,
) {
	if p.fate == late {
		answer <- p.fault()
	}
	time.Sleep(p.there)
	switch p.fate {
	case vanish:
		answer <- p.fault()
		return
	case refuse:
		answer <- fmt.Errorf("%w: %w %d", backend.ErrUnavailable, ErrFault, p.n)
		return
	}
	// The store's own silence is not ours to add to.
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	err := send(ctx)
	if p.fate == twice {
		time.Sleep(p.again)
		err = send(ctx)
	}
	time.Sleep(p.back)
	switch p.fate {
	case late:
	case loseReply:
		answer <- p.fault()
	default:
		answer <- err
	}
}

// Close refuses what is new, waits until everything under way has been executed, however late, and
// closes the backend.
func (f *FaultyBackend) Close() error {
	f.mu.Lock()
	f.closed = true
	f.mu.Unlock()
	f.cancel()
	f.tasks.Wait()
	return f.Backend.Close()
}
