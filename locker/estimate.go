package locker

import (
	"context"
	"errors"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/jitter"
	"github.com/holdfast-go/holdfast/waiting"
)

// holdTimes is a moving average (weight 1/8) of how long this client's own holds of each key last.
// It is a guess for others' holds, which are mostly of the same program. It is forgotten, so that a
// guess that keeps everybody from locking cannot keep them from learning better.
//
// A key is remembered from when somebody had to wait for it or a hold of it was no brief one: so
// the holds that are many cost one look, and that without a mutex. Where the store has no queue all
// are remembered, see yieldTurn.
type holdTimes struct {
	keys  sync.Map // the *holdTime of each key
	count atomic.Int64
}

// A holdTime is what is known of a key. Each field is by itself: as a guess may be off by a hold,
// nothing has to fit together. All are in nanoseconds, those that are a time since 1970.
type holdTime struct {
	mean      atomic.Int64
	seen      atomic.Int64 // when the last of them ended
	contended atomic.Int64 // when another's hold was last in the way
	run       atomic.Int64 // when the present row of holds began, each right behind the one before
}

const (
	briefHold      = time.Millisecond // nobody fails for fear of waiting for less
	holdTimeWeight = 1.0 / 8
	holdTimeKeys   = 1024        // how many keys are remembered, or a few more
	holdTimeMemory = time.Minute // how long, or four times as long as a hold
)

// of returns what is known of key, or nil.
func (t *holdTimes) of(key string) *holdTime {
	s, _ := t.keys.Load(key)
	known, _ := s.(*holdTime)
	return known
}

// remember returns what is known of key, and knows it from now on. When it knows too many it begins
// anew, as if time had passed.
func (t *holdTimes) remember(key string) *holdTime {
	if s := t.of(key); s != nil {
		return s
	}
	if t.count.Add(1) > holdTimeKeys {
		t.keys.Clear()
		t.count.Store(1)
	}
	made := &holdTime{}
	made.run.Store(time.Now().UnixNano())
	s, _ := t.keys.LoadOrStore(key, made) // another may have been quicker
	known, _ := s.(*holdTime)
	return known
}

// add takes note of some holds, one after the other, that lasted for so long together.
func (s *holdTime) add(holds int, together time.Duration, now time.Time) {
	mean := together / time.Duration(holds)
	if before := s.guess(now); before > 0 {
		mean += time.Duration(math.Pow(1-holdTimeWeight, float64(holds)) * float64(before-mean))
	}
	s.mean.Store(int64(mean))
	s.seen.Store(now.UnixNano())
}

// guess returns how long a hold is likely to last; 0 if nothing is known lately, or s is nil.
func (s *holdTime) guess(now time.Time) time.Duration {
	if s == nil {
		return 0
	}
	mean := time.Duration(s.mean.Load())
	if since(&s.seen, now) > max(holdTimeMemory, 4*mean) {
		return 0
	}
	return mean
}

// since is how long ago a time was.
func since(at *atomic.Int64, now time.Time) time.Duration {
	return time.Duration(now.UnixNano() - at.Load())
}

// estimate returns the store's answer to a claim with an estimate of the wait: the places up to its
// own, times how long a hold is likely to last. It never keeps anybody from the lock by itself;
// with FailFast its caller has asked for that.
func (c *core) estimate(claim *backend.Claim, held *backend.HeldError) *HeldError {
	h := &HeldError{Position: held.Position, Err: held}
	turns := max(h.Position, 1)
	switch claim.Mode {
	case backend.Shared:
		turns = 1 // those ahead may be let in together
	case backend.Permit:
		// The weights of those ahead are not known: they count once, so the estimate is rather low.
		turns = 1 + (turns-2+max(claim.Weight, 1))/claim.Limit
	}
	h.Wait = time.Duration(turns) * c.holdTimes.of(claim.Key).guess(time.Now())
	return h
}

// heldBehind is the store's answer to an exclusive claim for one who waits for the claim's lease
// behind ahead others of this process, if a hold lasts for one turn.
func heldBehind(held *backend.HeldError, ahead int, turn time.Duration) *HeldError {
	h := &HeldError{Position: held.Position, Err: held}
	if ahead > 0 {
		h.Position = max(h.Position, 1) + ahead
	}
	h.Wait = time.Duration(max(h.Position, 1)) * turn
	return h
}

// wouldTimeout returns a *WouldTimeoutError if the wait that err, the answer so far, estimates goes
// beyond the deadline of one who asked for that, else nil. A zero deadline is none.
func wouldTimeout(deadline time.Time, err error) error {
	if deadline.IsZero() {
		return nil
	}
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
	// How long a key counts as contended after another's hold was in the way.
	contendedFor = time.Second
	// How long a client takes a key again and again before it gives others a chance.
	longestRun = 100 * time.Millisecond
)

// yieldTurn gives others a chance where the store has no queue. Whoever asks right behind its own
// release nearly always wins, as those who are woken by it have yet to ask: so if this client had
// the key just now, and others want it, it asks a moment later, drawn at random around
// Wait.Initial. A client that always wins is not told that others want the key: it stands back,
// too, when it has had the key all the time for a while, and so briefly that it is likely to find
// another's hold in its way if there is any.
func (c *core) yieldTurn(ctx context.Context, s *holdTime) {
	moment, now := c.cfg.Wait.Initial, time.Now()
	var pause time.Duration
	switch {
	case since(&s.seen, now) > moment: // this client left it to others
		s.run.Store(now.UnixNano())
	case since(&s.contended, now) <= contendedFor:
		s.run.Store(now.UnixNano())
		pause = moment
	case since(&s.run, now) >= longestRun:
		s.run.Store(now.UnixNano())
		pause = min(moment, max(time.Duration(s.mean.Load()), time.Millisecond))
	}
	if pause > 0 {
		// So wide that two who do this meet, and know of each other.
		waiting.Pause(ctx, jitter.N(2*pause))
	}
}

// contended takes note that another's hold is in the way.
func (c *core) contended(claim *backend.Claim) {
	c.holdTimes.remember(claim.Key).contended.Store(time.Now().UnixNano())
}

// contendedLately reports whether another's hold was in the way just now, as far as is known.
func (s *holdTime) contendedLately() bool {
	return s != nil && since(&s.contended, time.Now()) <= contendedFor
}

// likelyHeld reports whether a claim that queues had better subscribe before its first attempt:
// another's hold was in the way just now. Then its place in the queue needs no second attempt. With
// an observer that one says in whose name the process waits.
func (c *core) likelyHeld(s *holdTime) bool {
	return c.cfg.Observer == nil && s.contendedLately()
}
