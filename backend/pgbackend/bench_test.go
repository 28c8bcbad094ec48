package pgbackend

import (
	"context"
	"fmt"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/locker"
)

// measured is the server of which HOLDFAST_POSTGRES has the URL, or one that writes nothing to a
// disk.
func measured(b *testing.B) string {
	if url := os.Getenv("HOLDFAST_POSTGRES"); url != "" {
		return url
	}
	return server(b).URL()
}

// BenchmarkPair has a client lock and unlock a key, and in turns with that update a row twice by
// the same pool. It says what became of the table, by the server's statistics.
func BenchmarkPair(b *testing.B) {
	p := pool(b, measured(b))
	if _, err := p.Exec(b.Context(), `DROP TABLE IF EXISTS bare;
		CREATE TABLE bare (key bytea PRIMARY KEY, value bytea) WITH (fillfactor = 50);
		INSERT INTO bare VALUES ('k')`); err != nil {
		b.Fatal(err)
	}
	store, err := New(b.Context(), p, Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = store.Close() }()
	l, err := locker.New(store, locker.Bare, locker.Config{})
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var bare, pair []time.Duration
	for b.Loop() {
		began := time.Now()
		for range 2 {
			if _, err := p.Exec(b.Context(), "UPDATE bare SET value = $1 WHERE key = 'k'",
				make([]byte, 100)); err != nil {
				b.Fatal(err)
			}
		}
		between := time.Now()
		g, err := l.Lock(b.Context(), "k")
		if err == nil {
			err = g.Unlock()
		}
		if err != nil {
			b.Fatal(err)
		}
		bare, pair = append(bare, between.Sub(began)), append(pair, time.Since(between))
	}
	median(b, "bare", bare)
	median(b, "pair", pair)
	time.Sleep(1200 * time.Millisecond) // until the server's processes have told their figures
	var inserts, updates, hot, size, index int64
	err = p.QueryRow(b.Context(), `SELECT n_tup_ins, n_tup_upd, n_tup_hot_upd,
			pg_relation_size(relid), pg_indexes_size(relid)
		FROM pg_stat_user_tables WHERE relname = $1`,
		DefaultTable).Scan(&inserts, &updates, &hot, &size, &index)
	if err != nil {
		b.Fatal(err)
	}
	b.Logf("%d pairs: %d inserts, %d updates, %d of them HOT; the table has %d bytes, its index %d",
		len(pair), inserts, updates, hot, size, index)
}

func median(b *testing.B, what string, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1e6, what+"-ms/median")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds())/1e6, what+"-ms/p99")
}

// BenchmarkHandOver is the time from a release to the wake-up of the next in the queue, who is of
// another client.
func BenchmarkHandOver(b *testing.B) {
	url := measured(b)
	one, other := opened(b, url), opened(b, url)
	key := storetest.Key(b)
	var took []time.Duration
	c := claim(key)
	acquired(b, one, c)
	for b.Loop() {
		next := claim(key)
		next.Queue, next.WaiterTTL = true, time.Minute
		ctx, cancel := context.WithCancel(b.Context())
		wake, err := other.Watch(ctx, next)
		if err != nil {
			b.Fatal(err)
		}
		_, _ = other.TryAcquire(b.Context(), next)
		began := time.Now()
		if _, err := one.Release(b.Context(), c); err != nil {
			b.Fatal(err)
		}
		for w := range wake {
			if w.Granted {
				break
			}
		}
		took = append(took, time.Since(began))
		cancel()
		one, other, c = other, one, next
	}
	median(b, "hand-over", took)
}

// BenchmarkWaiters is what 200 waiters of a key cost the server, who are of ten clients, while it
// is held.
func BenchmarkWaiters(b *testing.B) {
	url := measured(b)
	holder, _ := counted(b, url)
	c := claim("k")
	c.TTL = time.Hour
	acquired(b, holder, c)
	var counters []*counter
	var waiters sync.WaitGroup
	ctx, cancel := context.WithCancel(b.Context())
	for range 10 {
		client, n := counted(b, url)
		counters = append(counters, n)
		l, err := locker.New(client, locker.Bare, locker.Config{})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { _ = l.Close() })
		for range 20 {
			waiters.Go(func() { _, _ = l.Lock(ctx, "k") })
		}
	}
	time.Sleep(10 * time.Second)
	for b.Loop() {
		before := time.Now()
		statements := func() (sum int64) {
			for _, n := range counters {
				sum += n.Load()
			}
			return sum
		}
		from := statements()
		time.Sleep(10 * time.Second)
		b.ReportMetric(float64(statements()-from)/time.Since(before).Seconds(), "statements/s")
	}
	cancel()
	waiters.Wait()
}

// BenchmarkQueued is the same with each waiter a place of its own in the queue.
func BenchmarkQueued(b *testing.B) {
	client, n := counted(b, measured(b))
	c := claim("k")
	c.TTL = time.Hour
	acquired(b, client, c)
	var claims []backend.Claim
	for i := range 200 {
		w := claim("k")
		w.Owner, w.Queue, w.WaiterTTL = fmt.Sprint(i), true, time.Minute
		claims = append(claims, w)
		_, _ = client.TryAcquire(b.Context(), w)
	}
	before := n.Load()
	for b.Loop() {
		if _, err := client.Heartbeat(b.Context(), claims); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(n.Load()-before)/float64(b.N), "statements")
}
