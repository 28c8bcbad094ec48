// Package election has client-go's leader election, and so controller-runtime's, decided by a lock
// instead of a Lease in the cluster: for replicas in several clusters, of which one leads, and for
// an API server that is not to be asked every two seconds.
package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/holdfast-go/holdfast/locker"
)

// patience is for how long a release waits for its confirmation. It comes before OnStoppedLeading,
// which has to come before the lease ends.
const patience = time.Second

// A Lock is for leaderelection.LeaderElectionConfig.Lock, or LeaderElectionResourceLockInterface of
// controller-runtime's options. The elector's timers go on as they are, but who leads is who holds.
// Give the Client the elector's LeaseDuration as its TTL: each renewal asks the store, so an
// elector that stops when it had none for RetryPeriod and RenewDeadline, 12 of 15 seconds by
// default, stops before the lock is anybody else's. Only of a lock that is taken away by force it
// hears too late. Set ReleaseOnCancel: without it the lock of an elector that has stopped is held
// until the process ends. A Lock belongs to one elector.
type Lock struct {
	Client *locker.Client[struct{}]
	Key    string
	ID     string // of this replica, and of no other

	mu     sync.Mutex
	guard  *locker.Guard[struct{}]
	record resourcelock.LeaderElectionRecord
}

var _ resourcelock.Interface = (*Lock)(nil)

// Get returns this replica's record while it holds the lock, and otherwise one of who does, which
// no elector takes for expired:
// NotFound, upon which it calls Create, if nobody does.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	record := l.record
	if l.guard == nil {
		state, err := l.Client.Inspect(ctx, l.Key)
		if err != nil {
			return nil, nil, err
		}
		if len(state.Holders) == 0 {
			return nil, nil, apierrors.NewNotFound(schema.GroupResource{Resource: "locks"}, l.Key)
		}
		h := state.Holders[0]
		record = resourcelock.LeaderElectionRecord{
			// Never this replica's own ID, whatever that is, or the elector would take itself for
			// the leader.
			HolderIdentity: fmt.Sprintf("%s on %s, pid %d (not %s)", h.Meta.Service,
				h.Meta.Host, h.Meta.PID, l.ID),
			LeaseDurationSeconds: int(math.Ceil(h.TTL.Seconds())) + 1,
			// it differs each time, so the elector sees a new renewal
			RenewTime:   metav1.NewTime(time.Now()),
			AcquireTime: metav1.NewTime(h.Meta.Since),
		}
	}
	raw, err := json.Marshal(record)
	return &record, raw, err
}

// Create takes the lock, if it is free.
func (l *Lock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	g, err := l.Client.TryLock(ctx, l.Key) // the hold goes on when ctx, the attempt's, is over
	if err != nil {
		return err
	}
	l.guard, l.record = g, record
	return nil
}

// Update renews the lock, and releases it if the record names no holder, as that of an elector with
// ReleaseOnCancel does.
func (l *Lock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.guard == nil {
		return fmt.Errorf("%w: %s is not held", locker.ErrUnlocked, l.Key)
	}
	if record.HolderIdentity == "" {
		released := make(chan error, 1)
		go func(g *locker.Guard[struct{}]) { released <- g.Unlock() }(l.guard)
		l.guard = nil
		select {
		case err := <-released:
			return err
		case <-time.After(patience):
			return fmt.Errorf("%s: the store does not confirm the release, which goes on; "+
				"Client.Close waits for it", l.Key)
		}
	}
	if err := l.guard.Check(ctx); err != nil {
		if errors.Is(err, locker.ErrLost) || errors.Is(err, locker.ErrClosed) ||
			errors.Is(err, locker.ErrMaxHold) {
			_ = l.guard.Unlock()
			l.guard = nil
		}
		return err
	}
	l.record = record
	return nil
}

// RecordEvent does nothing: there is no object in the cluster that events could be about.
func (*Lock) RecordEvent(string) {}

// Identity is this replica's name.
func (l *Lock) Identity() string { return l.ID }

// Describe is the key, for log lines.
func (l *Lock) Describe() string { return "holdfast/" + l.Key }
