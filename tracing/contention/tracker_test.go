package contention_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/pprof/profile"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing/contention"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// theirs is the traceparent of the other process's locks, and theirTrace its trace.
const theirs, theirTrace = "00-" + theirTrace +
	"-b7ad6b7169203331-01", "0af7651916cd43dd8448eb211c80319c"

// elsewhere makes a backend seem to be another process's, whose clock is an hour ahead.
type elsewhere struct {
	backend.Backend
	pid     int    // 0: 7
	service string // "": billing <b>
}

func (e elsewhere) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	return e.Backend.TryAcquire(ctx, e.theirs(c))
}

func (e elsewhere) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	return e.Backend.Release(ctx, e.theirs(c))
}

func (e elsewhere) theirs(c backend.Claim) backend.Claim {
	c.Meta = backend.Meta{
		Service: cmp.Or(e.service, "billing <b>"), Host: "far", PID: cmp.Or(e.pid, 7),
		Traceparent: theirs, Since: c.Meta.Since.Add(time.Hour),
		Note: c.Meta.Note,
	}
	if n := len(c.Before); n > 0 { // the last is the claim itself
		c.Before = slices.Clone(c.Before)
		c.Before[n-1].Meta = c.Meta
	}
	return c
}

func client(t *testing.T, b backend.Backend, o locker.Observer) *locker.Client[struct{}] {
	t.Helper()
	l, err := locker.New(b, locker.Bare,
		locker.Config{Observer: o, Classes: []string{"order-*", "invoice-*"}})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// A shop is a process with locks held and waited for. Both the order and the far one are held; two
// wait for the order, one for the far lock.
func shop(t *testing.T, tracker *contention.Tracker) (end func()) {
	t.Helper()
	b := membackend.New()
	near, far := client(t, b, tracker), client(t, elsewhere{Backend: b}, nil)
	order, err1 := near.Lock(t.Context(), "order-17<x>")
	theirs, err2 := far.Lock(t.Context(), "invoice-4")
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	var wg sync.WaitGroup
	for _, key := range []string{"order-17<x>", "order-17<x>", "invoice-4"} {
		wg.Go(func() { waitFor(t, near, key) })
	}
	return func() {
		_, _ = order.Unlock(), theirs.Unlock()
		wg.Wait()
		for _, l := range []*locker.Client[struct{}]{near, far} {
			if err := l.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
	}
}

// waitFor is the place in the source that waits.
func waitFor(t *testing.T, l *locker.Client[struct{}], key string) {
	g, err := l.Lock(t.Context(), key)
	if err != nil {
		t.Error(err)
		return
	}
	_ = g.Unlock()
}

func get(t *testing.T, h http.Handler, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

func TestSnapshot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := contention.New(contention.Config{})
		end := shop(t, tracker)
		time.Sleep(15 * time.Second) // longer than a renewal
		synctest.Wait()
		w := get(t, tracker, "/debug/locks/json")
		var s contention.Snapshot
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil ||
			w.Header().Get("Content-Type") != "application/json" {
			t.Fatal(err, w.Body)
		}
		if len(s.Holds) != 1 || s.Holds[0].Key != "order-17<x>" || s.Holds[0].Token == 0 ||
			s.Holds[0].Waiters != 2 ||
			!strings.Contains(s.Holds[0].Where, "tracker_test.go") ||
			s.At.Sub(s.Holds[0].Since) != 15*time.Second {
			t.Errorf("holds: %+v", s.Holds)
		}
		here, there := 0, 0
		for _, w := range s.Waits {
			switch b := w.Blocker; {
			case b == nil:
				t.Errorf("nobody blocks %+v", w)
			case b.Here && w.Key == "order-17<x>" && w.Attempts == 0 &&
				b.Token == s.Holds[0].Token && b.Where == s.Holds[0].Where:
				here++
			case !b.Here && w.Key == "invoice-4" && b.PID == 7 && b.Trace == theirTrace &&
				w.Position == 1 && w.Attempts > 0 && !b.Since.After(w.Since):
				there++
			default:
				t.Errorf("%+v is blocked by %+v", w, b)
			}
		}
		if here != 2 || there != 1 {
			t.Errorf("waits: %+v", s.Waits)
		}
		if ahead := s.Waits[0].Ahead + s.Waits[1].Ahead + s.Waits[2].Ahead; ahead != 1 {
			t.Errorf("%d are behind another one of this process", ahead)
		}
		end()
		s = tracker.Snapshot()
		if len(s.LongestHolds) != 4 || s.LongestHolds[0].For != 15*time.Second ||
			len(s.LongestWaits) != 3 ||
			s.LongestWaits[2].For != 15*time.Second || s.LongestWaits[0].Blocker == nil ||
			!strings.Contains(s.LongestWaits[0].Where, "tracker_test.go") {
			t.Errorf("the longest waits %+v, holds %+v", s.LongestWaits, s.LongestHolds)
		}
		for _, w := range s.LongestWaits { // of which each tells who held meanwhile, as its bars do
			sum := time.Duration(0)
			for _, h := range w.Held {
				if sum += h.To.Sub(h.From); h.From.Before(w.Since) ||
					h.To.After(w.Since.Add(w.For)) || h.To.Before(h.From) {
					t.Errorf("held from %v to %v in a wait since %v of %v", h.From, h.To, w.Since,
						w.For)
				}
			}
			if len(w.Held) == 0 || w.Held[0].By.String() != w.Blocker.String() || sum != w.For {
				t.Errorf("in a wait of %v for %s held %+v, blocked by %v", w.For, w.Key, w.Held,
					w.Blocker)
			}
		}
		if page := get(t, tracker, "/debug/locks/").Body.String(); strings.Count(page,
			`width="100.00%"`) != 3 || !strings.Contains(page, "billing &lt;b&gt; on far, pid 7") {
			t.Errorf("the page does not draw the three waits:\n%s", page)
		}
		time.Sleep(2 * time.Minute)
		if s := tracker.Snapshot(); len(s.LongestHolds)+len(s.LongestWaits) > 0 {
			t.Errorf("after two minutes: %+v", s)
		}
		if s := tracker.Snapshot(); len(s.Holds)+len(s.Waits) > 0 {
			t.Errorf("left: %+v", s)
		}

		// In a process that holds, nobody asks the store for who waits there.
		again := client(t, membackend.New(), tracker)
		g, err := again.Lock(t.Context(), "invoice-4")
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan struct{})
		go func() {
			defer close(done)
			waitFor(t, again, "invoice-4")
		}()
		synctest.Wait()
		if s := tracker.Snapshot(); len(s.Waits) != 1 || s.Waits[0].Attempts != 0 ||
			s.Waits[0].Position != 0 || !s.Waits[0].Blocker.Here {
			t.Errorf("waits: %+v", s.Waits)
		}
		_ = g.Unlock()
		<-done
		if err := again.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Why a lock is held is said of holds, and of who is in the way, here and elsewhere.
func TestNotes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, tracker := membackend.New(), contention.New(contention.Config{})
		near, far := client(t, b, tracker), client(t, elsewhere{Backend: b}, nil)
		const ours, theirs, waits = "import <i>", "audit <i>", "export <i>"
		first, err1 := near.Lock(t.Context(), "order-1", locker.Note(ours))
		second, err2 := far.Lock(t.Context(), "order-2", locker.Note(theirs))
		if err1 != nil || err2 != nil {
			t.Fatal(err1, err2)
		}
		var wg sync.WaitGroup
		for _, key := range []string{"order-1", "order-2"} {
			wg.Go(func() {
				if g, err := near.Lock(t.Context(), key, locker.Note(waits)); err != nil ||
					g.Unlock() != nil {
					t.Error(err)
				}
			})
		}
		time.Sleep(time.Second)
		synctest.Wait()
		page, s := get(t, tracker, "/debug/locks/").Body.String(), tracker.Snapshot()
		if len(s.Holds) != 1 || s.Holds[0].Note != ours || len(s.Waits) != 2 {
			t.Fatalf("%+v", s)
		}
		for _, w := range s.Waits {
			if want := map[string]string{
				"order-1": ours,
				"order-2": theirs,
			}[w.Key]; w.Note != waits || w.Blocker == nil ||
				w.Blocker.Note != want {
				t.Errorf("%+v is blocked by %+v", w, w.Blocker)
			}
		}
		_, _ = first.Unlock(), second.Unlock()
		wg.Wait()
		page += get(t, tracker, "/debug/locks/").Body.String()
		for note, n := range map[string]int{"import": 4, "audit": 2, "export": 4} {
			if got := strings.Count(page, "“"+note+" &lt;i&gt;”"); got < n {
				t.Errorf("%s is shown %d times, want %d at least:\n%s", note, got, n, page)
			}
		}
		for _, l := range []*locker.Client[struct{}]{near, far} {
			if err := l.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestProfile(t *testing.T) {
	var data bytes.Buffer
	synctest.Test(t, func(t *testing.T) {
		tracker := contention.New(contention.Config{})
		end := shop(t, tracker)
		time.Sleep(10 * time.Second)
		end()
		quick := client(t, membackend.New(), tracker)
		waitFor(t, quick, "quick") // granted at once: not in the profile
		if err := quick.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		data = *get(t, tracker, "/debug/locks/profile").Body
	})
	p, err := profile.ParseData(data.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.CheckValid(); err != nil {
		t.Fatal(err)
	}
	counts, times := map[string]int64{}, map[string]int64{}
	for _, s := range p.Sample {
		class := s.Label["class"][0]
		counts[class] += s.Value[0]
		times[class] += s.Value[1]
		if top := s.Location[0].Line[0].Function.Name; !strings.HasSuffix(top,
			"contention_test.waitFor") {
			t.Errorf("%s is on top", top)
		}
	}
	if len(counts) != 2 || counts["order"] != 2 || counts["invoice"] != 1 ||
		times["order"] < 2*int64(10*time.Second) || times["order"] > 2*int64(11*time.Second) {
		t.Errorf("counts %v, times %v", counts, times)
	}

	file := filepath.Join(t.TempDir(), "locks.pb.gz")
	if err := os.WriteFile(file, data.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "go", "tool", "pprof", "-top", "-unit=s",
		file).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "Type: delay") ||
		!strings.Contains(string(out), "contention_test.waitFor") {
		t.Errorf("go tool pprof: %v\n%s", err, out)
	}
}

// A profile of some seconds has what was waited in them, and the one of holders those who were in
// the way.
func TestProfileOfSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := contention.New(contention.Config{})
		var holders []string
		samples := func(path string) (waits int64, delay time.Duration, top []string) {
			holders = nil
			p, err := profile.ParseData(get(t, tracker, path).Body.Bytes())
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range p.Sample {
				waits, delay = waits+s.Value[0], delay+time.Duration(s.Value[1])
				top = append(top, s.Location[0].Line[0].Function.Name)
				holders = append(holders, s.Label["holder"]...)
			}
			slices.Sort(holders)
			return waits, delay, top
		}
		end := shop(t, tracker)
		time.Sleep(10 * time.Second)
		end()
		waits, delay, top := samples("/debug/locks/holders")
		slices.Sort(top)
		if waits != 3 || delay != 30*time.Second || len(top) != 2 || top[0] != "billing <b>/7" ||
			!strings.HasSuffix(top[1], "contention_test.shop") ||
			!slices.Equal(holders, []string{"billing <b>/7", "this process"}) {
			t.Errorf("holders: %d, %v, %q, %q", waits, delay, top, holders)
		}
		if n, _, _ := samples("/debug/locks/profile?seconds=5"); n != 0 || holders != nil {
			t.Errorf("%d waits in five seconds in which nobody waited, holders %q", n, holders)
		}
		go func() {
			time.Sleep(time.Second)
			end := shop(t, tracker)
			time.Sleep(time.Second)
			end()
		}()
		if n, _, _ := samples("/debug/locks/profile?seconds=5"); n != 3 {
			t.Errorf("%d waits, want 3", n)
		}
		if n, _, _ := samples("/debug/locks/profile"); n != 6 {
			t.Errorf("%d waits in all, want 6", n)
		}
	})
}

// A profile tells two hundred other processes apart, and no more.
func TestProfileOfManyProcesses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const processes = 205
		b, tracker := membackend.New(), contention.New(contention.Config{})
		near := client(t, b, tracker)
		for i := range processes {
			far := client(t, elsewhere{b, i + 1, ""}, nil)
			g, err := far.Lock(t.Context(), "k")
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(time.Second, func() { _ = g.Unlock() })
			waitFor(t, near, "k")
			if err := far.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}
		if err := near.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		p, err := profile.ParseData(get(t, tracker, "/debug/locks/holders").Body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		counts := map[string]int64{}
		for _, s := range p.Sample {
			counts[s.Label["holder"][0]] += s.Value[0]
		}
		if len(counts) != 201 || counts["billing <b>/1"] != 1 || counts["billing <b>/200"] != 1 ||
			counts["_other"] != processes-200 {
			t.Errorf("%d holders: %v", len(counts), counts)
		}
	})
}

func TestRequests(t *testing.T) {
	tracker := contention.New(contention.Config{})
	for path, status := range map[string]int{
		"/debug/locks/": 200, "/": 200,
		"/debug/locks/profile": 200, "/debug/locks/holders": 200,
		"/debug/locks/profile?seconds=x": 400, "/debug/locks/other": 404,
	} {
		if w := get(t, tracker, path); w.Code != status {
			t.Errorf("%s: %d", path, w.Code)
		}
	}
}

// Only who has to wait is shown as waiting, since when he does, and counted in the profile. The
// place in the store's queue is that of his own claim, if he has one.
func TestWaitsAreWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, tracker := membackend.New(), contention.New(contention.Config{})
		slow := &slow{b, time.Second}
		near, far := client(t, slow, tracker), client(t, elsewhere{Backend: b}, nil)
		theirs, err := far.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := near.TryLock(t.Context(), "k"); err == nil {
			t.Fatal("granted twice")
		}
		var wg sync.WaitGroup
		wait := func() {
			g, err := near.Lock(t.Context(), "k", locker.Permit(1))
			if err != nil {
				t.Error(err)
				return
			}
			_ = g.Unlock()
		}
		wg.Go(wait)
		synctest.Wait()
		if s := tracker.Snapshot(); len(s.Waits)+len(s.Holds) > 0 {
			t.Errorf("before the first answer: %+v", s)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if s := tracker.Snapshot(); len(s.Waits) != 1 || s.Waits[0].Blocker == nil {
			t.Errorf("after the first answer: %+v", s)
		}
		wg.Go(wait)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		s, positions := tracker.Snapshot(), 0
		for _, w := range s.Waits {
			positions += w.Position
			if d := s.At.Sub(w.Since); d != 9*time.Second && d != 10*time.Second ||
				w.Attempts < 1 || w.Mode != "permit" || w.Blocker == nil || w.Blocker.PID != 7 {
				t.Errorf("%+v blocked by %+v", w, w.Blocker)
			}
		}
		if len(s.Waits) != 2 || positions != 1+2 {
			t.Errorf("waits: %+v", s.Waits)
		}
		_ = theirs.Unlock()
		wg.Wait()
		for _, l := range []*locker.Client[struct{}]{near, far} {
			if err := l.Shutdown(context.Background()); err != nil {
				t.Error(err)
			}
		}
		var data bytes.Buffer
		if err := tracker.WriteProfile(t.Context(), &data, false, 0); err != nil {
			t.Fatal(err)
		}
		p, err := profile.ParseData(data.Bytes())
		if err != nil || len(p.Sample) != 1 || p.Sample[0].Value[0] != 2 {
			t.Errorf("%v, %v", p, err)
		}
	})
}

// slow takes a while for each answer.
type slow struct {
	backend.Backend
	answer time.Duration
}

func (s *slow) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	time.Sleep(s.answer)
	return s.Backend.TryAcquire(ctx, c)
}

// Two waits of a deadlock are one row, which is there when it is over.
func TestDeadlockIsARow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker, b := contention.New(contention.Config{}), membackend.New()
		l, err := locker.New(b, locker.Bare,
			locker.Config{Observer: tracker, Service: "shop", BreakDeadlocks: true})
		if err != nil {
			t.Fatal(err)
		}
		var waits sync.WaitGroup
		keys := []string{"one<", "two"}
		var held []*locker.Guard[struct{}]
		for _, key := range keys {
			g, err := l.Lock(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			held = append(held, g)
		}
		for i, g := range held {
			waits.Go(func() {
				other, _ := l.Lock(g.Context(), keys[1-i])
				_ = other.Unlock()
				_ = g.Unlock()
			})
		}
		waits.Wait()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		s := tracker.Snapshot()
		if len(s.Deadlocks) != 1 || len(s.Deadlocks[0].Waits) != 2 ||
			s.Deadlocks[0].Waits[0].Holds != keys[0] || s.Deadlocks[0].Waits[0].For != keys[1] {
			t.Errorf("deadlocks: %+v", s.Deadlocks)
		}
		page := get(t, tracker, "/debug/locks/").Body.String()
		if strings.Count(page, " ago</td><td><div>shop on ") != 1 ||
			strings.Contains(page, keys[0]) {
			t.Errorf("the page has no row of it: %s", page)
		}
	})
}
