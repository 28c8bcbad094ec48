package jobs

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// charge is a job about an order.
type charge struct {
	Order string `json:"order" river:"unique"`
}

func (charge) Kind() string { return "charge" }

func order(job *rivertype.JobRow) string {
	var args charge
	if err := json.Unmarshal(job.EncodedArgs, &args); err != nil {
		panic(err)
	}
	return args.Order
}

// queue is a database of river with a client for each process, whose jobs work does under locks of
// one store.
func queue(t *testing.T, processes int, ttl time.Duration,
	work func(context.Context,
		*river.Job[charge]) error) (*sql.DB, *membackend.Backend, *river.Client[*sql.Tx],
	<-chan *river.Event,
) {
	db, err := sql.Open("sqlite", filepath.Join(t.TempDir(), "river.db"))
	if err != nil {
		t.Fatal(err)
	}
	db.SetMaxOpenConns(1) // as river wants it for SQLite
	t.Cleanup(func() { db.Close() })
	driver := riversqlite.New(db)
	quiet := slog.New(slog.DiscardHandler)
	m, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: quiet})
	if err == nil {
		_, err = m.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		t.Fatal(err)
	}

	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(work))
	store := membackend.New()
	t.Cleanup(func() { store.Close() })
	var first *river.Client[*sql.Tx]
	events := make(chan *river.Event, 1000)
	for range processes {
		locks, err := locker.New(store.Client(), locker.Bare,
			locker.Config{TTL: ttl, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { locks.Close() })
		c, err := river.NewClient(driver, &river.Config{
			Queues:        map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}},
			Workers:       workers,
			Plugins:       []rivertype.Plugin{OneAtATime(locks, 10*time.Millisecond, order)},
			FetchCooldown: time.Millisecond, FetchPollInterval: 10 * time.Millisecond,
			RetryPolicy: soon{}, MaxAttempts: 2, Logger: quiet, JobTimeout: -1,
		})
		if err != nil {
			t.Fatal(err)
		}
		seen, cancel := c.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed,
			river.EventKindJobSnoozed)
		var forward sync.WaitGroup
		forward.Go(func() {
			for e := range seen {
				events <- e
			}
		})
		if err := c.Start(context.WithoutCancel(t.Context())); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.StopAndCancel(context.Background()); err != nil {
				t.Error(err)
			}
			cancel()
			forward.Wait()
		})
		if first == nil {
			first = c
		}
	}
	return db, store, first, events
}

type soon struct{}

func (soon) NextRetry(*rivertype.JobRow) time.Time { return time.Now() }

// next waits for an event of the kind.
func next(t *testing.T, events <-chan *river.Event, kind river.EventKind) *river.Event {
	t.Helper()
	for timeout := time.After(5 * time.Minute); ; {
		select {
		case e := <-events:
			if e.Kind == kind {
				return e
			}
		case <-timeout:
			t.Fatalf("no %s in five minutes", kind)
		}
	}
}

// Several jobs for each order run in two processes, and no two of an order at once. Two attempts
// are enough for all of them, however often they are snoozed.
func TestOneAtATime(t *testing.T) {
	const orders, copies = 5, 6
	var mu sync.Mutex
	running, runs, overlaps := map[string]bool{}, 0, 0
	_, _, c, events := queue(t, 2, 0, func(_ context.Context, job *river.Job[charge]) error {
		mu.Lock()
		if running[job.Args.Order] {
			overlaps++
		}
		running[job.Args.Order] = true
		runs++
		mu.Unlock()
		time.Sleep(10 * time.Millisecond) // so that others come meanwhile
		mu.Lock()
		defer mu.Unlock()
		running[job.Args.Order] = false
		return nil
	})
	for range copies {
		for i := range orders {
			if _, err := c.Insert(t.Context(), charge{Order: string(rune('a' + i))},
				nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range copies * orders {
		if e := next(t, events, river.EventKindJobCompleted); len(e.Job.Errors) > 0 {
			t.Errorf("job %d failed first: %s", e.Job.ID, e.Job.Errors[0].Error)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	if runs != copies*orders || overlaps > 0 {
		t.Errorf("%d jobs ran %d times, and two of one order overlapped %d times", copies*orders,
			runs, overlaps)
	}
}

// A job that goes on for so long that river takes it for stuck is not run beside itself.
func TestRescued(t *testing.T) {
	began, end := make(chan struct{}, 9), make(chan struct{})
	db, _, c, events := queue(t, 2, 0, func(ctx context.Context, _ *river.Job[charge]) error {
		began <- struct{}{}
		select {
		case <-end:
		case <-ctx.Done(): // the test failed
		}
		return nil
	})
	if _, err := c.Insert(t.Context(), charge{Order: "a"}, nil); err != nil {
		t.Fatal(err)
	}
	<-began
	// What river's rescuer does with it. (There is nobody to wait an hour.)
	if _, err := db.ExecContext(t.Context(),
		`UPDATE river_job SET state = 'available' WHERE kind = 'charge'`); err != nil {
		t.Fatal(err)
	}
	next(t, events, river.EventKindJobSnoozed)
	if len(began) > 0 {
		t.Error("it ran beside itself")
	}
	close(end)
	next(t, events, river.EventKindJobCompleted)
}

// A job whose lock is lost is told so, and fails even if it does not care; then it is run again.
func TestLost(t *testing.T) {
	began := make(chan uint64, 9)
	var ended error
	runs := 0
	_, store, c, events := queue(t, 1, time.Second,
		func(ctx context.Context, _ *river.Job[charge]) error {
			if runs++; runs > 1 {
				return nil
			}
			hold, _ := locker.HoldFrom(ctx)
			began <- hold.Token
			<-ctx.Done()
			ended = context.Cause(ctx)
			return nil
		})
	if _, err := c.Insert(t.Context(), charge{Order: "a"}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := store.ForceRelease(t.Context(), "a", <-began); err != nil {
		t.Fatal(err)
	}
	failed := next(t, events, river.EventKindJobFailed)
	if !errors.Is(ended, locker.ErrLost) ||
		!strings.Contains(failed.Job.Errors[0].Error, locker.ErrLost.Error()) {
		t.Errorf("the job's context ended by %v, and river has %q", ended,
			failed.Job.Errors[0].Error)
	}
	next(t, events, river.EventKindJobCompleted)
}

// No key is no lock, and a store that is away is not a lock that is held: the job fails, and is an
// attempt.
func TestWithoutKeyOrStore(t *testing.T) {
	locks, err := locker.New(membackend.New(), locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	locks.Close()
	none := func(*rivertype.JobRow) string { return "" }
	if err := OneAtATime(locks, 0, none)(t.Context(), nil, func(context.Context) error {
		return sql.ErrNoRows
	}); err != sql.ErrNoRows {
		t.Error(err)
	}
	err = OneAtATime(locks, 0, func(*rivertype.JobRow) string {
		return "a"
	})(t.Context(), nil, func(context.Context) error {
		t.Error("it ran without the lock")
		return nil
	})
	if err == nil || errors.As(err, new(*river.JobSnoozeError)) {
		t.Errorf("%v: want an error that is no snooze", err)
	}
}
