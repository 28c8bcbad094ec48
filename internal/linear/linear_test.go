package linear

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/internal/history"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hold is a belief from start to end, asked for at asked.
func hold(token uint64, weight int, asked, start, end time.Duration) history.Event {
	return history.Event{
		Worker: "w", Key: "k", Token: token, Weight: weight, Asked: asked,
		Start: start, End: end,
	}
}

// Both judges find each violation, and nothing in what a correct lock allows.
//
// covers: D3
func TestLocks(t *testing.T) {
	for name, c := range map[string]struct {
		capacity   int
		events     []history.Event
		wrong      string // in the message; empty: nothing is wrong
		oneIsBlind bool   // the interval checker does not see it
	}{
		"one after the other": {
			1,
			[]history.Event{hold(1, 1, 0, 1, 5), hold(2, 1, 2, 5, 9)},
			"", false,
		},
		"two at once": {
			1,
			[]history.Event{hold(1, 1, 0, 1, 5), hold(2, 1, 2, 4, 9)},
			"Token:2", false,
		},
		"two at once, without tokens": {
			1,
			[]history.Event{hold(0, 1, 0, 1, 5), hold(0, 1, 2, 4, 9)},
			"no order", false,
		},
		"a token that falls": {
			1,
			[]history.Event{hold(2, 1, 0, 1, 5), hold(1, 1, 6, 7, 9)},
			"Token:1", false,
		},
		"a token twice": {
			1,
			[]history.Event{hold(2, 1, 0, 1, 5), hold(2, 1, 6, 7, 9)},
			"no order", false,
		},
		"no moment of belief": {
			1,
			[]history.Event{hold(1, 1, 0, 1, 5), hold(3, 1, 0, 4, 4), hold(2, 1, 2, 5, 9)},
			"",
			false,
		},
		"permits": {
			3,
			[]history.Event{hold(1, 2, 0, 1, 5), hold(2, 1, 2, 4, 9), hold(3, 2, 2, 6, 9)},
			"",
			false,
		},
		"permits learnt of in any order": {
			3,
			[]history.Event{hold(2, 1, 0, 3, 5), hold(1, 1, 0, 4, 9)},
			"", false,
		},
		"permits over the limit": {
			3,
			[]history.Event{hold(1, 2, 0, 1, 5), hold(2, 2, 2, 4, 9)},
			"Weight:2", false,
		},
		"permits whose token falls": {
			3,
			[]history.Event{hold(2, 1, 0, 1, 9), hold(1, 1, 2, 4, 9)},
			"Token:1", true,
		},
		"readers, then a writer": {
			9,
			[]history.Event{hold(1, 1, 0, 1, 5), hold(2, 1, 0, 2, 6), hold(3, 9, 0, 6, 9)},
			"",
			false,
		},
		"a reader beside a writer": {
			9,
			[]history.Event{hold(1, 1, 0, 1, 5), hold(2, 9, 0, 4, 6)},
			"Weight:9", false,
		},
		"a writer beside a reader beside": {
			9,
			[]history.Event{hold(1, 9, 0, 1, 5), hold(2, 1, 0, 2, 3), hold(3, 1, 0, 2, 6)},
			"Weight:1", false,
		},
	} {
		t.Run(name, func(t *testing.T) {
			errs := Check(LockModel(c.capacity), Holds(c.events))
			if (len(errs) > 0) != (c.wrong != "") ||
				len(errs) > 0 && !strings.Contains(errs[0].Error(), c.wrong) {
				t.Errorf("porcupine finds %v", errs)
			}
			if found := history.CheckCapacity(c.events,
				c.capacity); (len(found) > 0) != (c.wrong != "" && !c.oneIsBlind) {
				t.Errorf("the interval checker finds %v", found)
			}
		})
	}
}

// Readers and writers who have all asked long before are explained at once: to try their orders one
// after the other would take longer than Check has.
func TestManyWhoWait(t *testing.T) {
	var events []history.Event
	at := time.Duration(1000)
	for range 20 {
		for range 8 {
			events = append(events, hold(0, 1, 0, at, at+10))
			at++
		}
		at += 10
		events = append(events, hold(0, 9, 0, at, at+5))
		at += 5
	}
	for i := range events {
		events[i].Asked = max(0, events[i].Start-500)
	}
	if errs := Check(LockModel(9), Holds(events)); errs != nil {
		t.Error(errs)
	}
}

// Registers have every write that was confirmed, and those without an answer perhaps.
//
// covers: D3
func TestRegisters(t *testing.T) {
	call := func(begin, end time.Duration, op Op) Call { return Call{op, begin, end} }
	read := func(v int) Op { return Op{Verb: Read, Value: v} }
	write := func(token uint64, v int) Op { return Op{Verb: Write, Token: token, Value: v} }
	swap := func(old, v int) Op { return Op{Verb: Swap, Old: old, Value: v} }
	refused := func(op Op) Op { op.Refused = true; return op }
	unknown := func(op Op) Op { op.Unknown = true; return op }
	for name, c := range map[string]struct {
		calls []Call
		fine  bool
	}{
		"one after the other": {[]Call{
			call(1, 2, write(1, 10)), call(3, 4, write(2, 20)),
			call(5, 6, read(20)),
		}, true},
		"a write that is lost": {[]Call{
			call(1, 2, write(1, 10)), call(3, 4, write(2, 20)),
			call(5, 6, read(10)),
		}, false},
		"a late one is refused": {[]Call{
			call(1, 2, write(2, 10)),
			call(3, 4, refused(write(1, 20))), call(5, 6, read(10)),
		}, true},
		"a late one is not refused": {[]Call{
			call(1, 2, write(2, 10)),
			call(3, 4, write(1, 20)),
		}, false},
		"a new one is refused": {[]Call{
			call(1, 2, write(1, 10)),
			call(3, 4, refused(write(2, 20))),
		}, false},
		"nobody knows, and it was": {[]Call{
			call(1, Never, unknown(write(1, 10))),
			call(3, 4, read(0)), call(5, 6, read(10)),
		}, true},
		"nobody knows, and it was not": {[]Call{
			call(1, Never, unknown(write(1, 10))),
			call(3, 4, read(0)),
		}, true},
		"nobody knows, and it went": {[]Call{
			call(1, Never, unknown(write(1, 10))),
			call(3, 4, read(10)), call(5, 6, read(0)),
		}, false},
		"swaps": {
			[]Call{
				call(1, 2, swap(0, 1)),
				call(3, Never, unknown(swap(1, 2))), call(5, 6, swap(2, 3)), call(7, 8, read(3)),
			},
			true,
		},
		"a swap that was not executed": {[]Call{
			call(1, Never, unknown(swap(0, 1))),
			call(3, 4, swap(0, 2)), call(5, 6, read(2)),
		}, true},
		"a swap that is not there": {
			[]Call{call(1, 2, swap(0, 1)), call(3, 4, swap(0, 1))},
			false,
		},
		"a swap that comes in too late": {[]Call{
			call(1, Never, unknown(swap(0, 1))),
			call(3, 4, swap(0, 2)), call(5, 6, read(1)),
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			if errs := Check(RegisterModel(), c.calls); (len(errs) == 0) != c.fine {
				t.Errorf("porcupine finds %v", errs)
			}
		})
	}
}
