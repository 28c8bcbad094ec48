package pgbackend

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A row whose last token the clock has passed by no more than two clients may be apart is not
// swept: nothing else remembers the token, and whoever makes a new row may be so far behind. Once
// the clock is further, it is.
//
// covers: K1
func TestSweepLeavesATokenWithinTheSkew(t *testing.T) {
	url := server(t).URL()
	b, other, p := opened(t, url), opened(t, url), pool(t, url)
	for _, of := range []struct {
		passed time.Duration // by which the clock that b has heard of has passed the token
		rows   int
	}{
		{0, 1}, {time.Microsecond, 1}, {skew / 2, 1}, {skew, 1}, {skew + time.Microsecond, 0},
	} {
		c := claim(storetest.Key(t))
		c.NoneInFlight = true // its release leaves no tombstone
		// However slow the machine is, no clock passes the token, with which the row would go at
		// the release.
		c.TTL = 10 * time.Minute
		c.MinToken = backend.MinTokenLimit(time.Now(), c.TTL)
		last := acquired(t, b, c).Token
		want(t, "Release", storetest.Release(t.Context(), b, c), nil)

		sweptAt(t, b, c.Key, time.UnixMicro(int64(last)).Add(of.passed))

		n := rowsOf(t, p, c.Key)
		if n != of.rows {
			t.Errorf("%d rows when the clock has passed the token by %v, want %d", n, of.passed,
				of.rows)
		}
		if g := acquired(t, other, claim(c.Key)); of.rows == 1 && g.Token <= last {
			t.Errorf("the clock had passed the token by %v: token %d after %d", of.passed, g.Token,
				last)
		}
	}
}

// Who has left nothing in a row, and looks after it by what it wrote itself, deletes nothing that
// another has written since.
//
// covers: A4, K1
func TestSweepLeavesWhatAnotherWrote(t *testing.T) {
	url := server(t).URL()
	b, other := opened(t, url), opened(t, url)
	c := claim(storetest.Key(t))
	c.NoneInFlight = true // its release leaves no tombstone
	c.TTL = 10 * time.Minute
	c.MinToken = backend.MinTokenLimit(time.Now(), c.TTL) // so the row stays at the release
	last := acquired(t, b, c).Token
	want(t, "Release", storetest.Release(t.Context(), b, c), nil)
	next := claim(c.Key)
	g := acquired(t, other, next)
	sweptAt(t, b, c.Key, time.UnixMicro(int64(last)).Add(time.Minute))
	s, err := other.Inspect(t.Context(), c.Key)
	if err != nil || len(s.Holders) != 1 || s.Holders[0].Token != g.Token {
		t.Errorf("after the sweep of another client: %+v, %v; want the hold with token %d", s, err,
			g.Token)
	}
	want(t, "Renew", other.Renew(t.Context(), next), nil)
}

// Whether a mark is over is told by the server's clock: one's own may be anywhere.
//
// covers: D4
func TestSweepGoesByTheServersClock(t *testing.T) {
	url := server(t).URL()
	b, p := opened(t, url), pool(t, url)
	for ahead, rows := range map[time.Duration]int{0: 1, 10 * time.Minute: 0} {
		c := claim(fmt.Sprint(storetest.Key(t), ahead))
		c.NotBefore = time.Second // and the mark is kept for a minute
		c.NoneInFlight = true
		last := acquired(t, b, c).Token
		want(t, "Release", storetest.Release(t.Context(), b, c), nil)
		sweptAt(t, b, c.Key, time.UnixMicro(int64(last)).Add(2*skew+ahead))
		n := rowsOf(t, p, c.Key)
		if n != rows {
			t.Errorf("%d rows, want %d, when the server's clock is %v ahead", n, rows, ahead)
		}
	}
}

// rowsOf is how many rows the table has of a key.
func rowsOf(t *testing.T, p *pgxpool.Pool, key string) (n int) {
	t.Helper()
	const query = "SELECT count(*) FROM " + DefaultTable + " WHERE key = $1"
	if err := p.QueryRow(t.Context(), query, []byte(key)).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// sweptAt has b sweep, as if it had written the key's row long ago, and had heard of this time.
func sweptAt(t *testing.T, b *Backend, key string, shown time.Time) {
	t.Helper()
	b.store.mu.Lock()
	r, known := b.store.last[key]
	r.when = r.when.Add(-rememberedFor)
	b.store.last[key] = r
	was := b.store.clock
	b.store.clock.shown = shown
	b.store.mu.Unlock()
	if !known {
		t.Fatal("the client knows no row")
	}
	b.store.sweepUp()
	b.store.mu.Lock()
	b.store.clock = was
	b.store.mu.Unlock()
}
