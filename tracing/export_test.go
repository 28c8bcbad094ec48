package tracing

// Left is how much an Observer still remembers of locks: nothing, when none is held or wanted.
func (o *Observer) Left() int {
	n := o.blame.Len()
	o.leases.Range(func(any, any) bool { n++; return true })
	return n
}

// The two ways of a traceparent.
var (
	Traceparent      = traceparent
	ParseTraceparent = parseTraceparent
)
