package scheduler

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-co-op/gocron/v2"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	instances = 3
	periods   = 6
	period    = time.Minute
	job       = time.Second // how long it takes; the instances' clocks differ by more
)

// plain is the adapter that comes to mind first.
type plain struct{ *locker.Client[struct{}] }

func (p plain) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	g, err := p.TryLock(ctx, key)
	if err != nil {
		return nil, err
	}
	return lock{g}, nil
}

// runs counts how often a job runs in so many periods, in schedulers whose clocks differ by ten
// seconds each. option gives a scheduler what it asks before a run.
func runs(t *testing.T, option func(*locker.Client[struct{}]) gocron.SchedulerOption) (n int64) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		t.Cleanup(func() { b.Close() })
		var count atomic.Int64
		begin := time.Now().Add(period)
		for i := range instances {
			c := client(t, b)
			t.Cleanup(func() { c.Close() })
			s, err := gocron.NewScheduler(option(c))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.Shutdown(); err != nil {
					t.Error(err)
				}
			})
			_, err = s.NewJob(gocron.DurationJob(period), gocron.NewTask(func() {
				count.Add(1)
				time.Sleep(job)
			}), gocron.WithName("report"),
				gocron.WithStartAt(gocron.WithStartDateTime(
					begin.Add(time.Duration(i)*10*time.Second))))
			if err != nil {
				t.Fatal(err)
			}
			s.Start()
		}
		time.Sleep(time.Until(begin) + periods*period - time.Second)
		n = count.Load()
	})
	return n
}

func client(t *testing.T, b backend.Backend) *locker.Client[struct{}] {
	c, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Once in a period, where a lock alone lets each instance run the job.
func TestLocker(t *testing.T) {
	got := runs(t, func(c *locker.Client[struct{}]) gocron.SchedulerOption {
		return gocron.WithDistributedLocker(Locker{c, period * 3 / 4})
	})
	if got != periods {
		t.Errorf("%d runs in %d periods", got, periods)
	}
	got = runs(t, func(c *locker.Client[struct{}]) gocron.SchedulerOption {
		return gocron.WithDistributedLocker(plain{c})
	})
	if got != instances*periods {
		t.Errorf("%d runs with a lock alone, and it should take each instance's: the test "+
			"shows nothing", got)
	}
}

func TestElectorRuns(t *testing.T) {
	got := runs(t, func(c *locker.Client[struct{}]) gocron.SchedulerOption {
		return gocron.WithDistributedElector(&Elector{Client: c, Key: "scheduler"})
	})
	if got != periods {
		t.Errorf("%d runs in %d periods", got, periods)
	}
}

// The leader stays the leader until it resigns, or its lock is lost; then another may be.
func TestElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		defer b.Close()
		first, second := client(t, b), client(t, b)
		defer first.Close()
		defer second.Close()
		a, z := &Elector{Client: first, Key: "k"}, &Elector{Client: second, Key: "k"}
		leads := func(what string, e *Elector, want bool) {
			t.Helper()
			ctx, cancel := context.WithCancel(t.Context())
			err := e.IsLeader(ctx)
			cancel() // as a job's ends
			if (err == nil) != want {
				t.Errorf("%s: IsLeader: %v", what, err)
			}
		}
		leads("the first to ask", a, true)
		leads("the second", z, false)
		time.Sleep(time.Hour)
		leads("the first, an hour later", a, true)
		if err := a.Resign(); err != nil {
			t.Error(err)
		}
		leads("the second, after that resigned", z, true)
		leads("the first, after it resigned", a, false)
		if _, err := first.ForceRelease(t.Context(), "k", z.guard.Hold().Token); err != nil {
			t.Fatal(err)
		}
		leads("the first, after the lock was taken away", a, true)
		time.Sleep(time.Hour)
		leads("the second, whose lock was taken away", z, false)
		for _, e := range []*Elector{a, z} {
			if err := e.Resign(); err != nil {
				t.Error(err)
			}
		}
	})
}
