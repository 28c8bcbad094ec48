package demo

import (
	"errors"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/locker"
)

// handle opens a ledger of three items as a process of its own would.
func handle(t *testing.T, path string, process int) *ledger {
	t.Helper()
	l, err := openLedger(path, 3, process)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

func bind(t *testing.T, l *ledger, token uint64) *shelf {
	t.Helper()
	s, err := l.bind(t.Context(), locker.Hold{Token: token})
	if err != nil {
		t.Fatalf("token %d: %v", token, err)
	}
	return s
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func wantLeft(t *testing.T, s *shelf, want int) {
	t.Helper()
	if left, err := s.look(); left != want || err != nil {
		t.Errorf("left %d, %v, want %d", left, err, want)
	}
}

func TestLedgerRefusesStaleTokens(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	one, two := handle(t, path, 1), handle(t, path, 2)

	old := bind(t, one, 7)
	wantLeft(t, old, 3)
	wantErr(t, "sale by the holder", old.sell(2), nil)

	// The old holder reads, is paused and loses its lock. The new one has shown its token before it
	// reads, so what it read stays true, although it has not written anything yet.
	wantLeft(t, old, 2)
	fresh := bind(t, two, 8)
	wantLeft(t, fresh, 2)
	wantErr(t, "late sale", old.sell(1), errStale)
	if _, err := old.look(); !errors.Is(err, errStale) {
		t.Errorf("late look: %v", err)
	}
	wantLeft(t, fresh, 2)
	wantErr(t, "sale", fresh.sell(1), nil)

	_, err := one.bind(t.Context(), locker.Hold{Token: 6})
	wantErr(t, "older token", err, errStale)

	books, err := handle(t, path, 0).audit()
	if err != nil || books.left != 1 || books.sold != 2 || books.refused != 2 ||
		books.oversell(3) != 0 ||
		books.first != 7 || books.highest != 8 || books.doubled {
		t.Errorf("books %+v, %v", books, err)
	}
}

func TestLedgerSeesDoubledTokens(t *testing.T) {
	l := handle(t, filepath.Join(t.TempDir(), "ledger"), 1)
	bind(t, l, 7)
	bind(t, l, 7)
	if books, err := l.audit(); !books.doubled || err != nil {
		t.Errorf("books %+v, %v", books, err)
	}
}

// Without tokens nothing is refused, and the second of two who read the same sells what is gone.
func TestLedgerSeesOversell(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	a, b := &shelf{ledger: handle(t, path, 1)}, &shelf{ledger: handle(t, path, 2)}
	wantLeft(t, a, 3)
	wantLeft(t, b, 3)
	wantErr(t, "first", a.sell(2), nil)
	wantErr(t, "second", b.sell(2), nil)
	if books, err := a.ledger.audit(); books.left != 2 || books.sold != 2 ||
		books.oversell(3) != 1 || err != nil {
		t.Errorf("books %+v, %v", books, err)
	}
}

// However many append at once, all come to the same account.
func TestLedgerIsTheSameForAll(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	var handles []*ledger
	var wg sync.WaitGroup
	for process := 1; process <= 4; process++ {
		l := handle(t, path, process)
		handles = append(handles, l)
		for range 4 {
			wg.Go(func() {
				for token := uint64(1); token <= 50; token++ {
					s, err := l.bind(t.Context(), locker.Hold{Token: token})
					if err == nil {
						err = s.sell(int(token))
					}
					if err != nil && !errors.Is(err, errStale) {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	want, err := handle(t, path, 0).audit()
	if err != nil || want.highest != 50 || want.sold == 0 || want.refused == 0 {
		t.Errorf("books %+v, %v", want, err)
	}
	for _, l := range handles {
		if got, err := l.audit(); err != nil || got.sold != want.sold ||
			got.refused != want.refused || got.left != want.left {
			t.Errorf("process %d: %+v, %v, want %+v", l.process, got, err, want)
		}
	}
}

func TestLedgerRefusesWhatIsNoLine(t *testing.T) {
	l := handle(t, filepath.Join(t.TempDir(), "ledger"), 1)
	if _, err := l.file.WriteString("sold 1"); err != nil {
		t.Fatal(err)
	}
	wantLeft(t, &shelf{ledger: l}, 3) // half a line: somebody is writing it
	if _, err := l.file.WriteString(" and more\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := l.audit(); err == nil {
		t.Error("a bad line was accepted")
	}
}

// Who was killed is told by the parent, and the lock is free again when a later token is shown.
func TestLedgerTellsOfAKill(t *testing.T) {
	path := filepath.Join(t.TempDir(), "ledger")
	parent, one, two := handle(t, path, 0), handle(t, path, 1), handle(t, path, 2)
	now := time.Now()
	for _, e := range []struct {
		by *ledger
		entry
	}{
		{one, entry{Kind: kindShown, Token: 4, At: now}},
		{one, entry{Kind: kindTurn, Token: 4, Wait: time.Millisecond}},
		{two, entry{Kind: kindShown, Token: 5, At: now}},
		{two, entry{Kind: kindFrozen, Token: 5, PID: 123}},
		{parent, entry{Kind: kindKilled, At: now.Add(time.Second)}},
	} {
		wantErr(t, e.Kind, e.by.post(e.entry), nil)
	}
	wantErr(t, "told late", one.post(entry{Kind: kindShown, Token: 4, At: now.Add(time.Minute)}),
		errStale)
	if a, err := parent.audit(); err != nil || a.kill == nil ||
		!strings.HasSuffix(a.line(9), "killed process to end") {
		t.Errorf("%+v, %v", a, err)
	}
	for token := uint64(6); token <= 7; token++ {
		wantErr(t, "next", one.post(entry{
			Kind: kindShown, Token: token,
			At: now.Add(time.Duration(token-3) * time.Second),
		}), nil)
		wantErr(t, "next", one.post(entry{Kind: kindTurn, Token: token, Lost: token == 6}), nil)
	}
	a, err := parent.audit()
	if k := a.kill; err != nil || k.Process != 2 || k.PID != 123 || k.Token != 5 ||
		k.NextToken != 6 || k.FreeMS != 2000 {
		t.Errorf("%+v, %v", k, err)
	}
	if line := a.line(9); line != "sold 0 of 9" || a.lost != 1 || len(a.waits) != 3 ||
		a.waits[0] != time.Millisecond {
		t.Errorf("%q, %+v", line, a)
	}
}
