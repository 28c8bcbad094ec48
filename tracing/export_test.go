package tracing

import "github.com/holdfast-go/holdfast/internal/blame"

// Left is how much an Observer still remembers of locks: nothing, when none is held or wanted.
func (o *Observer) Left() int {
	n := 0
	o.blame.Each(func(*blame.Key) { n++ })
	o.leases.Range(func(any, any) bool { n++; return true })
	return n
}

// Service is the name by which a holder's service is counted.
func (o *Observer) Service(name string) string { return o.holders.Of(name) }

// The two ways of a traceparent.
var (
	Traceparent      = traceparent
	ParseTraceparent = parseTraceparent
)
