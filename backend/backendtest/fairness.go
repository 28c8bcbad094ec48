package backendtest

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
)

// FairProcesses lets four processes of four workers each compete for one lock of the store at url:
// once with each acquisition in the store, and once with the lock handed on within a process. Each
// process has one place in the store's queue: the places are served in the order in which they were
// taken, and no process has over 1.2 times the turns of another. A busy machine stops a process for
// half a second now and then, which has no turns when it is not queued: that time is not
// counted. The backend claims Queue. See [Processes] for what its package has to do.
//
// covers: W4, W11, W14
func FairProcesses(t *testing.T, url string) {
	t.Helper()
	calibrate()
	// How many holds a turn of some milliseconds has depends on the machine; over many turns that
	// evens out.
	t.Run("each acquisition in the store", func(t *testing.T) {
		fairProcesses(t, url, -1, 2*time.Second)
	})
	t.Run("handed on", func(t *testing.T) { fairProcesses(t, url, 0, 6*time.Second) })
}

const (
	fairCount = 4 // processes, and workers in each
	// most turns over least, where a process could have them, on an idle machine.
	fairShares = 1.2
	// holds that each process has at least, so that chance evens out.
	fairMany  = 50
	fairWhole = 2      // most turns over least, in all the time
	fairLine  = "line" // what a process's turns are recorded as
	// Those of which it is not known well when their place was taken.
	fairLate = "line, late"
	// How long a request may take that takes a place, on an idle machine.
	fairSlack = 10 * time.Millisecond
)

func fairProcesses(t *testing.T, url string, passes int, lasting time.Duration) {
	ttl, _ := leaseFor(t, url, time.Second)
	dir, key := t.TempDir(), "fair-"+rand.Text()
	var all []*process
	var files []string
	for i := range fairCount {
		o := orders{
			URL: url, Key: key, TTL: 10 * ttl, Name: fmt.Sprint(i), Workers: fairCount,
			Passes: passes, Turns: true,
		}
		o.History = filepath.Join(dir, o.Name)
		files = append(files, o.History)
		all = append(all, startWorker(t, o))
	}
	for _, p := range all {
		p.await(t, "to lock", 3*patience, func() bool { return p.locked > 0 })
	}
	from := history.Now()
	time.Sleep(lasting) // the measurement itself
	for _, p := range all {
		p.await(t, "to lock often", 6*patience, func() bool { return p.locked >= fairMany })
	}
	to := history.Now()
	for _, p := range all {
		p.stop(t)
	}
	events, err := history.Read(files...)
	if err != nil {
		t.Fatal(err)
	}
	judgeFairness(t, key, events, from, to)
}

// judgeFairness looks at what was recorded. Of two attempts that were in flight at once, either
// may have come first.
func judgeFairness(t *testing.T, key string, events []history.Event, from, to time.Duration) {
	t.Helper()
	var holds, turns []history.Event
	for _, e := range events {
		switch e.Key {
		case key:
			holds = append(holds, e)
		case fairLine:
			turns = append(turns, e)
		}
	}
	if err := history.Join(history.Check(holds)); err != nil {
		t.Error(err)
	}
	n := history.Inversions(turns, slower(fairSlack))
	shares, rates := sharesOf(key, events, from, to)
	t.Logf("%d turns of %d processes that are known well, %d holds; per process %v, a second in "+
		"the queue %.1f",
		len(turns), fairCount, len(holds), shares, rates)
	if n != 0 || len(turns) < 10*fairCount {
		t.Errorf("%d inversions in %d turns, want 0 in many", n, len(turns))
	}
	limit := 1 + (fairShares-1)*slowness
	if least, most := slices.Min(rates), slices.Max(rates); !(most <= limit*least) {
		t.Errorf("holds per process and second in the queue: %.1f, want most/least under %.2f",
			rates, limit)
	}
	if least, most := slices.Min(shares), slices.Max(shares); most > fairWhole*least {
		t.Errorf("holds per process: %v, want most/least under %v", shares, fairWhole)
	}
}

// sharesOf counts each process's holds of key from then to then, in all and for each second in
// which it held the key or was queued.
func sharesOf(key string, events []history.Event, from,
	to time.Duration,
) (shares []int, rates []float64) {
	shares, rates = make([]int, fairCount), make([]float64, fairCount)
	events = slices.Clone(events)
	slices.SortFunc(events, func(a, b history.Event) int { return cmp.Compare(a.Start, b.Start) })
	for p := range fairCount {
		inLine, ended := to-from, time.Duration(0) // the end of its last hold
		for _, e := range events {
			switch {
			case e.Process != fmt.Sprint(p):
			case e.Key != key: // its turn begins
				if away := min(e.Asked, to) - max(ended, from); ended != 0 && away > 0 {
					inLine -= away
				}
			default:
				if ended = e.End; e.Start >= from && e.End <= to {
					shares[p]++
				}
			}
		}
		rates[p] = float64(shares[p]) / inLine.Seconds()
	}
	return shares, rates
}

// KilledWaiter kills the process at the head of the queue of a lock of the store at url with
// SIGKILL, and then unlocks: the next in the queue is granted the lock within a second after the
// window in which a place has to be refreshed. The backend claims Queue. See [Processes] for what
// its package has to do.
//
// covers: W5, W9, G6
func KilledWaiter(t *testing.T, url string) {
	t.Helper()
	calibrate()
	deadWindow := slower(900 * time.Millisecond)
	b, err := backend.Open(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = b.Close() }()
	l, err := locker.New(b, locker.Bare, locker.Config{Logger: discard})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Shutdown(context.WithoutCancel(t.Context())) }()
	dir, key := t.TempDir(), "killed-"+rand.Text()
	g, err := l.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	line := func(name string, place int) *process {
		p := startWorker(t, orders{
			URL: url, Key: key, TTL: 30 * time.Second, Name: name, History: filepath.Join(dir,
				name), Workers: 1, Fallback: deadWindow / 3,
		})
		for end := time.Now().Add(3 * patience); ; time.Sleep(5 * time.Millisecond) {
			state, err := b.Inspect(t.Context(), key)
			if err != nil || time.Now().After(end) {
				t.Fatalf("waiting for process %s to be queued: %+v, %v", name, state, err)
			}
			if len(state.Waiters) == place && state.Waiters[place-1].Meta.PID == p.cmd.Process.Pid {
				return p
			}
		}
	}
	head, next := line("head", 1), line("next", 2)
	killed := history.Now()
	head.kill()
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	next.await(t, "to lock after the head of the queue was killed",
		deadWindow+slackAfterDeath()+patience, func() bool {
			return next.locked > 0
		})
	next.stop(t)
	events, err := history.Read(filepath.Join(dir, "next"))
	if err != nil || len(events) == 0 {
		t.Fatal(events, err)
	}
	took := events[0].Start - killed
	t.Logf("granted %v after the one before it was killed, with a window of %v", took, deadWindow)
	if took > deadWindow+slackAfterDeath() {
		t.Errorf("granted %v after the head of the queue was killed, want within %v and a second",
			took, deadWindow)
	}
}
