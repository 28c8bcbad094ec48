package pgbackend

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// A hold that is so old that its release leaves no row is kept by a transaction in flight like any
// other: the release is refused and deletes nothing, and nobody is granted the key, until the
// transaction has ended.
//
// covers: B11
func TestDeleteInFlight(t *testing.T) {
	url := server(t).URL()
	b, other, p := opened(t, url), opened(t, url), pool(t, url)
	c := claim(storetest.Key(t))
	c.NoneInFlight = true // its release leaves no tombstone
	g := acquired(t, b, c)
	storetest.Eventually(t, "the clock to pass the token", func() error {
		var now time.Time
		if err := p.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&now); err != nil {
			return err
		}
		if past := time.UnixMicro(int64(g.Token)).Add(3 * skew); now.Before(past) {
			return fmt.Errorf("it is %v, which is before %v", now, past)
		}
		return nil
	})
	tx := begin(t, p, "")
	want(t, "InTx", InTx(t.Context(), tx, c.Key, g.Token), nil)

	want(t, "Release", storetest.Release(t.Context(), b, c), backend.ErrUnavailable)
	_, err := other.TryAcquire(t.Context(), claim(c.Key))
	want(t, "TryAcquire while a transaction keeps the hold", err, backend.ErrHeld)
	want(t, "Commit", tx.Commit(t.Context()), nil)
	want(t, "Release after the commit", storetest.Release(t.Context(), b, c), nil)
	if n := rows(t, p); n != 0 {
		t.Errorf("%d rows are left, so it was not about a row that is deleted", n)
	}
}

// A client that was suspended guesses a time that is long past. It is the server's clock that
// decides when it changes a row that it knows, or makes one: its lease lasts. Nor is a lease over
// for one that is ahead.
//
// covers: A13, B13
func TestWrongGuess(t *testing.T) {
	url := server(t).URL()
	b, other := opened(t, url), opened(t, url)
	wrong := func(by time.Duration) {
		b.store.mu.Lock()
		defer b.store.mu.Unlock()
		b.store.clock.shown = b.store.clock.shown.Add(by)
	}
	known := func(t *testing.T, key string) {
		t.Helper()
		if r := b.store.guess(key); r.version == "" {
			t.Fatal("the client knows no row")
		}
	}
	t.Run("behind", func(t *testing.T) {
		key := storetest.Key(t)
		before := claim(key)
		acquired(t, b, before)
		want(t, "Release", storetest.Release(t.Context(), b, before), nil)
		known(t, key)
		// A row that is changed, and one that is made.
		for _, key := range []string{key, storetest.Key(t)} {
			wrong(-10 * time.Minute)
			acquired(t, b, claim(key))
			_, err := other.TryAcquire(t.Context(), claim(key))
			want(t, "TryAcquire of a key that was granted just now", err, backend.ErrHeld)
		}
	})
	t.Run("ahead", func(t *testing.T) {
		holder := claim(storetest.Key(t))
		acquired(t, b, holder)
		known(t, holder.Key)
		wrong(10 * time.Minute)
		_, err := b.TryAcquire(t.Context(), claim(holder.Key))
		want(t, "TryAcquire during another's lease", err, backend.ErrHeld)
		want(t, "Renew", b.Renew(t.Context(), holder), nil)
	})
}

// A parting is a connection to a server that, when told to, shuts down after the commit of a
// statement about a key and before its answer: what the client reads instead is the FATAL error
// that a shutdown sends.
type parting struct {
	net.Conn
	key  []byte
	once *atomic.Bool // it is to happen with the next statement, of any connection
	now  atomic.Bool
	last *bytes.Reader // what is still to be read
}

func (c *parting) Write(p []byte) (int, error) {
	if bytes.Contains(p, c.key) && c.once.CompareAndSwap(true, false) {
		c.now.Store(true)
	}
	return c.Conn.Write(p)
}

func (c *parting) Read(p []byte) (int, error) {
	if !c.now.Load() {
		return c.Conn.Read(p)
	}
	if c.last == nil {
		ready, err := (&pgproto3.ReadyForQuery{TxStatus: 'I'}).Encode(nil)
		for answer := []byte(nil); !bytes.HasSuffix(answer, ready); {
			n := 0
			if err == nil {
				n, err = c.Conn.Read(p)
			}
			if err != nil {
				return 0, err
			}
			answer = append(answer, p[:n]...)
		}
		fatal, err := (&pgproto3.ErrorResponse{
			Severity: "FATAL", SeverityUnlocalized: "FATAL", Code: "57P01",
			Message: "terminating connection due to administrator command",
		}).Encode(nil)
		if err != nil {
			return 0, err
		}
		c.last = bytes.NewReader(fatal)
	}
	return c.last.Read(p)
}

// A FATAL error of a server that shuts down is no answer: the statement may have been committed
// before. So an attempt that ends with it may have the lock, and a repeated one finds it; and a
// release may be one.
//
// covers: A2, A3
func TestFatalAfterTheCommit(t *testing.T) {
	url := server(t).URL()
	cfg, err := pgxpool.ParseConfig(url)
	want(t, "ParseConfig", err, nil)
	var once atomic.Bool
	key, dial := storetest.Key(t), cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &parting{Conn: conn, key: []byte(key), once: &once}, nil
	}
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	want(t, "NewWithConfig", err, nil)
	t.Cleanup(p.Close)
	b, err := New(t.Context(), p, Config{})
	want(t, "New", err, nil)
	t.Cleanup(func() { want(t, "Close", b.Close(), nil) })
	other := opened(t, url)
	held := func() []backend.Holder {
		state, err := other.Inspect(t.Context(), key)
		want(t, "Inspect", err, nil)
		return state.Holders
	}

	c := claim(key)
	once.Store(true)
	_, err = b.TryAcquire(t.Context(), c)
	if backend.AnswerOf(err) != backend.Unknown || once.Load() {
		t.Errorf("TryAcquire of a server that shuts down = %v, want unknown", err)
	}
	holders := held()
	if len(holders) != 1 {
		t.Fatalf("%+v, want that the lost answer was a yes", holders)
	}
	if g := acquired(t, b, c); g.Token != holders[0].Token {
		t.Errorf("token %d of the repeated attempt, %d of the lost one", g.Token, holders[0].Token)
	}
	once.Store(true)
	err = storetest.Release(t.Context(), b, c)
	if backend.AnswerOf(err) != backend.Unknown || once.Load() {
		t.Errorf("Release of a server that shuts down = %v, want unknown", err)
	}
	if holders := held(); len(holders) != 0 {
		t.Errorf("%+v, want that the lost answer was a yes", holders)
	}
}
