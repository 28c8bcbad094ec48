package backendtest

import (
	"context"
	"fmt"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

var watchPermit = backend.Capabilities{Watch: true, Permit: true}

var watchRules = []rule{
	{
		name: "watch/subscribed", run: watchSubscribed, needs: watch,
		why: "Watch is subscribed before it returns. A release right after it must signal: its " +
			"caller asks once more and then" +
			" sleeps, and a release that was published before the subscription was active wakes " +
			"nobody (Redisson 3.28.0).",
	},
	{
		name: "watch/free-when-woken", run: freeWhenWoken, needs: watch,
		why: "The wake-up comes after the deletion. A waiter that is woken before it finds the " +
			"key held, and sleeps again" +
			" beside a free lock.",
	},
	{
		name: "watch/many", run: manyWatchers, needs: watch,
		why: "Any number of waiters share what the backend subscribes to; each of them is woken. " +
			"(A single slot for all, or a" +
			" future per key, loses wake-ups: Redisson#4216.)",
	},
	{
		name: "watch/own-client", run: watchOwnClient, needs: watch,
		why: "A release by the same client wakes too. (rueidislock with NOLOOP never hears of " +
			"its own and waits for ever.)",
	},
	{
		name: "watch/unread", run: watchUnread, needs: watch,
		why: "A watcher that does not read must not hold up whoever releases, nor the other " +
			"watchers: signals are coalesced," +
			" never queued, never blocking (rueidis#457 was a deadlock on a full channel).",
	},
	{
		name: "watch/ends", run: watchEnds, needs: watch,
		why: "A cancelled wait leaves no watcher behind: ten thousand of them would be a leak, " +
			"and wake nobody (Redisson 3.15.5).",
	},
	{
		name: "watch/others-stay", run: watchOthersStay, needs: watch,
		why: "One waiter that gives up must not take the others' subscription with it.",
	},
	{
		name: "watch/other-keys", run: watchOtherKeys, needs: watch,
		why: "Each key has its own signals. One that wakes the waiters of others makes a herd of " +
			"them on every release.",
	},
	{
		name: "watch/permit-freed", run: watchPermitFreed, needs: watchPermit,
		why: "The release of one permit makes room, though others are held on. Who waits without " +
			"a place in the queue hears of it.",
	},
	{
		name: "watch/churn", run: watchChurn, needs: watch, slow: true,
		why: "Watchers come and go while the key is released: the leaving of the last must not " +
			"cross the coming of the next.",
	},
}

// watch must subscribe. The watch ends with cancel, or with the rule.
func (e *env) watch(b backend.Backend,
	c backend.Claim,
) (wake <-chan backend.Wake, cancel context.CancelFunc) {
	e.Helper()
	ctx, cancel := context.WithCancel(e.ctx)
	e.later(cancel)
	wake, err := b.Watch(ctx, c)
	if err != nil {
		e.Fatalf("Watch(%s) = %v", short(c.Key), err)
	}
	return wake, cancel
}

// woken reports whether a signal comes within limit.
func (e *env) woken(wake <-chan backend.Wake, limit time.Duration) bool {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case _, open := <-wake:
		if !open {
			e.Errorf("the watch was closed, though the backend claims to watch and ctx goes on")
		}
		return true
	case <-timer.C:
		return false
	}
}

// cycle locks and unlocks key.
func (e *env) cycle(b backend.Backend, key string) {
	e.Helper()
	c := e.claim(key)
	c.NoneInFlight = true
	e.acquire(b, c)
	e.release(b, c)
}

// cycleBefore is cycle, and meanwhile a watcher asks for key, as whoever waits does.
func (e *env) cycleBefore(watcher, holder backend.Backend, key string) {
	e.Helper()
	c := e.claim(key)
	c.NoneInFlight = true
	e.acquire(holder, c)
	e.refused(watcher, e.claim(key))
	e.release(holder, c)
}

// covers: W1
func watchSubscribed(e *env) {
	a, b := e.open(), e.open()
	for i := range 30 {
		key := e.key(fmt.Sprint(i)) // a fresh key, so that nothing is subscribed yet
		c := e.claim(key)
		c.NoneInFlight = i%2 == 0
		e.acquire(a, c)
		wake, cancel := e.watch(b, e.claim(key))
		e.refused(b, e.claim(key))
		e.release(a, c)
		if !e.woken(wake, patience) {
			e.Fatalf("round %d: a release right after an attempt of one who watches did not signal",
				i)
		}
		cancel()
	}
}

// covers: W1
func watchPermitFreed(e *env) {
	a, b := e.open(), e.open()
	for i := range 10 {
		key := e.key(fmt.Sprint(i))
		first, second := e.mode(key, backend.Permit, 2), e.mode(key, backend.Permit, 2)
		e.acquire(a, first)
		e.acquire(a, second)
		waiter := e.mode(key, backend.Permit, 2)
		wake, cancel := e.watch(b, waiter)
		e.refused(b, waiter)
		e.release(a, first)
		if !e.woken(wake, patience) {
			e.Fatalf("round %d: the release of one of two permits did not signal", i)
		}
		e.acquire(b, waiter)
		cancel()
	}
}

// covers: W1, W12
func freeWhenWoken(e *env) {
	a, b := e.open(), e.open()
	for i := range 20 {
		key := e.key(fmt.Sprint(i))
		holder := e.claim(key)
		e.acquire(a, holder)
		waiter := e.claim(key)
		wake, cancel := e.watch(b, waiter)
		e.refused(b, waiter)
		done := make(chan error, 1)
		go func() { done <- release(e.ctx, a, holder) }()
		e.forget(b, waiter)
		for granted := false; !granted; { // by signals alone, without polling
			if !e.woken(wake, patience) {
				e.Fatalf("round %d: the waiter found the key held when it was woken, and was "+
					"not woken again", i)
			}
			_, err := b.TryAcquire(e.ctx, waiter)
			granted = err == nil
		}
		if err := <-done; err != nil {
			e.Fatalf("Release = %v", err)
		}
		cancel()
	}
}

// covers: W4, W13
func manyWatchers(e *env) {
	clients := []backend.Backend{e.open(), e.open()}
	key := e.key("k")
	c := e.claim(key)
	e.acquire(clients[0], c)
	wakes := make([]<-chan backend.Wake, 40)
	parallel(len(wakes), func(i int) {
		wake, err := clients[i%2].Watch(e.ctx, e.claim(key))
		if err != nil {
			e.Errorf("Watch = %v", err)
		}
		wakes[i] = wake
	})
	if e.Failed() {
		return
	}
	for range 2 {
		e.release(clients[0], c)
		for i, wake := range wakes {
			if !e.woken(wake, patience) {
				e.Fatalf("watcher %d of %d was not signalled", i, len(wakes))
			}
		}
		c = e.claim(key)
		e.acquire(clients[1], c)
	}
}

// covers: W1
func watchOwnClient(e *env) {
	a := e.open()
	key := e.key("k")
	c := e.claim(key)
	e.acquire(a, c)
	wake, _ := e.watch(a, e.claim(key))
	e.release(a, c)
	if !e.woken(wake, patience) {
		e.Error("a release by the watcher's own client did not signal")
	}
}

// covers: W16, W13
func watchUnread(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	var unread []<-chan backend.Wake
	for _, client := range []backend.Backend{a, b} {
		wake, _ := e.watch(client, e.claim(key))
		unread = append(unread, wake)
	}
	start := time.Now()
	for range 30 {
		e.cycleBefore(b, a, key)
	}
	if took := time.Since(start); took > 3*patience {
		e.Errorf("thirty releases took %v beside watchers that do not read", took)
	}
	late, _ := e.watch(b, e.claim(key))
	e.cycleBefore(b, a, key)
	if !e.woken(late, patience) {
		e.Error("a watcher beside some that do not read was not signalled")
	}
	for _, wake := range unread {
		if !e.woken(wake, patience) {
			e.Error("a watcher that did not read has no signal waiting for it")
		}
	}
}

// covers: W13, G1, R21
func watchEnds(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	for range 100 {
		_, cancel := e.watch(b, e.claim(key))
		cancel()
	}
	wake, cancel := e.watch(b, e.claim(key))
	e.cycleBefore(b, a, key)
	if !e.woken(wake, patience) {
		e.Error("after a hundred cancelled watches a release did not signal")
	}
	cancel()
	e.await("a cancelled watch to be signalled no more", patience, func() bool {
		e.cycleBefore(b, a, key)
		timer := time.NewTimer(20 * time.Millisecond)
		defer timer.Stop()
		select {
		case _, open := <-wake:
			return !open
		case <-timer.C:
			return true
		}
	})
}

// covers: W2
func watchOthersStay(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	stays, _ := e.watch(b, e.claim(key))
	for range 3 {
		_, cancel := e.watch(b, e.claim(key))
		cancel()
		e.pause(5 * time.Millisecond) // leaving may take a moment
		e.cycleBefore(b, a, key)
		if !e.woken(stays, patience) {
			e.Fatal("a watcher was not signalled after another one had left")
		}
	}
}

// covers: W4
func watchOtherKeys(e *env) {
	a, b := e.open(), e.open()
	quiet, _ := e.watch(b, e.claim(e.key("quiet")))
	loud, _ := e.watch(b, e.claim(e.key("loud")))
	for e.woken(quiet, 100*time.Millisecond) { // what the subscription itself may cause
	}
	const rounds = 10
	signals := 0
	for range rounds {
		e.cycleBefore(b, a, e.key("loud"))
		if !e.woken(loud, patience) {
			e.Fatal("a release did not signal")
		}
		if e.woken(quiet, 5*time.Millisecond) {
			signals++
		}
	}
	if signals > rounds/2 {
		e.Errorf("%d of %d releases of one key signalled a watcher of another", signals, rounds)
	}
}

// covers: W1, W13, G5
func watchChurn(e *env) {
	a, b := e.open(), e.open()
	key := e.key("k")
	for i := range 60 {
		c := e.claim(key)
		c.NoneInFlight = true
		e.acquire(a, c)
		wake, cancel := e.watch(b, e.claim(key))
		other, leave := e.watch(b, e.claim(key))
		go leave() // while the next comes and the release is published
		next, end := e.watch(b, e.claim(key))
		e.refused(b, e.claim(key))
		e.release(a, c)
		if !e.woken(wake, patience) || !e.woken(next, patience) {
			e.Fatalf("round %d: a watcher missed the release while another was leaving", i)
		}
		_ = other
		cancel()
		end()
	}
}
