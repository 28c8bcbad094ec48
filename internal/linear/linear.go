// Package linear judges histories by linearizability: whether there is an order of all calls, each
// at a moment between its beginning and its return, in which a correct lock or register gives the
// answers that were given. It is porcupine with models of what locks promise, beside the interval
// checker of internal/history, which looks at beliefs alone.
//
// A call whose answer is unknown returns at [Never]: it may have its effect at any later moment, or
// none that anybody sees.
package linear

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/holdfast-go/holdfast/internal/history"
)

// Never is when a call without an answer returns.
const Never = math.MaxInt64

// An Op is what was called, and what it answered.
type Op struct {
	Verb    Verb
	Key     string
	Worker  string
	ID      int    // of a hold, within its key: an Unlock's is that of its Lock
	Weight  int    // of a hold
	Token   uint64 // of a hold, or with a Write; 0: none
	Value   int    // written or read
	Old     int    // that a Swap found
	Refused bool   // a Write, for its token
	Unknown bool   // whether it was executed
}

// A Verb is what is called.
type Verb string

// The verbs: of a lock, and of a register.
const (
	Lock   Verb = "lock"
	Unlock Verb = "unlock"
	Read   Verb = "read"
	Write  Verb = "write" // of a fenced register
	Swap   Verb = "swap"  // of one value for another, by who has read the one under a lock
)

// A Call is an Op and when it was under way.
type Call struct {
	Op
	Begin, End time.Duration
}

// Holds returns the calls of beliefs. A Lock was under way from when it was asked for to when the
// belief began. An Unlock has its effect at any time after the belief has ended: no answer says
// when a store has let go of what ran out. Events without a moment of belief are left out: a lease
// that was over before anybody knew of it may have been granted to others before.
func Holds(events []history.Event) []Call {
	var calls []Call
	for i, e := range events {
		if e.End <= e.Start {
			continue
		}
		op := Op{Key: e.Key, Worker: e.Worker, ID: i, Weight: max(e.Weight, 1), Token: e.Token}
		op.Verb = Lock
		calls = append(calls, Call{op, e.Asked, e.Start})
		op.Verb = Unlock
		calls = append(calls, Call{op, e.End, Never})
	}
	return calls
}

// A Model is a correct store of one key.
type Model struct {
	init any
	step func(state any, op Op) (bool, any)
}

// A held is the state of a lock: who holds, in order of their ids, and the newest token.
type held struct {
	holds string // "id:weight" each, sorted
	used  int
	token uint64
}

// LockModel is of a lock with a capacity, whose tokens rise with each grant: 1 for exclusive locks;
// the limit of permits; and for readers beside a writer as many as there may be readers, which is
// the writer's weight.
func LockModel(capacity int) Model {
	return Model{held{}, func(state any, op Op) (bool, any) {
		h := state.(held) //nolint:errcheck,forcetypeassert // its own
		name := fmt.Sprintf("%d:%d", op.ID, op.Weight)
		holds := strings.Fields(h.holds)
		at, holding := slices.BinarySearch(holds, name)
		switch op.Verb {
		case Lock:
			if holding || h.used+op.Weight > capacity || op.Token != 0 && op.Token <= h.token {
				return false, h
			}
			return true, held{
				strings.Join(slices.Insert(holds, at, name), " "), h.used + op.Weight,
				max(op.Token, h.token),
			}
		case Unlock:
			if !holding {
				return false, h
			}
			return true, held{
				strings.Join(slices.Delete(holds, at, at+1), " "), h.used - op.Weight,
				h.token,
			}
		}
		return false, h
	}}
}

// A fenced is the state of a register: its value, and the newest token that came.
type fenced struct {
	value int
	token uint64
}

// RegisterModel is of a register that begins with 0. A Write is refused if and only if a newer
// token came before. A Swap finds what was written last.
func RegisterModel() Model {
	return Model{fenced{}, func(state any, op Op) (bool, any) {
		f := state.(fenced) //nolint:errcheck,forcetypeassert // its own
		switch op.Verb {
		case Read:
			return op.Value == f.value, f
		case Write:
			stale := op.Token < f.token
			if !stale {
				return op.Unknown || !op.Refused, fenced{op.Value, op.Token}
			}
			return op.Unknown || op.Refused, f
		case Swap:
			if op.Old == f.value {
				return true, fenced{op.Value, f.token}
			}
			return op.Unknown, f
		}
		return false, f
	}}
}

// patience is how long a key's history is searched: what is linearizable is found so at once.
const patience = 10 * time.Second

// Check returns what is wrong with the calls, key by key in order of name: nil if there is an order
// for each in which m gives their answers. It is an error, too, if that cannot be found out in ten
// seconds; it must not be called where time is virtual.
func Check(m Model, calls []Call) (errs []error) {
	keys := map[string][]porcupine.Operation{}
	for _, c := range calls {
		keys[c.Key] = append(keys[c.Key],
			porcupine.Operation{Input: c.Op, Call: int64(c.Begin), Return: int64(c.End)})
	}
	model := porcupine.Model{
		Init: func() any { return m.init },
		Step: func(state, input, _ any) (bool, any) {
			return m.step(state, input.(Op)) //nolint:errcheck,forcetypeassert // as above
		},
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		ops := keys[key]
		if m.explained(ops) {
			continue
		}
		slices.SortStableFunc(ops, func(a, b porcupine.Operation) int {
			return cmp.Compare(a.Call, b.Call)
		})
		switch result, info := porcupine.CheckOperationsVerbose(model, ops, patience); result {
		case porcupine.Illegal:
			errs = append(errs, fmt.Errorf("%s%q: no order explains its %d calls: %s",
				history.Broken, key, len(ops), blocked(info, ops)))
		case porcupine.Unknown:
			errs = append(errs, fmt.Errorf("%q: nobody knows if an order explains its %d calls",
				key, len(ops)))
		}
	}
	return errs
}

// explained reports whether the likeliest order gives the answers of ops: each call has its effect
// when it returns, or, without an answer, when it begins. That is an order as any other, as nothing
// that had returned before another began comes behind it; and of a lock it leaves the most room, as
// each hold is as short as it can be. To search for one takes longer than a test may, now and then,
// where a writer waits behind many readers.
func (m Model) explained(ops []porcupine.Operation) bool {
	at := func(o porcupine.Operation) int64 {
		if o.Return == Never {
			return o.Call
		}
		return o.Return
	}
	ordered := slices.SortedStableFunc(slices.Values(ops), func(a, b porcupine.Operation) int {
		return cmp.Compare(at(a), at(b))
	})
	state := m.init
	for _, o := range ordered {
		ok := false
		//nolint:errcheck,forcetypeassert // as above
		if ok, state = m.step(state, o.Input.(Op)); !ok {
			return false
		}
	}
	return true
}

// blocked names what is without an explanation once the most that can be explained is.
func blocked(info porcupine.LinearizationInfo, ops []porcupine.Operation) string {
	var most []int
	for _, ids := range info.PartialLinearizations()[0] {
		if len(ids) > len(most) {
			most = ids
		}
	}
	var text strings.Builder
	say := func(what string, i int) {
		fmt.Fprintf(&text, "\n\t%s %+v from %v to %v", what, ops[i].Input,
			time.Duration(ops[i].Call), time.Duration(ops[i].Return))
	}
	for _, i := range most[max(0, len(most)-4):] {
		say("after", i)
	}
	stuck := -1
	for i := range ops {
		if !slices.Contains(most, i) && (stuck < 0 || ops[i].Return < ops[stuck].Return) {
			stuck = i
		}
	}
	say("not", stuck)
	return text.String()
}
