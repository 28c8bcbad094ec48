package blame

import (
	"fmt"
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

// check compares the culprits of a wait with pids (0 is this process) and seconds.
func check(t *testing.T, all []Culprit, want ...int) {
	t.Helper()
	var got []int
	for _, c := range all {
		got = append(got, c.Meta.PID, int(c.For.Round(time.Second)/time.Second))
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("culprits %v, want %v", got, want)
	}
}

// Who was named has held since the one before, until another is named, or told of, or this process
// holds.
func TestWhoHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		second := func(n int) { time.Sleep(time.Duration(n) * time.Second) }
		first := ks.Wait("k", meta(1), nil)
		second(2)
		late := ks.Wait("k", backend.Meta{}, nil)
		second(1)
		ks.Named("k", meta(2), nil) // 1 is over
		ks.Named("k", meta(2), nil)
		second(4)
		// 3 and 4 have held since, and 2 for three seconds and not for one.
		ks.Told("k", []backend.Past{{Meta: meta(2), For: 3 * time.Second}, {Meta: meta(3), For: time.Second}, {Meta: meta(4), For: 2 * time.Second}})
		mine := &Hold{Meta: meta(0), Here: t, From: time.Now()}
		check(t, ks.Done(first, time.Now()), 2, 3, 4, 2, 1, 1, 3, 1)
		ks.Begin("k", mine)
		ks.Named("k", meta(0), nil) // no news
		ks.Each(func(k *Key) {
			if k.Name != "k" || k.Holder() != mine || len(k.Waits) != 1 {
				t.Errorf("%s is held by %+v, %d wait", k.Name, k.Holder(), len(k.Waits))
			}
		})
		second(5)
		if n := ks.End(mine, time.Now()); n != 1 {
			t.Errorf("%d have waited", n)
		}
		check(t, ks.Done(late, time.Now()), 0, 5, 2, 2, 4, 2, 3, 1)
		ks.Each(func(k *Key) { t.Errorf("%s is left", k.Name) })
	})
}

// What is forgotten with one key is not remembered of the next.
func TestNextKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		w, mine := ks.Wait("k", meta(1), nil), &Hold{Here: t, From: time.Now()}
		ks.Named("k", meta(2), t)
		time.Sleep(time.Second)
		ks.Done(w, time.Now())
		ks.Begin("l", mine)
		ks.Named("l", meta(0), t)
		if n := ks.End(mine, time.Now()); n != 0 {
			t.Errorf("%d have waited for another key", n)
		}
		w = ks.Wait("m", backend.Meta{}, nil)
		ks.Each(func(k *Key) {
			if k.Name != "m" || k.Holder() != nil || k.Asks != nil || len(k.Waits) != 1 {
				t.Errorf("%s is held by %+v, %v asks, %d wait", k.Name, k.Holder(), k.Asks, len(k.Waits))
			}
		})
		time.Sleep(time.Second)
		check(t, ks.Done(w, time.Now()))
	})
}

// What is remembered is bounded, and so is what a wait is told of.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ks Keys
		w := ks.Wait("k", backend.Meta{}, nil)
		for i := range 2 * kept {
			ks.Named("k", meta(i+1), nil)
			time.Sleep(time.Second)
		}
		if n := len(ks.keys["k"].Holds); n != kept {
			t.Errorf("%d holds are remembered", n)
		}
		if n := len(ks.Done(w, time.Now())); n != most {
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
		w := ks.Wait("k", was, nil)
		time.Sleep(time.Second)
		ks.Named("k", is, nil)
		time.Sleep(time.Second)
		all := ks.Done(w, time.Now())
		check(t, all, 1, 2)
		if all[0].Meta != is {
			t.Errorf("it is called %v", all[0].Meta)
		}
	})
}
