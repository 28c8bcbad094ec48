package tracing

// Left is how much an Observer still remembers of locks: nothing, when none is held or wanted.
func (o *Observer) Left() int {
	o.blockers.mu.Lock()
	o.leases.mu.Lock()
	defer o.blockers.mu.Unlock()
	defer o.leases.mu.Unlock()
	return len(o.blockers.keys) + len(o.leases.all)
}

// The two ways of a traceparent.
var (
	Traceparent      = traceparent
	ParseTraceparent = parseTraceparent
)
