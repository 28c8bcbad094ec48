package election

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/klog/v2"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard())
	goleak.VerifyTestMain(m)
}

const (
	lease = 15 * time.Second
	renew = 10 * time.Second
	retry = 2 * time.Second
)

// A severed store answers no more from some time on.
type severed struct {
	backend.Backend
	off atomic.Bool
}

func (s *severed) answer() error {
	if s.off.Load() {
		return backend.ErrUnavailable
	}
	return nil
}

func (s *severed) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if err := s.answer(); err != nil {
		return backend.Grant{}, err
	}
	return s.Backend.TryAcquire(ctx, c)
}

func (s *severed) Renew(ctx context.Context, c backend.Claim) error {
	if err := s.answer(); err != nil {
		return err
	}
	return s.Backend.Renew(ctx, c)
}

func (s *severed) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if err := s.answer(); err != nil {
		return backend.Released{}, err
	}
	return s.Backend.Release(ctx, c)
}

func (s *severed) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := s.answer(); err != nil {
		return backend.State{}, err
	}
	return s.Backend.Inspect(ctx, key)
}

// A replica campaigns until it is stopped, or has lost its leadership.
type replica struct {
	stop  context.CancelFunc
	leads atomic.Bool
	told  atomic.Value // who leads, as the elector tells
	ended chan struct{}
	lock  *Lock
}

func start(t *testing.T, b backend.Backend, id string, leaders *atomic.Int32) *replica {
	c, err := locker.New(b, locker.Bare, locker.Config{TTL: lease})
	if err != nil {
		t.Fatal(err)
	}
	r := &replica{ended: make(chan struct{}), lock: &Lock{Client: c, Key: "controller", ID: id}}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: r.lock, LeaseDuration: lease, RenewDeadline: renew, RetryPeriod: retry,
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) {
				r.leads.Store(true)
				if n := leaders.Add(1); n > 1 {
					t.Errorf("%s leads beside %d", id, n-1)
				}
			},
			OnNewLeader: func(identity string) { r.told.Store(identity) },
			OnStoppedLeading: func() {
				if r.leads.Swap(false) {
					leaders.Add(-1)
				}
			},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	go func() {
		defer close(r.ended)
		elector.Run(ctx)
		if err := c.Close(); err != nil {
			t.Log(id, err) // what was lost
		}
	}()
	return r
}

// One of three leads, for as long as it likes; the next leads soon after it has resigned, and after
// a lease if it was cut off.
func TestLeaderElector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		defer b.Close()
		var leaders atomic.Int32
		cut := &severed{Backend: b}
		first := start(t, cut, "a", &leaders)
		time.Sleep(3 * retry)
		others := []*replica{start(t, b, "b", &leaders), start(t, b, "c", &leaders)}
		time.Sleep(time.Hour)
		if !first.leads.Load() || leaders.Load() != 1 {
			t.Errorf("after an hour %d lead, the first: %v", leaders.Load(), first.leads.Load())
		}
		if told, _ := others[0].told.Load().(string); !strings.Contains(told, ", pid ") {
			t.Errorf("another is told that %q leads", told)
		}

		cut.off.Store(true)
		time.Sleep(renew + 2*retry)
		if first.leads.Load() {
			t.Error("who was cut off still leads")
		}
		time.Sleep(lease)
		if leaders.Load() != 1 {
			t.Errorf("a lease after the leader was cut off %d lead", leaders.Load())
		}

		next, last := others[0], others[1]
		if last.leads.Load() {
			next, last = last, next
		}
		next.stop()
		<-next.ended
		time.Sleep(2 * retry)
		if !last.leads.Load() {
			t.Error("nobody leads soon after the leader resigned")
		}
		first.stop()
		last.stop()
		<-first.ended
		<-last.ended
	})
}
