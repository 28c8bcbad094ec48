package backendtest

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// Faults says how often things go wrong. Rates are probabilities per request, from 0 to 1; of Late,
// LoseReply, Vanish, Refuse and Twice at most one befalls a request, so their sum is at most 1. The
// zero Faults does no harm.
type Faults struct {
	// Delay is the usual time from a request to the store, and from the store back: each is drawn
	// at random around it, much less and somewhat more. With the rate Slow, a way takes up to Limit
	// instead, whatever the request's ctx says: the caller then leaves with ctx.Err(), and the
	// request is executed behind its back.
	Delay time.Duration
	Slow  float64
	// default 50·Delay; never more than 1.5 times the claim's TTL, see [FaultyBackend]
	Limit time.Duration

	// the caller is told at once that the connection broke; the request is executed later, within
	// Limit
	Late      float64
	LoseReply float64 // executed, and then the connection breaks
	Vanish    float64 // the connection breaks, and nothing is executed
	Refuse    float64 // not executed, and the caller is told so: ErrUnavailable
	Twice     float64 // executed twice, some time apart

	LoseWake  float64 // a wake-up is lost
	DelayWake float64 // a wake-up comes up to Limit late
	// mean time between wake-ups of nobody's making, on each watch; 0 is none
	FalseWake time.Duration
}

// ErrFault is what [Faulty] answers where a connection would break: an unknown answer.
var ErrFault = errors.New("injected fault")

// Swarm returns the faults of a seed, for requests that take about delay. Each seed has another
// mix, and about half of the kinds not at all: what is hidden by one kind of fault shows where it
// is missing.
func Swarm(seed uint64, delay time.Duration) Faults {
	r := rand.New(rand.NewPCG(seed, 0))
	some := func(most float64) float64 {
		if r.IntN(2) == 0 {
			return 0
		}
		return most * r.Float64()
	}
	f := Faults{
		Delay: delay, Limit: 50 * delay, Slow: some(0.1),
		Late: some(0.15), LoseReply: some(0.25), Vanish: some(0.15), Refuse: some(0.15),
		Twice:    some(0.25),
		LoseWake: some(0.9), DelayWake: some(0.5),
	}
	if r.IntN(2) == 0 {
		f.FalseWake = time.Duration(float64(delay) * (5 + 50*r.Float64()))
	}
	return f
}

// fate is what befalls a request.
type fate uint8

const (
	pass fate = iota
	late
	loseReply
	vanish
	refuse
	twice
)

var fateNames = [...]string{
	late: "late: executed behind the caller's back", loseReply: "executed, reply lost",
	vanish: "vanished", refuse: "refused",
	twice: "executed twice",
}

// A plan is all that befalls one request.
type plan struct {
	n     uint64 // number of the request
	fate  fate
	there time.Duration // to the store
	back  time.Duration // and back
	again time.Duration // from the first execution to the second
}

func (p plan) fault() error {
	return fmt.Errorf("%w %d: connection broke", ErrFault, p.n)
}

// plan draws what befalls the n-th request: it depends on the seed and on n alone.
func (f Faults) plan(seed, n uint64, c backend.Claim) plan {
	r := rand.New(rand.NewPCG(seed, n))
	limit := f.limit(c)
	p := plan{n: n, there: f.way(r, limit), back: f.way(r, limit), again: f.way(r, limit)}
	u := r.Float64()
	for _, kind := range []struct {
		fate fate
		rate float64
	}{
		{late, f.Late},
		{loseReply, f.LoseReply},
		{vanish, f.Vanish},
		{refuse, f.Refuse},
		{twice, f.Twice},
	} {
		if u < kind.rate {
			p.fate = kind.fate
			break
		}
		u -= kind.rate
	}
	if p.fate == late {
		p.there = min(limit, p.there+fraction(r, limit))
	}
	p.again = min(p.again, limit-p.there)
	return p
}

// limit bounds how late a request may be executed.
func (f Faults) limit(c backend.Claim) time.Duration {
	limit := f.Limit
	if limit == 0 {
		limit = 50 * f.Delay
	}
	return min(limit, c.TTL+c.TTL/2)
}

// way draws how long a message takes. Times are odd numbers of nanoseconds, so that few things
// happen at once in a bubble.
func (f Faults) way(r *rand.Rand, limit time.Duration) time.Duration {
	if f.Delay <= 0 {
		return 0
	}
	if r.Float64() < f.Slow {
		return fraction(r, limit)
	}
	return min(limit, time.Duration(float64(f.Delay)*math.Exp(r.NormFloat64()-1)))
}

// fraction draws a part of d.
func fraction(r *rand.Rand, d time.Duration) time.Duration {
	return time.Duration(r.Float64() * float64(d))
}
