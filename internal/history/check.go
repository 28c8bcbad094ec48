package history

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A Violation is two events that a correct lock does not allow together.
type Violation struct {
	Reason string // what is wrong, with figures
	A, B   Event  // A started first, or is the same as B
}

// Broken begins the message of each violation. A run of tests in which one was said is a failure,
// whatever a second run of the test says: see internal/repo/skips.
const Broken = "safety: "

// Error says what is wrong and names both events.
func (v Violation) Error() string {
	return fmt.Sprintf("%s%s:\n\tA: %v\n\tB: %v", Broken, v.Reason, v.A, v.B)
}

// Check judges exclusive locks: it is [CheckCapacity] with 1. An event's Weight must be 0 or 1.
func Check(events []Event) []Violation { return CheckCapacity(events, 1) }

// CheckCapacity returns what is wrong, key by key in order of time; nil is a history that a correct
// lock explains. At any moment the weights of the beliefs in one key must not add up to more than
// capacity; a belief ends before one that starts at the same time. Tokens other than 0 must differ
// within a key, and an event's must be above that of every belief that was over when it started,
// and for which there is no room beside it (for exclusive locks: they rise in order of start).
// Those for which there is room may have been let in together, and learn of it in any order.
//
// Readers beside one writer are checked with a capacity as large as there may be readers, and the
// writers' Weight equal to it. An event without a moment of belief counts as a grant, for its token
// only. It takes O(n log n).
func CheckCapacity(events []Event, capacity int) []Violation {
	var found []Violation
	for _, key := range byKey(events) {
		found = append(found, overlaps(key, capacity)...)
		found = append(found, regressions(key, capacity)...)
		found = append(found, repeated(key)...)
	}
	return found
}

// Join returns the violations as one error, nil if there are none. Of many it names the first few.
func Join(violations []Violation) error {
	const named = 5
	var errs []error
	for i, v := range violations {
		if i == named {
			errs = append(errs, fmt.Errorf("and %d more violations", len(violations)-named))
			break
		}
		errs = append(errs, v)
	}
	return errors.Join(errs...)
}

// byKey splits events into those of each key, in order of start, the keys in order of name.
func byKey(events []Event) [][]Event {
	sorted := slices.Clone(events)
	slices.SortFunc(sorted, func(a, b Event) int {
		return cmp.Or(cmp.Compare(a.Key, b.Key), byStart(a, b))
	})
	var keys [][]Event
	for len(sorted) > 0 {
		n := slices.IndexFunc(sorted, func(e Event) bool { return e.Key != sorted[0].Key })
		if n < 0 {
			n = len(sorted)
		}
		keys = append(keys, sorted[:n])
		sorted = sorted[n:]
	}
	return keys
}

// byStart orders by start, and what starts together by end and token, so that results do not depend
// on input order.
func byStart(a, b Event) int {
	return cmp.Or(cmp.Compare(a.Start, b.Start), cmp.Compare(a.End, b.End),
		cmp.Compare(a.Token, b.Token))
}

// overlaps sweeps over the starts, and takes out whoever has ended by then.
func overlaps(events []Event, capacity int) []Violation {
	var found []Violation
	believed := slices.DeleteFunc(slices.Clone(events), func(e Event) bool { return !e.believed() })
	ends := byEnd(believed)
	used := 0
	var longest Event // of those that started, whose end is the latest; if anybody holds, it does
	for _, e := range believed {
		for len(ends) > 0 && ends[0].End <= e.Start {
			used -= ends[0].weight()
			ends = ends[1:]
		}
		before := used
		used += e.weight()
		switch {
		case e.weight() > capacity:
			found = append(found, Violation{fmt.Sprintf("weight %d exceeds the capacity %d",
				e.weight(), capacity), e, e})
		case used > capacity: // safeguard: judge-overlap
			found = append(found, Violation{excess(before, capacity, longest, e), longest, e})
		}
		if e.End > longest.End || !longest.believed() {
			longest = e
		}
	}
	return found
}

func excess(before, capacity int, a, b Event) string {
	together := min(a.End, b.End) - b.Start
	if capacity == 1 {
		return fmt.Sprintf("%q has two holders for %v", b.Key, together)
	}
	return fmt.Sprintf("%q is held over its capacity of %d for up to %v: %d were taken, among "+
		"them A's, when B took %d",
		b.Key, capacity, together, before, b.weight())
}

// regressions finds tokens that are not above that of every belief which had ended before, and
// excludes this one.
func regressions(events []Event, capacity int) []Violation {
	var found []Violation
	granted := slices.DeleteFunc(slices.Clone(events), func(e Event) bool {
		return e.Token == 0 || !e.believed()
	})
	ends := byEnd(granted)
	highest := map[int]Event{} // of those that ended, by weight: whose token is the highest
	for _, e := range granted {
		for len(ends) > 0 && ends[0].End <= e.Start {
			if w := ends[0].weight(); ends[0].Token > highest[w].Token {
				highest[w] = ends[0]
			}
			ends = ends[1:]
		}
		var above Event
		for w, h := range highest {
			// safeguard: judge-tokens
			if w+e.weight() > capacity && h.Token > max(e.Token, above.Token) {
				above = h
			}
		}
		if above.Token != 0 {
			found = append(found, Violation{fmt.Sprintf("token of %q fell from %d to %d", e.Key,
				above.Token, e.Token), above, e})
		}
	}
	return found
}

// repeated finds tokens that were granted twice.
func repeated(events []Event) []Violation {
	var found []Violation
	first := map[uint64]Event{}
	for _, e := range events {
		if e.Token == 0 {
			continue
		}
		if a, ok := first[e.Token]; ok {
			found = append(found, Violation{fmt.Sprintf("token %d of %q was granted twice", e.Token,
				e.Key), a, e})
			continue
		}
		first[e.Token] = e
	}
	return found
}

func byEnd(events []Event) []Event {
	sorted := slices.Clone(events)
	slices.SortFunc(sorted, func(a, b Event) int { return cmp.Compare(a.End, b.End) })
	return sorted
}

// Inversions counts the pairs of one key in which B was granted before A, although A asked more
// than slack earlier. Events without Asked are left out. slack covers the way from asking to the
// store, which is when the place in line is taken. A queue that is first come, first served has
// none. It takes O(n log n).
func Inversions(events []Event, slack time.Duration) int {
	count := 0
	for _, key := range byKey(events) {
		var asked []time.Duration
		for _, e := range key {
			if e.Asked != 0 {
				asked = append(asked, e.Asked)
			}
		}
		count += inversions(asked, slack)
	}
	return count
}

// inversions counts the pairs i < j with a[i] > a[j]+slack while it merge-sorts a.
func inversions(a []time.Duration, slack time.Duration) int {
	if len(a) < 2 {
		return 0
	}
	left, right := slices.Clone(a[:len(a)/2]), slices.Clone(a[len(a)/2:])
	count := inversions(left, slack) + inversions(right, slack)
	i := 0
	for _, r := range right {
		for i < len(left) && left[i] <= r+slack {
			i++
		}
		count += len(left) - i
	}
	copy(a, left)
	copy(a[len(left):], right)
	slices.Sort(a)
	return count
}
