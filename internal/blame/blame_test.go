package blame

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func meta(pid int) backend.Meta {
	return backend.Meta{PID: pid, Traceparent: fmt.Sprintf("00-%032d-1-01", pid)}
}

// check compares the intervals of a wait with pids (0 is this process) and seconds.
func check(t *testing.T, all []Interval, want ...int) {
	t.Helper()
	var got []int
	for _, c := range all {
		got = append(got, c.Who.Meta.PID, int(c.For().Round(time.Second)/time.Second))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("intervals %v, want %v", got, want)
	}
}

// Who was named has held until it was last named, or for as long as it is told of. What nobody
// tells of is not known.
func TestWhoHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		second := func(n int) { time.Sleep(time.Duration(n) * time.Second) }
		began := time.Now()
		first := ks.Wait("k", meta(1), nil, false)
		second(2)
		ks.Named("k", meta(1), nil) // for two seconds at least
		late := ks.Wait("k", backend.Meta{}, nil, false)
		second(1)
		ks.Named("k", meta(2), nil)
		second(4)
		// 3 and 4 have held since, and 2 for a second before. 1 was over then.
		ks.Told("k", []backend.Past{
			{Meta: meta(1), For: time.Hour},
			{Meta: meta(2), For: time.Second},
			{Meta: meta(3), For: time.Second},
			{Meta: meta(4), For: 2 * time.Second},
		}, true)
		mine := &Hold{Meta: meta(0), Here: t, From: time.Now()}
		all := ks.Done(first, time.Now())
		check(t, all, 1, 2, 4, 2, 2, 1, 3, 1)
		if unheld, unknown := Gaps(all, began, time.Now(), false); unheld != 0 ||
			unknown != time.Second {
			t.Errorf("nobody held for %v, not known for %v", unheld, unknown)
		}
		ks.Begin("k", mine)
		ks.Named("k", meta(0), nil) // no news
		ks.Each(func(k *Key) {
			if k.Name != "k" || k.Holder() != mine || len(k.Waits) != 1 {
				t.Errorf("%s is held by %+v, %d wait", k.Name, k.Holder(), len(k.Waits))
			}
		})
		second(5)
		if n, _ := ks.End(mine, time.Now()); n != 1 {
			t.Errorf("%d have waited", n)
		}
		second(1)
		next := &Hold{Meta: meta(0), Here: t, From: time.Now()} // by the same lease
		ks.Begin("k", next)
		second(1)
		ks.End(next, time.Now())
		all = ks.Done(late, time.Now().Add(time.Second))
		check(t, all, 0, 5, 4, 2, 2, 1, 3, 1, 0, 1, 1, 0)
		for passed, want := range map[bool]time.Duration{
			false: time.Second,
			true:  2 * time.Second,
		} {
			unheld, unknown := Gaps(all, late.Since, time.Now().Add(time.Second), passed)
			if unheld != want || unknown != 3*time.Second-want {
				t.Errorf("passed %v: nobody held for %v, not known for %v", passed, unheld, unknown)
			}
		}
		ks.Each(func(k *Key) { t.Errorf("%s is left", k.Name) })
	})
}

// Nobody is blamed for what is not known: who was named once, for no time, and what is told of from
// before the wait not at all.
func TestWhatIsNotKnown(t *testing.T) {
	for name, c := range map[string]struct {
		named  int
		before []backend.Past
		want   []int
	}{
		"named, and no more": {1, nil, []int{1, 0}},
		"another is told of": {
			1,
			[]backend.Past{{Meta: meta(2), For: time.Second}},
			[]int{2, 1, 1, 0},
		},
		"for longer than the wait": {
			0,
			[]backend.Past{{Meta: meta(2), For: time.Hour}},
			[]int{2, 3},
		},
		"for longer than since it was named": {
			1,
			[]backend.Past{{Meta: meta(1), For: time.Hour}},
			[]int{1, 3},
		},
		"for less": {1, []backend.Past{
			{Meta: meta(1), For: time.Second},
			{Meta: meta(2), For: time.Second},
		}, []int{1, 1, 2, 1}},
		"an earlier one, which was over": {
			1,
			[]backend.Past{
				{Meta: meta(3), For: time.Hour},
				{Meta: meta(1), For: 2 * time.Second},
				{Meta: meta(2), For: time.Second},
			},
			[]int{1, 2, 2, 1},
		},
		"hand-overs take time, too": { // a second is nobody's
			1, []backend.Past{
				{Meta: meta(3), For: time.Second},
				{Meta: meta(1), For: time.Second},
				{Meta: meta(2), For: time.Second},
			}, []int{1, 1, 2, 1},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var ks Keys
				who := backend.Meta{}
				if c.named > 0 {
					who = meta(c.named)
				}
				w := ks.Wait("k", who, nil, false)
				time.Sleep(3 * time.Second)
				ks.Told("k", c.before, true)
				check(t, ks.Done(w, time.Now()), c.want...)
			})
		})
	}
}

// Nobody is in the way beside an exclusive hold of this process, however late its end, or what the
// store says of another, is told. Holds of an owner within one another are one, and readers hold
// together.
func TestNobodyBesideAHold(t *testing.T) {
	type hold struct{ pid, from, to int }
	for name, c := range map[string]struct {
		holds []hold // of this process; negative: not exclusive
		named []hold // of others
		want  []hold
	}{
		"ends late": {
			holds: []hold{{10, 0, 5}, {11, 3, 8}},
			want:  []hold{{10, 0, 3}, {11, 3, 8}},
		},
		"two of them": {
			holds: []hold{{10, 0, 5}, {11, 3, 8}, {12, 4, 9}},
			want:  []hold{{10, 0, 3}, {11, 3, 4}, {12, 4, 9}},
		},
		"by the same owner": {
			holds: []hold{{10, 0, 8}, {11, 3, 5}},
			want:  []hold{{10, 0, 8}},
		},
		"readers": {
			holds: []hold{{-10, 0, 5}, {-11, 3, 8}},
			want:  []hold{{-10, 0, 5}, {-11, 3, 8}},
		},
		"another named before": {
			holds: []hold{{10, 2, 6}}, named: []hold{{1, 0, 3}},
			want: []hold{{1, 0, 2}, {10, 2, 6}},
		},
		"another named too soon": {
			holds: []hold{{10, 1, 6}}, named: []hold{{1, 4, 8}},
			want: []hold{{10, 1, 6}, {1, 6, 8}},
		},
		"another named meanwhile": {
			holds: []hold{{10, 1, 6}}, named: []hold{{1, 3, 4}},
			want: []hold{{10, 1, 6}, {1, 6, 6}},
		},
		"another, and then the next": {
			holds: []hold{{10, 0, 5}, {11, 6, 9}},
			named: []hold{{1, 4, 7}}, want: []hold{{10, 0, 5}, {1, 5, 6}, {11, 6, 9}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var all []Interval
			began := time.Now()
			at := func(s int) time.Time { return began.Add(time.Duration(s) * time.Second) }
			for _, h := range slices.Concat(c.holds, c.named) {
				all = append(all, Interval{
					Hold{Meta: meta(h.pid), Alone: h.pid >= 10},
					at(h.from),
					at(h.to),
				})
			}
			var got []hold
			for _, i := range apart(all) {
				got = append(got, hold{
					i.Who.Meta.PID, int(i.From.Sub(began).Seconds()),
					int(i.To.Sub(began).Seconds()),
				})
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("%v, want %v", got, c.want)
			}
		})
	}
}

// Who is named again after another was is not said to have held meanwhile. Who is named again after
// its end was told of goes on: not every wake-up is because of an end.
func TestNamedInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		w := ks.Wait("k", meta(1), nil, false)
		began := time.Now()
		for _, pid := range []int{1, 2, 1, 1, 3} {
			time.Sleep(time.Second)
			ks.Named("k", meta(pid), nil)
		}
		time.Sleep(time.Second)
		ks.Told("k", []backend.Past{{Meta: meta(3), For: 2 * time.Second}}, true)
		for range 2 {
			time.Sleep(time.Second)
			ks.Named("k", meta(3), nil)
		}
		var got []string
		for _, i := range ks.Done(w, time.Now()) {
			got = append(got, fmt.Sprint(i.Who.Meta.PID, " ", i.From.Sub(began), " ",
				i.To.Sub(began)))
		}
		slices.Sort(got)
		if want := []string{"1 0s 1s", "1 3s 4s", "2 2s 2s", "3 4s 8s"}; !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
	})
}

// The same of holds that are there.
func TestHoldThatEndsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		w := ks.Wait("k", backend.Meta{}, nil, false)
		first := &Hold{Meta: meta(1), Here: t, Alone: true, From: time.Now()}
		ks.Begin("k", first)
		time.Sleep(3 * time.Second)
		next := &Hold{Meta: meta(2), Here: t, Alone: true, From: time.Now()}
		ks.Begin("k", next)
		time.Sleep(time.Second)
		ks.End(first, time.Now())
		time.Sleep(time.Second)
		ks.End(next, time.Now())
		check(t, ks.Done(w, time.Now()), 1, 3, 2, 2)
	})
}

// What is forgotten with one key is not remembered of the next.
func TestNextKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		w, mine := ks.Wait("k", meta(1), nil, false), &Hold{Here: t, From: time.Now()}
		ks.Named("k", meta(2), t)
		time.Sleep(time.Second)
		ks.Done(w, time.Now())
		ks.Begin("l", mine)
		ks.Named("l", meta(0), t)
		if n, _ := ks.End(mine, time.Now()); n != 0 {
			t.Errorf("%d have waited for another key", n)
		}
		w = ks.Wait("m", backend.Meta{}, nil, false)
		ks.Each(func(k *Key) {
			if k.Name != "m" || k.Holder() != nil || k.Asks != nil || len(k.Waits) != 1 {
				t.Errorf("%s is held by %+v, %v asks, %d wait", k.Name, k.Holder(), k.Asks,
					len(k.Waits))
			}
		})
		time.Sleep(time.Second)
		check(t, ks.Done(w, time.Now()))
	})
}

// What is remembered is bounded.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		w := ks.Wait("k", backend.Meta{}, nil, false)
		for i := range 2 * kept {
			ks.Named("k", meta(i+1), nil)
			time.Sleep(time.Second)
		}
		if n := len(ks.keys["k"].Holds); n != kept {
			t.Errorf("%d holds are remembered", n)
		}
		if n := len(ks.Done(w, time.Now())); n != kept {
			t.Errorf("a wait is told of %d", n)
		}
	})
}

// A claim may name another span of its trace while it waits, and is the same.
func TestClaimThatIsRenamed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		was, is := meta(1), meta(1)
		is.Traceparent = is.Traceparent[:35] + "-2-01"
		w := ks.Wait("k", was, nil, false)
		time.Sleep(time.Second)
		ks.Named("k", is, nil)
		time.Sleep(time.Second)
		all := ks.Done(w, time.Now())
		check(t, all, 1, 1)
		if all[0].Who.Meta != is {
			t.Errorf("it is called %v", all[0].Who.Meta)
		}
	})
}
