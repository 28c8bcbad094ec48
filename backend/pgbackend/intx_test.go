package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
)

// begin begins a transaction of the program, which ends with the test.
func begin(t *testing.T, in *pgxpool.Pool, isolation pgx.TxIsoLevel) pgx.Tx {
	t.Helper()
	tx, err := in.BeginTx(t.Context(), pgx.TxOptions{IsoLevel: isolation})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	return tx
}

// brief is a claim whose lease ends soon.
func brief(key string) backend.Claim {
	c := claim(key)
	c.TTL = 200 * time.Millisecond
	return c
}

// taken waits for the end of another's lease, and has the key afterwards.
func taken(t *testing.T, b backend.Backend, c backend.Claim) (g backend.Grant) {
	t.Helper()
	storetest.Eventually(t, "the key", func() (err error) {
		g, err = b.TryAcquire(t.Context(), c)
		return err
	})
	return g
}

// A holder that was paused, and whose lease was taken over meanwhile, cannot commit; nor one that
// has released, nor whoever makes a token up.
//
// covers: B11
func TestPausedHolder(t *testing.T) {
	url := server(t).URL()
	b, other, p := opened(t, url), opened(t, url), pool(t, url)
	key := storetest.Key(t)
	paused := brief(key)
	g := acquired(t, b, paused)
	next := claim(key)
	after := taken(t, other, next)
	for name, token := range map[string]uint64{
		"the paused one": g.Token, "nobody": after.Token + 1,
		"token 0": 0,
	} {
		want(t, name, InTx(t.Context(), begin(t, p, ""), key, token), backend.ErrLost)
	}
	want(t, "another key", InTx(t.Context(), begin(t, p, ""), key+"x", after.Token),
		backend.ErrLost)
	want(t, "the holder", InTx(t.Context(), begin(t, p, ""), key, after.Token), nil)
	want(t, "with a table", InTx(t.Context(), begin(t, p, ""), key, after.Token, DefaultTable), nil)
	want(t, "with another's name", InTx(t.Context(), begin(t, p, ""), key, after.Token, "x; DROP"),
		backend.ErrInvalid)
	for _, isolation := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		want(t, string(isolation), InTx(t.Context(), begin(t, p, isolation), key, after.Token),
			backend.ErrInvalid)
	}
}

// A client that sweeps long after the lease of its hold has ended leaves the row alone: a
// transaction may keep the hold.
//
// covers: B11
func TestSweepOfAKeptHold(t *testing.T) {
	url := server(t).URL()
	b, other, p := opened(t, url), opened(t, url), pool(t, url)
	c := brief(storetest.Key(t))
	g := acquired(t, b, c)
	tx := begin(t, p, "")
	want(t, "InTx", InTx(t.Context(), tx, c.Key, g.Token), nil)
	storetest.Eventually(t, "the lease to end", func() error {
		if s, err := other.Inspect(t.Context(), c.Key); err != nil || len(s.Holders) > 0 {
			return fmt.Errorf("%+v, %w", s, err)
		}
		return nil
	})
	// By then the clock has passed the token, and nobody is told of the lease that ran out.
	sweptAt(t, b, c.Key, time.UnixMicro(int64(g.Token)).Add(10*time.Minute))
	next := claim(c.Key)
	_, err := other.TryAcquire(t.Context(), next)
	want(t, "TryAcquire while a transaction keeps the hold", err, backend.ErrHeld)
	want(t, "Commit", tx.Commit(t.Context()), nil)
	if after := taken(t, other, next); after.Token <= g.Token {
		t.Errorf("token %d after %d", after.Token, g.Token)
	}
}

// Who comes while a statement is ending the hold, and has seen it, waits for that and finds it
// ended: another that would end it, as an operator and its holder may, and a transaction that would
// keep it.
//
// covers: B11
func TestAHoldThatIsEnding(t *testing.T) {
	url := server(t).URL()
	b, p := opened(t, url), pool(t, url)
	for name, comes := range map[string]func(c backend.Claim, token uint64, tx pgx.Tx) error{
		"Release": func(c backend.Claim, _ uint64, _ pgx.Tx) error {
			return storetest.Release(t.Context(), b, c)
		},
		"InTx": func(c backend.Claim, token uint64, tx pgx.Tx) error {
			return InTx(t.Context(), tx, c.Key, token)
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := claim(storetest.Key(t))
			g := acquired(t, b, c)
			first := begin(t, p, "") // a statement that has not ended yet
			for _, of := range []struct {
				query string
				arg   any
			}{
				{`SELECT pg_advisory_xact_lock($1)`, locksOf(c.Key, []uint64{g.Token})[0]},
				{`DELETE FROM ` + DefaultTable + ` WHERE key = $1::bytea`, []byte(c.Key)},
			} {
				if _, err := first.Exec(t.Context(), of.query, of.arg); err != nil {
					t.Fatal(err)
				}
			}
			second, tx := make(chan error, 1), begin(t, p, "")
			go func() { second <- comes(c, g.Token, tx) }()
			storetest.Eventually(t, "the second to wait for the first", func() error {
				var waiting int
				const query = `SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = ` +
					`'Lock' AND datname = current_database()`
				if err := p.QueryRow(t.Context(), query).Scan(&waiting); err != nil {
					return err
				}
				select {
				case err := <-second:
					t.Fatalf("%s before the first has ended = %v", name, err)
				default:
				}
				if waiting == 0 {
					return errors.New("nobody waits")
				}
				return nil
			})
			want(t, "Commit", first.Commit(t.Context()), nil)
			want(t, name, <-second, backend.ErrLost)
		})
	}
}

// A transaction in flight keeps the hold, also when its lease is over: nobody is granted the key,
// whichever verb it is that would, until it has ended. The holder renews meanwhile, and others
// queue and keep their places.
//
// covers: B11, W2
func TestCommitInFlight(t *testing.T) {
	url := server(t).URL()
	b, other, p := opened(t, url), opened(t, url), pool(t, url)
	for _, end := range []struct {
		name string
		end  func(tx pgx.Tx) error
	}{
		{"commit", func(tx pgx.Tx) error { return tx.Commit(t.Context()) }},
		{"rollback", func(tx pgx.Tx) error { return tx.Rollback(t.Context()) }},
		{"broken connection", func(tx pgx.Tx) error { return tx.Conn().Close(t.Context()) }},
	} {
		t.Run(end.name, func(t *testing.T) {
			key := storetest.Key(t)
			holder := brief(key)
			g := acquired(t, b, holder)
			tx := begin(t, p, "")
			want(t, "InTx", InTx(t.Context(), tx, key, g.Token), nil)
			want(t, "Renew", b.Renew(t.Context(), holder), nil)

			first, second := claim(key), claim(key)
			for _, c := range []*backend.Claim{&first, &second} {
				c.Queue, c.WaiterTTL = true, time.Minute
			}
			for start := time.Now(); time.Since(start) < 4*holder.TTL; time.Sleep(holder.TTL / 8) {
				for place, c := range []backend.Claim{first, second} {
					var held *backend.HeldError
					if _, err := other.TryAcquire(t.Context(), c); !errors.As(err, &held) ||
						held.Position != place+1 {
						t.Fatalf("while a transaction is in flight: %v, want a "+
							"HeldError at place %d", err, place+1)
					}
				}
				answers, err := other.Heartbeat(t.Context(), []backend.Claim{first, second})
				if want(t, "Heartbeat", err, nil); !errors.Is(answers[0], backend.ErrHeld) ||
					!errors.Is(answers[1], backend.ErrHeld) {
					t.Fatalf("Heartbeat = %v, want ErrHeld for both", answers)
				}
			}
			_, err := b.Release(t.Context(), holder)
			want(t, "Release", err, backend.ErrUnavailable)
			_, err = b.ForceRelease(t.Context(), key, g.Token)
			want(t, "ForceRelease", err, backend.ErrUnavailable)
			want(t, "the end", end.end(tx), nil)
			if after := taken(t, other, first); after.Token <= g.Token {
				t.Errorf("token %d after %d", after.Token, g.Token)
			}
			want(t, "InTx of who lost it", InTx(t.Context(), begin(t, p, ""), key, g.Token),
				backend.ErrLost)
		})
	}
}

// Holders whose leases end at any moment, and are taken over, write under InTx: what one commits is
// never behind what a later one has committed, without a look at any token by the data, or at any
// clock.
//
// covers: B11
func TestCommitsInOrder(t *testing.T) {
	url := server(t).URL()
	p := pool(t, url)
	if _, err := p.Exec(t.Context(),
		"CREATE TABLE data (token bigint); INSERT INTO data VALUES (0)"); err != nil {
		t.Fatal(err)
	}
	key := storetest.Key(t)
	var mu sync.Mutex
	var committed, lost int
	var workers sync.WaitGroup
	deadline := time.Now().Add(patience)
	for worker := range 4 {
		b, r := opened(t, url), rand.New(rand.NewPCG(1, uint64(worker)))
		workers.Go(func() {
			for time.Now().Before(deadline) {
				mu.Lock()
				enough := committed > 60 && lost > 10
				mu.Unlock()
				if enough {
					return
				}
				c := claim(key)
				c.TTL = 100 * time.Millisecond
				g, err := b.TryAcquire(t.Context(), c)
				if err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
				pause := func() { time.Sleep(time.Duration(r.ExpFloat64() * float64(c.TTL) / 2)) }
				pause()
				err = pgx.BeginFunc(t.Context(), p, func(tx pgx.Tx) error {
					if err := InTx(t.Context(), tx, key, g.Token); err != nil {
						return err
					}
					pause()
					var before uint64
					if err := tx.QueryRow(t.Context(),
						"SELECT token FROM data").Scan(&before); err != nil {
						return err
					}
					if before > g.Token {
						t.Errorf("a holder with token %d writes after one with %d has committed",
							g.Token, before)
					}
					_, err := tx.Exec(t.Context(), "UPDATE data SET token = $1", g.Token)
					return err
				})
				mu.Lock()
				switch {
				case err == nil:
					committed++
				case errors.Is(err, backend.ErrLost):
					lost++
				default:
					t.Errorf("the transaction = %v", err)
				}
				mu.Unlock()
				_, _ = b.Release(t.Context(), c) // ErrLost of those who lost it
			}
		})
	}
	workers.Wait()
	t.Logf("%d committed, %d lost the lock", committed, lost)
	if committed < 10 || lost < 2 {
		t.Errorf("%d transactions committed, and %d lost the lock: nothing was tried", committed,
			lost)
	}
}
