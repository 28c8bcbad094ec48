package history_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
)

// ev is an event of key k with times in units that do not matter.
func ev(worker string, token uint64, start, end time.Duration) history.Event {
	return history.Event{
		Process: "p", Worker: worker, Key: "k", Token: token, Start: start,
		End: end,
	}
}

func on(key string, e history.Event) history.Event { e.Key = key; return e }

func weighing(w int, e history.Event) history.Event { e.Weight = w; return e }

func TestCheck(t *testing.T) {
	for name, c := range map[string]struct {
		capacity int
		events   []history.Event
		want     []string // for each violation, what its text must contain
	}{
		"nothing":           {1, nil, nil},
		"one":               {1, []history.Event{ev("a", 1, 10, 20)}, nil},
		"one after another": {1, []history.Event{ev("a", 1, 10, 20), ev("b", 2, 21, 30)}, nil},
		"touching":          {1, []history.Event{ev("a", 1, 10, 20), ev("b", 2, 20, 30)}, nil},
		"other keys": {
			1,
			[]history.Event{ev("a", 2, 10, 20), on("l", ev("b", 1, 15, 30))},
			nil,
		},
		"no tokens":          {1, []history.Event{ev("a", 0, 10, 20), ev("b", 0, 20, 30)}, nil},
		"gaps in the tokens": {1, []history.Event{ev("a", 3, 10, 20), ev("b", 900, 20, 30)}, nil},
		"unsorted": {
			1,
			[]history.Event{ev("c", 3, 30, 40), ev("a", 1, 10, 20), ev("b", 2, 20, 30)},
			nil,
		},
		"belief that was over before it began": {1, []history.Event{
			ev("b", 2, 20, 40), ev("paused", 1, 30, 15), ev("c", 3, 40, 50),
		}, nil},
		"overlap by one": {
			1,
			[]history.Event{ev("a", 1, 10, 20), ev("b", 2, 19, 30)},
			[]string{`"k" has two holders for 1ns`},
		},
		"overlap in the input's order reversed": {
			1,
			[]history.Event{ev("b", 2, 19, 30), ev("a", 1, 10, 20)},
			[]string{`A: p/a held "k" from 10ns to 20ns with token 1`},
		},
		"the same moment": {
			1,
			[]history.Event{ev("a", 1, 10, 20), ev("b", 2, 10, 20)},
			[]string{"two holders for 10ns"},
		},
		"overlap with one who began long before": {1, []history.Event{
			ev("long", 1, 10, 100), ev("b", 2, 20, 30), ev("c", 3, 40, 50),
		}, []string{"A: p/long", "A: p/long"}},
		"overlap in one key of two": {1, []history.Event{
			ev("a", 1, 10, 20), on("l", ev("b", 1, 5, 30)), on("l", ev("c", 2, 15, 30)),
			ev("d", 2, 25, 30),
		}, []string{`"l" has two holders for 15ns`}},
		"token falls": {
			1,
			[]history.Event{ev("a", 2, 10, 20), ev("b", 1, 20, 30)},
			[]string{"fell from 2 to 1"},
		},
		"token falls late": {1, []history.Event{
			ev("a", 9, 10, 20), ev("b", 10, 20, 30),
			ev("c", 3, 30, 40),
		}, []string{"fell from 10 to 3"}},
		"token repeats": {
			1,
			[]history.Event{ev("a", 2, 10, 20), ev("b", 2, 20, 30)},
			[]string{"token 2 of \"k\" was granted twice"},
		},
		"token repeats in a belief over before it began": {
			1,
			[]history.Event{ev("a", 2, 10, 20), ev("b", 2, 20, 5)},
			[]string{"granted twice"},
		},
		"token falls beside holders without": {
			1,
			[]history.Event{ev("a", 2, 10, 20), ev("b", 0, 20, 30), ev("c", 1, 30, 40)},
			[]string{"fell from 2 to 1"},
		},

		"permits within the capacity": {
			2,
			[]history.Event{ev("a", 1, 10, 30), ev("b", 2, 20, 40), ev("c", 3, 30, 50)},
			nil,
		},
		"permits over it": {
			2,
			[]history.Event{ev("a", 1, 10, 31), ev("b", 2, 20, 40), ev("c", 3, 30, 50)},
			[]string{"over its capacity of 2 for up to 10ns"},
		},
		"permits seen in another order than granted": {
			2,
			[]history.Event{ev("a", 2, 10, 30), ev("b", 1, 20, 40)},
			nil,
		},
		"permits granted together, one of which was seen when the other was over": {
			2,
			[]history.Event{ev("a", 2, 10, 30), ev("b", 1, 30, 40)},
			nil,
		},
		"writer after a reader, with a lower token": {
			100,
			[]history.Event{ev("r", 2, 10, 30), weighing(100, ev("w", 1, 30, 40))},
			[]string{"fell from 2 to 1"},
		},
		"reader after a writer and a reader, with a lower token than both": {
			100,
			[]history.Event{
				weighing(100, ev("w", 2, 10, 20)), ev("r1", 3, 20, 30),
				ev("r2", 1, 30, 40),
			},
			[]string{"fell from 2 to 1"},
		},
		"weights": {4, []history.Event{
			weighing(3, ev("a", 1, 10, 30)), ev("b", 2, 20, 40),
			weighing(3, ev("c", 3, 30, 50)),
		}, nil},
		"weights over it": {
			4,
			[]history.Event{
				weighing(3, ev("a", 1, 10, 30)), ev("b", 2, 20, 40),
				weighing(3, ev("c", 3, 29, 50)),
			},
			[]string{"4 were taken, among them A's, when B took 3"},
		},
		"weight above the capacity": {
			2,
			[]history.Event{weighing(3, ev("a", 1, 10, 30))},
			[]string{"weight 3 exceeds"},
		},
		"readers and a writer": {100, []history.Event{
			ev("r1", 1, 10, 30), ev("r2", 2, 15, 40), weighing(100, ev("w", 3, 40, 50)),
			ev("r3", 4, 50, 60),
		}, nil},
		"writer beside a reader": {
			100,
			[]history.Event{ev("r", 1, 10, 30), weighing(100, ev("w", 2, 29, 50))},
			[]string{"over its capacity of 100"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := history.CheckCapacity(c.events, c.capacity)
			if len(got) != len(c.want) {
				t.Fatalf("%d violations, want %d: %v", len(got), len(c.want), history.Join(got))
			}
			for i, want := range c.want {
				if text := got[i].Error(); !strings.Contains(text, want) ||
					!strings.Contains(text, "\n\tB: ") {
					t.Errorf("violation %d is\n%s\nwant %q in it, and both events", i, text, want)
				}
			}
		})
	}
}

// TestCheckAgreesWithThePlainDefinition compares the sweep with the definition, pair by pair, on
// random histories, of which about half are correct.
func TestCheckAgreesWithThePlainDefinition(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	correct := 0
	for range 3000 {
		events := make([]history.Event, 2+random.IntN(4))
		for i := range events {
			start := time.Duration(random.IntN(60))
			events[i] = ev(fmt.Sprint(i), uint64(start)+uint64(random.IntN(3)), start,
				start+time.Duration(random.IntN(12)))
		}
		wrong := false
		for i, a := range events {
			for _, b := range events[i+1:] {
				wrong = wrong || conflict(a, b)
			}
		}
		if got := history.Check(events); (got != nil) != wrong {
			t.Fatalf("seed %d: Check says %v, the definition says wrong=%v of %v", seed, got, wrong,
				events)
		}
		if !wrong {
			correct++
		}
	}
	if correct < 300 || correct > 2700 {
		t.Errorf("%d of 3000 histories were correct: the comparison shows little", correct)
	}
}

func conflict(a, b history.Event) bool {
	if a.Token == b.Token && a.Token != 0 {
		return true
	}
	if a.Start >= a.End || b.Start >= b.End {
		return false
	}
	if b.Start < a.Start {
		a, b = b, a
	}
	return b.Start < a.End && a.Start < b.End || a.End <= b.Start && a.Token > b.Token &&
		b.Token != 0
}

func TestCheckIsQuick(t *testing.T) {
	var good, bad []history.Event
	for i := range 50_000 {
		at := time.Duration(10 * i)
		good = append(good, ev("g", uint64(i+1), at, at+10))
		bad = append(bad, ev("b", uint64(i+1), at, at+1e9)) // everybody overlaps everybody
	}
	begin := time.Now()
	if got := history.Check(good); got != nil {
		t.Errorf("%v", got[0])
	}
	if got := history.Check(bad); len(got) != len(bad)-1 {
		t.Errorf("%d violations", len(got))
	}
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
}

func TestJoin(t *testing.T) {
	if err := history.Join(nil); err != nil {
		t.Errorf("Join(nil) = %v", err)
	}
	var events []history.Event
	for i := range 12 {
		events = append(events, ev(fmt.Sprint(i), uint64(i+1), time.Duration(i), 100))
	}
	text := fmt.Sprint(history.Join(history.Check(events)))
	if strings.Count(text, "two holders") != 5 ||
		!strings.HasSuffix(text, "and 6 more violations") {
		t.Errorf("Join = %s", text)
	}
}

func TestInversions(t *testing.T) {
	asked := func(at time.Duration, start time.Duration) history.Event {
		e := ev("w", 0, start, start+1)
		e.Asked = at
		return e
	}
	for name, c := range map[string]struct {
		events []history.Event
		slack  time.Duration
		want   int
	}{
		"in order":          {[]history.Event{asked(1, 10), asked(2, 20), asked(3, 30)}, 0, 0},
		"one overtakes one": {[]history.Event{asked(2, 10), asked(1, 20), asked(3, 30)}, 0, 1},
		"one overtakes two": {[]history.Event{asked(3, 10), asked(1, 20), asked(2, 30)}, 0, 2},
		"within the slack":  {[]history.Event{asked(6, 10), asked(1, 20)}, 5, 0},
		"beyond the slack":  {[]history.Event{asked(7, 10), asked(1, 20)}, 5, 1},
		"unknown":           {[]history.Event{asked(9, 10), asked(0, 20), asked(9, 30)}, 0, 0},
		"other keys":        {[]history.Event{asked(9, 10), on("l", asked(1, 20))}, 0, 0},
	} {
		if got := history.Inversions(c.events, c.slack); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	var events []history.Event
	want := 0
	for i := range 200 {
		e := asked(time.Duration(1+(i*7919)%200), time.Duration(i))
		for _, earlier := range events {
			if earlier.Asked > e.Asked+20 {
				want++
			}
		}
		events = append(events, e)
	}
	if got := history.Inversions(events, 20); got != want {
		t.Errorf("many: %d, want %d", got, want)
	}
}
