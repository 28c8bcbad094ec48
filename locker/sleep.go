package locker

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// mayWatch reports whether wake-ups are wanted.
func (a *acquisition) mayWatch() bool {
	return a.core.caps.Watch && cmp.Or(a.crew.wait, a.core.cfg.Wait.Mode) != waiting.Poll
}

// watch subscribes and reports whether it did. Where wake-ups are not to be had, waiting goes on by polling. A subscription
// that takes longer than the fallback interval is given up: the key may be free by now.
func (a *acquisition) watch(ctx context.Context) bool {
	ctx, leave := context.WithCancel(ctx)
	slow := time.AfterFunc(a.core.cfg.Wait.Fallback, leave)
	closing := context.AfterFunc(a.core.life.closing, leave)
	wakes, err := a.core.b.Watch(ctx, a.claim)
	closed := !closing()
	if !slow.Stop() && err == nil || closed {
		leave()
		return false // confirmed, but the watch was ended meanwhile
	}
	if err != nil {
		leave()
		a.subscribe = !errors.Is(err, errors.ErrUnsupported)
		return false
	}
	a.wakes, a.leave = wakes, leave
	return true
}

// unwatch ends the watch, if there is one.
func (a *acquisition) unwatch() {
	if a.leave != nil {
		a.leave()
	}
}

// sleep waits until it is worth asking again: a wake-up, the end of the lease that blocks, or the fallback interval. Or until
// the key is handed over, which needs no question.
func (a *acquisition) sleep(ctx context.Context, err error) (granted lease, ok bool) {
	timer := time.NewTimer(a.pause(err))
	defer timer.Stop()
	select {
	case wake, open := <-a.wakes:
		if !open {
			a.wakes, a.subscribe = nil, false
		}
		granted, ok = a.handedOver(ctx, wake)
		a.core.woke(ctx, wakeReason(open, ok))
		return granted, ok
	case <-timer.C:
		a.core.woke(ctx, WakeDue)
	case <-ctx.Done():
	case <-a.core.life.closing.Done():
	}
	return lease{}, false
}

func wakeReason(open, granted bool) string {
	switch {
	case !open:
		return WakeClosed
	case granted:
		return WakeGrant
	}
	return WakeSignal
}

// handedOver returns the lease of a grant that came with a wake-up, if it can be proved without asking. Its token is above
// the key's last one at our last answered question, so the grant was made after the store had executed that question: its
// lease began later than the question was sent, and counts from there. A message that was late, about a grant that may have
// lapsed, has a token that the answer knew already. A grant with little left is asked for, which extends it.
func (a *acquisition) handedOver(ctx context.Context, wake backend.Wake) (lease, bool) {
	g := wake.Grant
	if !wake.Granted || !a.claim.Queue || a.atToken == 0 || g.Token <= a.atToken || a.over(ctx) {
		return lease{}, false
	}
	until := deadlineOf(a.inLine, min(g.TTL, a.claim.WaiterTTL))
	if a.core.remaining(until) < g.TTL/3 {
		return lease{}, false
	}
	a.reserved = g.Reserved
	return lease{token: g.Token, until: until}, true
}

func (a *acquisition) pause(err error) time.Duration {
	var quarantine *backend.QuarantineError
	switch {
	case errors.As(err, &quarantine) && quarantine.RetryAfter > 0: // nothing can come before that, wake-ups included
		return quarantine.RetryAfter + waiting.Jitter(2*time.Millisecond)
	case !errors.Is(err, backend.ErrHeld):
		if a.retry == nil {
			a.retry = waiting.NewBackoff(retryFirst, retryMost)
		}
		return a.retry.Next()
	}
	pause := a.unwoken()
	var held *backend.HeldError
	if errors.As(err, &held) && held.RetryAfter > 0 {
		pause = min(pause, held.RetryAfter+waiting.Jitter(2*time.Millisecond))
	}
	return pause
}

// unwoken is how long to sleep behind another holder until it is time to ask anyway.
func (a *acquisition) unwoken() time.Duration {
	if a.wakes != nil {
		return waiting.Jitter(a.core.cfg.Wait.Fallback)
	}
	if a.poll == nil {
		a.poll = waiting.NewBackoff(a.core.cfg.Wait.Initial, a.core.cfg.Wait.Max)
	}
	return a.poll.Next()
}
