package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

// A recorder keeps the events of a crew.
type recorder struct {
	mu     sync.Mutex
	events []event
}

func (r *recorder) emit(e event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = append(r.events, e)
}

func (r *recorder) count(is func(event) bool) (n int) {
	for _, e := range r.events {
		if is(e) {
			n++
		}
	}
	return n
}

func storeOf(b backend.Backend) *store {
	quiet := slog.New(slog.NewTextHandler(io.Discard, nil))
	return &store{Backend: b, name: "mem://", local: true, cfg: locker.Config{TTL: 10 * time.Second, Logger: quiet}}
}

func specFor(t *testing.T) spec {
	t.Helper()
	return spec{
		Key: "k", Ledger: filepath.Join(t.TempDir(), "ledger"), Stock: 20, Think: time.Second, Rest: time.Second, Workers: 4, Process: 1,
	}
}

// forgetful is a store that says of one renewal that the hold is gone, and lets the next in line
// have the lock.
type forgetful struct {
	backend.Backend
	renewals atomic.Int64
}

func (f *forgetful) Renew(ctx context.Context, c backend.Claim) error {
	if f.renewals.Add(1) == 2 {
		return errors.Join(f.Release(ctx, c), backend.ErrLost)
	}
	return f.Backend.Renew(ctx, c)
}

// A hold that is lost is counted, its sale does not happen, and the buyer tries again.
func TestCrewSurvivesLostHold(t *testing.T) {
	s := specFor(t)
	s.Think = 9 * time.Second // two renewals in each
	synctest.Test(t, func(t *testing.T) {
		var r recorder
		if err := s.work(t.Context(), storeOf(&forgetful{Backend: membackend.New()}), r.emit); err != nil {
			t.Fatal(err)
		}
		lost := r.count(func(e event) bool { return e.Lost })
		if sold := r.count(func(e event) bool { return e.Sold }); lost != 1 || sold != s.Stock {
			t.Errorf("%d lost, %d sold in %+v", lost, sold, r.events)
		}
	})
	wantBooks(t, s, s.Stock)
}

func wantBooks(t *testing.T, s spec, sold int) {
	t.Helper()
	l, err := openLedger(s.Ledger, s.Stock, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer l.close()
	if books, err := l.audit(); err != nil || books.total() != sold || books.oversell(s.Stock) != 0 || books.doubled {
		t.Errorf("books %+v, %v", books, err)
	}
}

// A crew whose ctx ends stops in the middle of things and gives its lock back; a frozen one too.
func TestCrewStops(t *testing.T) {
	for _, freezeAt := range []int{0, 3} {
		s := specFor(t)
		s.FreezeAt = freezeAt
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second+time.Millisecond)
			defer cancel()
			var r recorder
			b := membackend.New()
			if err := s.work(ctx, storeOf(b), r.emit); err != nil {
				t.Fatal(err)
			}
			state, err := b.Inspect(t.Context(), "k")
			if err != nil || len(state.Holders) != 0 {
				t.Errorf("still held: %+v, %v", state, err)
			}
			sold := r.count(func(e event) bool { return e.Sold })
			frozen := r.count(func(e event) bool { return e.Kind == evFrozen })
			if freezeAt == 0 && (sold != 5 || frozen != 0) || freezeAt == 3 && (sold != 2 || frozen != 1) {
				t.Errorf("freeze at %d: %d sold, %d frozen", freezeAt, sold, frozen)
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
	if err := s.work(t.Context(), storeOf(broken{membackend.New()}), func(event) {}); !errors.Is(err, backend.ErrDenied) {
		t.Errorf("%v", err)
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
	for in, says := range map[string]string{
		"nonsense\n":          `"kind":"failed","error":"spec: `,
		string(text) + "\n":   `{"kind":"ready"}` + "\n",
		string(text) + "\n\n": `{"kind":"ready"}` + "\n", // the sign, and then the end at once
	} {
		var out bytes.Buffer
		err := runWorker(t.Context(), strings.NewReader(in), &out)
		if (err != nil) != strings.HasPrefix(in, "nonsense") || !strings.Contains(out.String(), says) {
			t.Errorf("%q: %v, says %q", in, err, out.String())
		}
	}
}
