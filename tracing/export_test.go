package tracing

// Left is how much an Observer still remembers of locks: nothing, when none is held or wanted.
func (o *Observer) Left() int {
	o.blockers.mu.Lock()
	o.leases.mu.Lock()
	defer o.blockers.mu.Unlock()
	defer o.leases.mu.Unlock()
	return len(o.blockers.keys) + len(o.leases.all)
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

const (
	PutOff    = putOff
	MostNotes = mostNotes
	SureAfter = sureAfter
)
