package tracing

// Left is how much an Observer still remembers of locks: nothing, when none is held or wanted.
func (o *Observer) Left() int {
	o.leases.mu.Lock()
	defer o.leases.mu.Unlock()
	return o.blame.Len() + len(o.leases.all)
}

// The two ways of a traceparent.
var (
	Traceparent      = traceparent
	ParseTraceparent = parseTraceparent
)
