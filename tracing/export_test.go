package tracing

// Left is how much an Observer still remembers of locks: nothing, when none is held or wanted.
func (o *Observer) Left() int {
	o.blockers.mu.Lock()
	o.leases.mu.Lock()
	defer o.blockers.mu.Unlock()
	defer o.leases.mu.Unlock()
	return len(o.blockers.keys) - len(o.blockers.idle) + len(o.leases.all)
}

// Foretell lets o be sure of what the sampler says, as it is after some locks.
func (o *Observer) Foretell(sampled bool) {
	for kind := range o.guesses {
		o.guesses[kind].Store(sureAfter)
		if !sampled {
			o.guesses[kind].Store(-sureAfter)
		}
	}
}

// Prompt reports whether o has stopped foretelling.
func (o *Observer) Prompt() bool { return o.promptly.Load() }

// AnswersForSpan reports whether operations are the ctx that has their span.
func AnswersForSpan() bool { return spanKey != nil }

// ForgetSpanKey lets package trace have its own ctx around each operation, until the function it returns is called.
func ForgetSpanKey() (again func()) {
	key := spanKey
	spanKey = nil
	return func() { spanKey = key }
}

// IdleKeys is how many keys are kept at hand, and MostIdle how many may be.
func (o *Observer) IdleKeys() int {
	o.blockers.mu.Lock()
	defer o.blockers.mu.Unlock()
	return len(o.blockers.idle)
}

const (
	MostIdle  = mostIdle
	PutOff    = putOff
	MostNotes = mostNotes
	SureAfter = sureAfter
)
