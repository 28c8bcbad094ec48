package locker

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// A pace is how long this client's own holds of each key last, smoothed: each hold counts an eighth, what was before the rest.
// It is a guess for others' holds, which are mostly of the same program. It is forgotten, so that a guess that keeps everybody
// from locking cannot keep them from learning better.
type pace struct {
	mu   sync.Mutex
	keys map[string]stride
}

type stride struct {
	hold time.Duration
	seen time.Time
}

const (
	paceWeight = 1.0 / 8
	paceKeys   = 1024        // how many keys are remembered
	paceMemory = time.Minute // how long, or four times as long as a hold
)

// saw takes note of some holds, one after the other, that lasted for so long together.
func (p *pace) saw(key string, holds int, together time.Duration, now time.Time) {
	mean := together / time.Duration(holds)
	p.mu.Lock()
	defer p.mu.Unlock()
	s, known := p.keys[key]
	switch {
	case !known && p.keys == nil:
		p.keys = map[string]stride{}
	case !known && len(p.keys) >= paceKeys:
		for k := range p.keys { // any
			delete(p.keys, k)
			break
		}
	}
	if known && !s.stale(now) {
		mean += time.Duration(math.Pow(1-paceWeight, float64(holds)) * float64(s.hold-mean))
	}
	p.keys[key] = stride{mean, now}
}

// of returns how long a hold of key is likely to last; 0 if nothing is known.
func (p *pace) of(key string) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if s, ok := p.keys[key]; ok && !s.stale(time.Now()) {
		return s.hold
	}
	return 0
}

func (s stride) stale(now time.Time) bool { return now.Sub(s.seen) > max(paceMemory, 4*s.hold) }

// reckoned returns err with an estimate of the wait, if it is a *backend.HeldError. ahead is how many of this process are to
// have the lock before the claim that was refused.
func (c *core) reckoned(claim *backend.Claim, err error, ahead int) error {
	var held *backend.HeldError
	if !errors.As(err, &held) {
		return err
	}
	h := *held // may be shared by those who wait
	if ahead > 0 {
		h.Position = max(h.Position, 1) + ahead
	}
	turns := max(h.Position, 1)
	switch claim.Mode {
	case backend.Shared:
		turns = 1 // those ahead may be let in together
	case backend.Permit:
		turns = (turns + claim.Limit - 1) / claim.Limit
	}
	h.Wait = time.Duration(turns) * c.pace.of(claim.Key)
	return &h
}

// inVain is the *WouldTimeoutError of a wait that err, the answer so far, says is longer than ctx allows; or nil.
func inVain(ctx context.Context, err error) error {
	deadline, bounded := ctx.Deadline()
	if !bounded {
		return nil
	}
	vain := &WouldTimeoutError{Left: time.Until(deadline), Err: err}
	var held *backend.HeldError
	var quarantine *backend.QuarantineError
	switch {
	case errors.As(err, &held):
		vain.RetryAfter, vain.Position, vain.Holder = held.Wait, held.Position, held.Holder
	case errors.As(err, &quarantine):
		vain.RetryAfter = quarantine.RetryAfter
	}
	if vain.RetryAfter <= vain.Left {
		return nil
	}
	return vain
}
