package redistest

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/waiting"
)

var scriptCalls = regexp.MustCompile(
	`cmdstat_(?:eval|evalsha|eval_ro|evalsha_ro|fcall|fcall_ro):calls=(\d+)`)

// scripts is how many scripts the server has run.
func scripts(srv *testserver.Server) (n int) {
	for _, found := range scriptCalls.FindAllStringSubmatch(srv.MustDo("INFO", "commandstats"),
		-1) {
		calls, _ := strconv.Atoi(found[1])
		n += calls
	}
	return n
}

// until polls until ready.
func until(t testing.TB, what string, ready func() bool) {
	t.Helper()
	storetest.Eventually(t, "waiting for "+what, func() error {
		if !ready() {
			return errors.New("not yet")
		}
		return nil
	})
}

func inspect(t testing.TB, b backend.Backend, key string) backend.State {
	t.Helper()
	state, err := b.Inspect(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// counting is an observer that knows how many wait.
type counting struct{ waits atomic.Int64 }

func (o *counting) Begin(ctx context.Context, op string,
	_ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	if op == locker.OpWait {
		o.waits.Add(1)
	}
	return ctx, func(locker.Hold, error) {}
}

// handOffs has n goroutines of one process wait for a key that another holds, and calls look while
// they do, and between any two hand-offs. It returns how many scripts the server ran from the
// first hand-off until everybody has had the key.
func handOffs(t *testing.T, srv *testserver.Server, scheme string, n int, cfg locker.Config,
	look func(key string),
) int {
	t.Helper()
	key := fmt.Sprintf("%s/%d", t.Name(), n)
	seen := &counting{}
	cfg.Observer = seen
	holder, l := Quiet(t, Closing(t, scheme+"://"+srv.Addr()), locker.Config{}),
		Quiet(t, Closing(t, scheme+"://"+srv.Addr()), cfg)
	first, err := holder.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range n {
		all.Go(func() {
			g, err := l.Lock(t.Context(), key)
			if err != nil {
				t.Error(err)
				return
			}
			look(key)
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		})
	}
	watcher := Closing(t, scheme+"://"+srv.Addr())
	until(t, "everybody to wait", func() bool {
		return seen.waits.Load() == int64(n) && len(inspect(t, watcher, key).Waiters) == 1
	})
	look(key)
	before := scripts(srv)
	if err := first.Unlock(); err != nil {
		t.Error(err)
	}
	all.Wait()
	return scripts(srv) - before
}

// OneWaiterForMany is a test: however many goroutines of a process wait for a key, the process has
// one place in the store's queue, and a hand-off costs the store no more than the release, the next
// place, and a question too many.
func OneWaiterForMany(t *testing.T, scheme string) {
	srv := testserver.Redis(t)
	watcher := Closing(t, scheme+"://"+srv.Addr())
	for name, passes := range map[string]int{"each acquisition in the store": -1, "handed on": 0} {
		t.Run(name, func(t *testing.T) {
			var cfg locker.Config
			cfg.Wait.Passes = passes
			var most atomic.Int64
			handOffs(t, srv, scheme, 64, cfg, func(key string) {
				n := int64(len(inspect(t, watcher, key).Waiters))
				for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
				}
			})
			if most.Load() != 1 {
				t.Errorf("%d of one process waited in the store at once", most.Load())
			}
			for _, n := range []int{4, 16, 64} {
				calls := handOffs(t, srv, scheme, n, cfg, func(string) {})
				t.Logf("%d waiters: %d scripts for %d hand-offs", n, calls, n)
				if calls > 3*n {
					t.Errorf("%d waiters: %d scripts for %d hand-offs, want at most 3 each", n,
						calls, n)
				}
			}
		})
	}
}

// ManyWaiters is a test: thousands that wait for as many keys share one subscription, ask no more
// often than keeps their places, and cost little. refresh is how many scripts it takes to keep a
// place once.
func ManyWaiters(t *testing.T, scheme string, refresh float64) {
	n := 5000
	if testing.Short() {
		n = 500
	}
	const fallback = 2500 * time.Millisecond
	srv := testserver.Redis(t)
	// All ask at once, and the machine may be busy.
	url := scheme + "://" + srv.Addr() + "?request_timeout=1m"
	holder, l := Quiet(t, Closing(t, url), locker.Config{}), Quiet(t, Closing(t, url),
		waitingUpTo(fallback))
	key := func(i int) string { return fmt.Sprintf("key-%d", i) }
	guards := make([]*locker.Guard[struct{}], n)
	each(16, n, func(i int) {
		g, err := holder.Lock(t.Context(), key(i), locker.TTL(time.Hour)) // no renewals meanwhile
		if err != nil {
			t.Error(err)
		}
		guards[i] = g
	})
	heap, stacks := memory()
	goroutines := runtime.NumGoroutine()
	ctx, giveUp := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			if g, err := l.Lock(ctx, key(i)); err == nil {
				t.Errorf("%s was granted twice", key(i))
				_ = g.Unlock()
			}
		})
	}
	watcher := Closing(t, url)
	each(16, n, func(i int) {
		until(t, "everybody to be queued", func() bool {
			return len(inspect(t, watcher, key(i)).Waiters) == 1
		})
	})
	heapThen, stacksThen := memory()
	t.Logf("%d waiters: %d B of heap, %d B of stack and %.2f goroutines each", n, (heapThen-heap)/n,
		(stacksThen-stacks)/n,
		float64(runtime.NumGoroutine()-goroutines)/float64(n))
	if subs := strings.Count(srv.MustDo("CLIENT", "LIST", "TYPE", "pubsub"), "id="); subs != 1 {
		t.Errorf("%d connections subscribe, want 1", subs)
	}

	before, began := scripts(srv), time.Now()
	time.Sleep(2 * fallback) // the measurement itself
	asked, periods := float64(scripts(srv)-before)/float64(n),
		time.Since(began).Seconds()/fallback.Seconds()
	t.Logf("%.2f scripts per waiter in %.2f fallback intervals", asked, periods)
	// An interval, less the jitter; and those that happen to come together.
	if most := refresh * (periods/0.8 + 1); asked > most {
		t.Errorf("each waiter asked %.2f times in %.2f fallback intervals, want at most %.2f to "+
			"keep its place", asked, periods, most)
	}
	giveUp()
	all.Wait()
	each(16, n, func(i int) { _ = guards[i].Unlock() })
}

// each calls f with 0 to n-1, some at once.
func each(workers, n int, f func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				f(int(i))
			}
		})
	}
	all.Wait()
}

// memory is what is in use after some collections: heap and stacks, in bytes.
func memory() (heap, stacks int) {
	for range 5 { // each halves the stacks that are too large
		runtime.GC()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc), int(m.StackInuse) //nolint:gosec // not on this machine
}

// EveryPublishIsLost is a test: every message of the store is lost. Each waiter finds out by
// itself, within its fallback, before its place or the grant that it was not told of lapses; so
// the queue moves, and in order.
func EveryPublishIsLost(t *testing.T, scheme string) {
	const clients, fallback = 6, 300 * time.Millisecond
	srv := testserver.Redis(t)
	p := testserver.NewProxy(t, srv.Addr())
	p.Set(testserver.Fault{Mode: testserver.LoseMessages})
	direct := Closing(t, scheme+"://"+srv.Addr())
	key := t.Name()
	first, err := Quiet(t, direct, locker.Config{}).Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range clients {
		l := Quiet(t, Closing(t, scheme+"://"+p.Addr()), waitingUpTo(fallback))
		all.Go(func() {
			g, err := l.Lock(t.Context(), key)
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			if err := g.Unlock(); err != nil {
				t.Error(err)
			}
		})
		until(t, "a place in the queue", func() bool {
			return len(inspect(t, direct, key).Waiters) == i+1
		})
	}
	began := time.Now()
	if err := first.Unlock(); err != nil {
		t.Error(err)
	}
	all.Wait()
	t.Logf("%d hand-offs without a message took %v", clients, time.Since(began))
	if !slices.IsSorted(order) || len(order) != clients {
		t.Errorf("served in the order %v", order)
	}
	if p.Counts().Lost == 0 {
		t.Error("no message was lost: the test shows nothing")
	}
}

// waitingUpTo is a configuration with that fallback.
func waitingUpTo(fallback time.Duration) (cfg locker.Config) {
	cfg.Wait.Fallback = fallback
	return cfg
}

// ReadersGiveUp is a test: thousands of readers of one key give up at once, and when all have
// returned, nothing of them is in the way of anybody.
//
// covers: W13, W7
func ReadersGiveUp(t *testing.T, scheme string) {
	readers := 8000
	if testing.Short() {
		readers = 5000
	}
	srv := testserver.Redis(t)
	seen := &counting{}
	holder := Quiet(t, Closing(t, scheme+"://"+srv.Addr()), locker.Config{})
	// Their places last for an hour.
	patient := locker.Config{Observer: seen, Wait: waiting.Config{Fallback: 20 * time.Minute}}
	l := Quiet(t, Closing(t, scheme+"://"+srv.Addr()), patient)
	g, err := holder.Lock(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	for range readers {
		all.Go(func() {
			if _, err := l.Lock(ctx, "k", locker.Shared()); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	watcher := Closing(t, scheme+"://"+srv.Addr())
	until(t, "all to wait", func() bool { return seen.waits.Load() == int64(readers) })
	began := time.Now()
	cancel()
	all.Wait()
	t.Logf("%d readers were back in %v", readers, time.Since(began))
	// At once, but on a busy machine, where a look at thousands of places takes its time from the
	// rest.
	for limit := began.Add(5 * time.Minute); len(inspect(t, watcher,
		"k").Waiters) > 0; time.Sleep(100 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("%d places are left of readers that have gone",
				len(inspect(t, watcher, "k").Waiters))
		}
	}
	t.Logf("after %v no place was left", time.Since(began))
	if err := g.Unlock(); err != nil {
		t.Error(err)
	}
	next, err := holder.TryLock(t.Context(), "k")
	if err != nil {
		t.Fatalf("when all have gone: %v", err)
	}
	if err := next.Unlock(); err != nil {
		t.Error(err)
	}
}
