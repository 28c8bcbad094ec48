package backendtest

import (
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/linear"
)

// judge has both judges look at holds: the one that knows what beliefs may do beside each other,
// and porcupine, which looks for an order of all calls that explains them.
func (e *env) judge(events []history.Event, capacity int) {
	e.Helper()
	if err := history.Join(history.CheckCapacity(events, capacity)); err != nil {
		e.Errorf("%v", err)
	}
	e.explained(linear.LockModel(capacity), linear.Holds(events))
}

// explained fails unless porcupine finds an order of the calls in which m gives their answers.
func (e *env) explained(m linear.Model, calls []linear.Call) {
	e.Helper()
	for _, err := range linear.Check(m, calls) {
		e.Errorf("%v", err)
	}
}
