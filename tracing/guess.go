package tracing

import (
	"math"
	"sync/atomic"

	"go.opentelemetry.io/otel/trace"
)

// guesses foretell whether the sampler will want the span of a wait, so that the sampler can be asked later. It is known for
// what kind of parent it has always decided the same, so far; if it ever does not, nothing is foretold any more.
type guesses [kinds]atomic.Int32 // how often in a row: yes, or no if negative

const (
	sureAfter = 16
	unsure    = math.MinInt32 // it has decided one way and the other
)

// The kinds of parents, as samplers tell them apart.
const (
	parentNone = iota
	parentHere
	parentHereUnsampled
	parentRemote
	parentRemoteUnsampled
	kinds
)

func kindOf(parent trace.SpanContext) int {
	kind := parentHere
	if !parent.IsValid() {
		return parentNone
	}
	if parent.IsRemote() {
		kind = parentRemote
	}
	if !parent.IsSampled() {
		kind++
	}
	return kind
}

// of returns what is foretold.
func (g *guesses) of(kind int) (sampled, sure bool) {
	n := g[kind].Load()
	return n > 0, n >= sureAfter || n <= -sureAfter && n != unsure
}

// learn takes note of a decision.
func (g *guesses) learn(kind int, span trace.Span) {
	n := g[kind].Load()
	sampled := span.SpanContext().IsSampled()
	switch {
	case n == unsure:
	case sampled != span.IsRecording(), sampled && n < 0, !sampled && n > 0:
		g[kind].Store(unsure)
	case sampled:
		g[kind].CompareAndSwap(n, min(n+1, sureAfter)) // another's may go before
	default:
		g[kind].CompareAndSwap(n, max(n-1, -sureAfter))
	}
}
