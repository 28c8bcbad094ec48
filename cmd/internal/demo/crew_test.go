package demo

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/tracing/contention"
)

// worked has the crew of s work, and returns what its ledger came to.
func worked(t *testing.T, s Spec, st *Store) (account, error) {
	t.Helper()
	failed := s.workHere(t.Context(), st)
	l, err := openLedger(s.Ledger, s.Stock, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	a, err := l.audit()
	if err != nil {
		t.Error(err)
	}
	return a, failed
}

func storeOf(b backend.Backend) *Store {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	return &Store{
		Backend: b, Name: "mem://",
		Config: locker.Config{TTL: 10 * time.Second, Logger: quiet},
	}
}

func specFor(t *testing.T) Spec {
	t.Helper()
	return Spec{
		Options: Options{
			Key: "k", Stock: 20, Think: time.Second, Rest: time.Second, Workers: 4,
			Processes: 1,
		},
		Ledger: filepath.Join(t.TempDir(), "ledger"), Process: 1,
	}
}

// forgetful is a store that says of one renewal that the hold is gone, and lets the next in the
// queue have the lock.
type forgetful struct {
	backend.Backend
	renewals atomic.Int64
}

func (f *forgetful) Renew(ctx context.Context, c backend.Claim) error {
	if f.renewals.Add(1) == 2 {
		return errors.Join(storetest.Release(ctx, f, c), backend.ErrLost)
	}
	return f.Backend.Renew(ctx, c)
}

// A hold that is lost is counted, its sale does not happen, and the buyer tries again.
func TestCrewSurvivesLostHold(t *testing.T) {
	s := specFor(t)
	s.Think = 9 * time.Second // two renewals in each
	synctest.Test(t, func(t *testing.T) {
		a, err := worked(t, s, storeOf(&forgetful{Backend: membackend.New()}))
		if err != nil || a.lost != 1 || a.sold != s.Stock || a.oversell(s.Stock) != 0 || a.doubled {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// A crew whose ctx ends stops in the middle of things and gives its lock back; a frozen one too.
func TestCrewStops(t *testing.T) {
	for _, freezeAt := range []int{0, 3} {
		s := specFor(t)
		s.FreezeAt = freezeAt
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
			defer cancel()
			b := membackend.New()
			l, err := openLedger(s.Ledger, s.Stock, 1)
			if err == nil {
				err = s.work(ctx, storeOf(b), l)
			}
			if err != nil {
				t.Fatal(err)
			}
			defer l.close()
			state, err := b.Inspect(t.Context(), "k")
			if err != nil || len(state.Holders) != 0 {
				t.Errorf("still held: %+v, %v", state, err)
			}
			a, err := l.audit()
			if frozen := a.frozen.PID != 0; err != nil || freezeAt == 0 &&
				(a.sold != 5 || frozen) || freezeAt == 3 && (a.sold != 2 || !frozen) {
				t.Errorf("freeze at %d: %d sold, frozen %v", freezeAt, a.sold, frozen)
			}
		})
	}
}

// broken is a store that refuses everything.
type broken struct{ backend.Backend }

func (broken) TryAcquire(context.Context, backend.Claim) (backend.Grant, error) {
	return backend.Grant{}, backend.ErrDenied
}

func TestCrewReportsStore(t *testing.T) {
	s := specFor(t)
	if _, err := worked(t, s, storeOf(broken{membackend.New()})); !errors.Is(err,
		backend.ErrDenied) {
		t.Errorf("%v", err)
	}
}

// The slowest purchase is the one behind the slow payment, and its bars tell who paid.
func TestCrewTellsOfTheSlowest(t *testing.T) {
	s := specFor(t)
	s.SlowAt, s.Workers, s.Stock = 2, 3, 6
	synctest.Test(t, func(t *testing.T) {
		a, err := worked(t, s, storeOf(membackend.New()))
		slow := a.slow
		if err != nil || slow == nil || slow.ForMS < 11_000 {
			t.Fatalf("the slowest is %+v, %v", slow, err)
		}
		payer := ""
		for i, h := range slow.Held {
			if h.ToMS-h.FromMS == 10_000 {
				payer = h.By
			}
			if i > 0 && h.FromMS != slow.Held[i-1].ToMS {
				t.Errorf("the holds do not follow each other: %+v", slow.Held)
			}
		}
		if drawn := slow.draw(80); !strings.HasPrefix(payer, "buyer ") ||
			strings.Count(drawn, "\n") != 1+len(slow.Held) || !strings.Contains(drawn, payer+" ") {
			t.Error(drawn)
		}
	})
}

// The holds are told in their order, the longest of them first in the snapshot.
func TestSlowestIsInOrder(t *testing.T) {
	now := time.Now()
	at := func(n int) time.Time { return now.Add(time.Duration(n) * time.Millisecond) }
	by := &contention.Blocker{PID: 7}
	s := specFor(t)
	slow := s.slowest(contention.Snapshot{LongestWaits: []contention.Lock{{
		Since: now, For: 10 * time.Millisecond, Trace: traceparent(3)[3:35],
		Held: []contention.Held{{By: by, From: at(4), To: at(10)}, {By: by, From: now, To: at(4)}},
	}}})
	if slow.Who != "buyer 3" || len(slow.Held) != 2 || slow.Held[0].ToMS != 4 ||
		slow.Held[1].FromMS != 4 || slow.Held[1].ToMS != 10 {
		t.Errorf("%+v", slow)
	}
	if s.slowest(contention.Snapshot{}) != nil {
		t.Error("somebody waited")
	}
}

// A worker's parent that goes away before it gave the sign, or gives nonsense, leaves a worker that
// ends.
func TestWorkerEndsWithItsInput(t *testing.T) {
	s := specFor(t)
	s.Think, s.Rest = 0, 0
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	for in, ready := range map[string]bool{
		"":                    false,
		"nonsense\n":          false,
		string(text) + "\n":   true,
		string(text) + "\n\n": true, // the sign, and then the end at once
	} {
		err := Work(t.Context(), strings.NewReader(in), Open)
		l, opened := openLedger(s.Ledger, s.Stock, 0)
		if opened != nil {
			t.Fatal(opened)
		}
		a, read := l.audit()
		if l.close(); read != nil || errors.Is(err, ErrUsage) == ready || (err == nil) != ready ||
			len(a.pids) > 0 != ready || a.failed != nil {
			t.Errorf("%q: %v, %+v, %v", in, err, a, read)
		}
		_ = os.Remove(s.Ledger)
	}
}

// What keeps a worker from its work is told to the parent.
func TestWorkerTellsWhyItFails(t *testing.T) {
	s := specFor(t)
	s.Backend = "mem:///?nonsense=1"
	text, err := json.Marshal(s)
	if err != nil {
		t.Fatal(err)
	}
	if err := Work(t.Context(), strings.NewReader(string(text)+"\n"), Open); err != nil {
		t.Error(err)
	}
	l, err := openLedger(s.Ledger, s.Stock, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if a, err := l.audit(); err != nil || a.failed == nil ||
		!strings.Contains(a.failed.Error(), "--backend: ") {
		t.Errorf("%v, %v", a.failed, err)
	}
}
