package pgbackend

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A stall has a client stop before it sends a statement, or before it hears the answer.
type stall struct {
	before, after func(sql string)
}

func (s *stall) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	q pgx.TraceQueryStartData,
) context.Context {
	if s.before != nil {
		s.before(q.SQL)
	}
	return context.WithValue(ctx, s, q.SQL)
}

func (s *stall) TraceQueryEnd(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryEndData) {
	if sql, ok := ctx.Value(s).(string); ok && s.after != nil {
		s.after(sql)
	}
}

// stalled returns a client whose statements s is told of from now on.
func stalled(t *testing.T, url string, s *stall) *Backend {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	ready := &atomic.Bool{}
	cfg.ConnConfig.Tracer = &stall{
		before: func(sql string) {
			if ready.Load() && s.before != nil {
				s.before(sql)
			}
		},
		after: func(sql string) {
			if ready.Load() && s.after != nil {
				s.after(sql)
			}
		},
	}
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	b.store.owned = true
	t.Cleanup(func() { want(t, "Close", b.Close(), nil) })
	ready.Store(true)
	return b
}

// guessesWrong has the next guess of b be off by so much.
func guessesWrong(b *Backend, by time.Duration) {
	b.store.mu.Lock()
	defer b.store.mu.Unlock()
	b.store.clock.shown = b.store.clock.shown.Add(by)
}

// A client has been told that there is no row, and is about to make one when it stalls: another
// makes it, holds, and leaves nothing. The token of the one that stalled is above that of the
// other, for whom nothing but the clock remembers it.
//
// covers: K1, B13
func TestInsertAfterAStall(t *testing.T) {
	url := server(t).URL()
	other, p := opened(t, url), pool(t, url)
	key, inserts, last := storetest.Key(t), 0, uint64(0)
	var b *Backend
	b = stalled(t, url, &stall{before: func(sql string) {
		if sql != b.store.sql.insert {
			return
		}
		if inserts++; inserts != 2 {
			return
		}
		time.Sleep(2 * skew) // which is more than clients' times are apart
		c := claim(key)
		c.NoneInFlight = true // its release leaves no tombstone
		last = acquired(t, other, c).Token
		time.Sleep(3 * skew) // tokens go by the clock
		want(t, "Release", storetest.Release(t.Context(), other, c), nil)
		if n := rowsOf(t, p, key); n != 0 {
			t.Errorf("%d rows: this shows nothing", n)
		}
	}})
	guessesWrong(b, -time.Minute)
	g := acquired(t, b, claim(key))
	if last == 0 {
		t.Fatal("it did not stall: this shows nothing")
	}
	if g.Token <= last {
		t.Errorf(history.Broken+"token %d after %d: it was chosen before the stall", g.Token, last)
	}
}

// A client all of whose requests are late for the time that they carry is slow, and gets its lock.
//
// covers: B13
func TestInsertIsAlwaysLate(t *testing.T) {
	url := server(t).URL()
	var b *Backend
	b = stalled(t, url, &stall{before: func(sql string) {
		if sql == b.store.sql.insert {
			time.Sleep(2 * skew)
		}
	}})
	key := storetest.Key(t)
	g := acquired(t, b, claim(key))
	state, err := opened(t, url).Inspect(t.Context(), key)
	want(t, "Inspect", err, nil)
	if len(state.Holders) != 1 || state.Holders[0].Token != g.Token {
		t.Errorf("granted with token %d, the row says %+v", g.Token, state)
	}
}

// Where answers take long, a client that guessed a wrong time makes the row with its second
// request, as the time of the answer counts. A machine that stalls for 25 ms adds some, so the
// fewest of many count.
func TestInsertAfterALateAnswer(t *testing.T) {
	var statements atomic.Int64
	b := stalled(t, server(t).URL(), &stall{
		before: func(string) { statements.Add(1) },
		after:  func(string) { time.Sleep(2 * skew) },
	})
	fewest := int64(100)
	for range 10 {
		guessesWrong(b, -time.Minute)
		before := statements.Load()
		acquired(t, b, claim(storetest.Key(t)))
		fewest = min(fewest, statements.Load()-before)
	}
	if fewest != 2 {
		t.Errorf("%d statements, want 2", fewest)
	}
}

// A guess is used if it is within half of what two clients may be apart, and not beyond: else one
// ends a lease early, or grants a token below one whose row another has deleted.
//
// covers: K1, R1
func TestGuessIsWithinHalfTheSkew(t *testing.T) {
	url := server(t).URL()
	b, p := opened(t, url), pool(t, url)
	clock := func() (now time.Time) {
		if err := p.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			t.Fatal(err)
		}
		return now
	}
	for range 10 {
		for _, by := range []time.Duration{skew * 3 / 4, -skew * 3 / 4} {
			key := storetest.Key(t)
			acquired(t, b, claim(key)) // so the last reading is of now
			guessesWrong(b, by)
			before := clock()
			token := time.UnixMicro(int64(acquired(t, b, claim(key+"x")).Token))
			if after := clock(); token.Before(before.Add(-skew/2-time.Microsecond)) ||
				token.After(after.Add(skew/2)) {
				t.Errorf(history.Broken+"a guess that is off by %v: token of %v, between %v and %v",
					by, token, before, after)
			}
		}
	}
}

// A standby that takes over without the last commits gives others the numbers of those: what a
// client believes to be there is compared, too. Neither does another's hold go, nor its place in
// the queue.
//
// covers: A2, B13
func TestNumberThatWasGivenTwice(t *testing.T) {
	url := server(t).URL()
	b, other := opened(t, url), opened(t, url)
	givenTwice := func(key string) {
		t.Helper()
		there, err := other.store.read(t.Context(), other.store.sql.read, key)
		want(t, "read", err, nil)
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		r, known := b.store.last[key]
		if !known || r.version == there.version {
			t.Fatalf("%v, %q: this shows nothing", known, r.version)
		}
		r.version = there.version
		b.store.last[key] = r
	}
	inspect := func(key string) int {
		t.Helper()
		state, err := b.Inspect(t.Context(), key)
		want(t, "Inspect", err, nil)
		return len(state.Holders)
	}

	first, holder := claim(storetest.Key(t)), claim("")
	holder.Key = first.Key
	acquired(t, b, first)
	want(t, "Release", storetest.Release(t.Context(), b, first), nil) // and a tombstone is left
	acquired(t, other, holder)
	givenTwice(first.Key)
	g, err := b.TryAcquire(t.Context(), claim(first.Key))
	if err == nil {
		t.Errorf(history.Broken+"token %d is granted beside another's hold", g.Token)
	}
	want(t, "Renew", other.Renew(t.Context(), holder), nil)

	long, waits := claim(storetest.Key(t)), claim("")
	long.NoneInFlight = true // its release leaves no tombstone
	waits.Key, waits.Queue, waits.WaiterTTL = long.Key, true, time.Minute
	acquired(t, b, long)
	time.Sleep(3 * skew) // or the row stays
	_, err = other.TryAcquire(t.Context(), waits)
	want(t, "TryAcquire of who waits", err, backend.ErrHeld)
	givenTwice(long.Key)
	want(t, "Release", storetest.Release(t.Context(), b, long), nil)
	if n := inspect(long.Key); n != 1 {
		t.Errorf("%d hold, want who waited", n)
	}
}
