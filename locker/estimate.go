package locker

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/waiting"
)

// holdTimes is a moving average (weight 1/8) of how long this client's own holds of each key last.
// It is a guess for others' holds, which are mostly of the same program. It is forgotten, so that a
// guess that keeps everybody from locking cannot keep them from learning better.
type holdTimes struct {
	mu   sync.Mutex
	keys map[string]*holdTime
}

type holdTime struct {
	mean      time.Duration
	seen      time.Time // when the last of them ended
	contended time.Time // when another's hold was last in the way
	run       time.Time // when the present row of holds began, each right behind the one before
}

const (
	holdTimeWeight = 1.0 / 8
	holdTimeKeys   = 1024        // how many keys are remembered
	holdTimeMemory = time.Minute // how long, or four times as long as a hold
)

// add takes note of some holds, one after the other, that lasted for so long together.
func (t *holdTimes) add(key string, holds int, together time.Duration, now time.Time) {
	mean := together / time.Duration(holds)
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.entry(key)
	if !s.stale(now) {
		mean += time.Duration(math.Pow(1-holdTimeWeight, float64(holds)) * float64(s.mean-mean))
	}
	s.mean, s.seen = mean, now
}

// entry returns what is known of key, and makes room for it. The caller has mu.
func (t *holdTimes) entry(key string) *holdTime {
	if s := t.keys[key]; s != nil {
		return s
	}
	if t.keys == nil {
		t.keys = map[string]*holdTime{}
	}
	if len(t.keys) >= holdTimeKeys {
		for k := range t.keys { // any
			delete(t.keys, k)
			break
		}
	}
	s := &holdTime{run: time.Now()}
	t.keys[key] = s
	return s
}

// of returns how long a hold of key is likely to last; 0 if nothing is known.
func (t *holdTimes) of(key string) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if s := t.keys[key]; s != nil && !s.stale(time.Now()) {
		return s.mean
	}
	return 0
}

func (s *holdTime) stale(now time.Time) bool { return now.Sub(s.seen) > max(holdTimeMemory, 4*s.mean) }

// estimate returns the store's answer with an estimate of the wait. ahead is how many of this
// process are to have the lock before the claim that was refused.
func (c *core) estimate(claim *backend.Claim, held *backend.HeldError, ahead int) *HeldError {
	h := &HeldError{Position: held.Position, Err: held}
	if ahead > 0 {
		h.Position = max(h.Position, 1) + ahead
	}
	turns := max(h.Position, 1)
	switch claim.Mode {
	case backend.Shared:
		turns = 1 // those ahead may be let in together
	case backend.Permit:
		// The weights of those ahead are not known: they count once, so the estimate is rather low.
		turns = 1 + (turns-2+max(claim.Weight, 1))/claim.Limit
	}
	h.Wait = time.Duration(turns) * c.holdTimes.of(claim.Key)
	return h
}

// inVain is the *WouldTimeoutError of a wait that err, the answer so far, says is longer than ctx
// allows; or nil.
func inVain(ctx context.Context, err error) error {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return nil
	}
	return wouldTimeout(deadline, err)
}

func wouldTimeout(deadline time.Time, err error) error {
	vain := &WouldTimeoutError{Left: time.Until(deadline), Err: err}
	var held *HeldError
	var quarantine *backend.QuarantineError
	switch {
	case errors.As(err, &held):
		vain.RetryAfter, vain.Position, vain.Holder = held.Wait, held.Position, held.Err.Holder
	case errors.As(err, &quarantine):
		vain.RetryAfter = quarantine.RetryAfter
	}
	if vain.RetryAfter <= vain.Left {
		return nil
	}
	return vain
}

const (
	contendedFor = time.Second            // how long a key counts as contended after another's hold was in the way
	longestRun   = 100 * time.Millisecond // how long a client takes a key again and again before it gives others a chance
)

// standBack gives others a chance where the store has no queue. Whoever asks right behind its own
// release nearly always wins, as those who are woken by it have yet to ask: so if this client had
// the key just now, and others want it, it asks a moment later, drawn at random around
// Wait.Initial. A client that always wins is not told that others want the key: it stands back,
// too, when it has had the key all the time for a while, and so briefly that it is likely to find
// another's hold in its way if there is any.
func (c *core) standBack(ctx context.Context, key string) {
	moment, now := c.cfg.Wait.Initial, time.Now()
	var pause time.Duration
	c.holdTimes.mu.Lock()
	switch s := c.holdTimes.keys[key]; {
	case s == nil:
	case now.Sub(s.seen) > moment: // this client left it to others
		s.run = now
	case now.Sub(s.contended) <= contendedFor:
		s.run, pause = now, moment
	case now.Sub(s.run) >= longestRun:
		s.run, pause = now, min(moment, max(s.mean, time.Millisecond))
	}
	c.holdTimes.mu.Unlock()
	if pause > 0 {
		waiting.Pause(ctx, jitter.N(2*pause)) // so wide that two who do this meet, and know of each other
	}
}

// contended takes note that another's hold is in the way.
func (c *core) contended(claim *backend.Claim) {
	c.holdTimes.mu.Lock()
	defer c.holdTimes.mu.Unlock()
	c.holdTimes.entry(claim.Key).contended = time.Now()
}

// likelyHeld reports whether a claim that queues had better subscribe before its first attempt:
// another's hold was in the way just now. Then its place in the queue needs no second attempt. With
// an observer that one says in whose name the process waits.
func (c *core) likelyHeld(claim *backend.Claim) bool {
	if !claim.Queue || c.cfg.Observer != nil {
		return false
	}
	c.holdTimes.mu.Lock()
	defer c.holdTimes.mu.Unlock()
	s := c.holdTimes.keys[claim.Key]
	return s != nil && time.Since(s.contended) <= contendedFor
}
