package pgbackend

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// A counter counts the statements of a pool.
type counter struct{ atomic.Int64 }

func (n *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn,
	_ pgx.TraceQueryStartData,
) context.Context {
	n.Add(1)
	return ctx
}

func (n *counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// counted returns a backend, and how many statements it has made.
func counted(t testing.TB, url string) (*Backend, *counter) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	n := &counter{}
	cfg.ConnConfig.Tracer = n
	p, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(t.Context(), p, Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		p.Close()
	})
	return b, n
}

// A verb is one statement for the client that used the key last and for a new key, and two for
// others. A machine that stalls for 25 ms adds one, so the fewest of many count.
func TestStatements(t *testing.T) {
	url := server(t).URL()
	b, n := counted(t, url)
	other, m := counted(t, url)
	fewest := map[string]int64{}
	count := func(what string, n *counter, verb func()) {
		before := n.Load()
		verb()
		if k := n.Load() - before; fewest[what] == 0 || k < fewest[what] {
			fewest[what] = k
		}
	}
	for range 30 {
		key := storetest.Key(t)
		pair := func(b *Backend, n *counter, what string) {
			c := claim(key)
			// Whose tombstone keeps the row for another, however slow the machine is.
			c.NoneInFlight = what != "the last user"
			count(what+": TryAcquire", n, func() { acquired(t, b, c) })
			count(what+": Renew", n, func() { want(t, "Renew", b.Renew(t.Context(), c), nil) })
			count(what+": Release", n, func() {
				want(t, "Release", storetest.Release(t.Context(), b, c), nil)
			})
		}
		pair(b, n, "a new key")
		pair(b, n, "the last user")
		pair(other, m, "another")
	}
	for what, k := range fewest {
		most := int64(1)
		if what == "another: TryAcquire" {
			most = 2
		}
		if k != most {
			t.Errorf("%s: %d statements, want %d", what, k, most)
		}
	}
}

// rows is how many there are.
func rows(t testing.TB, p *pgxpool.Pool) (n int) {
	t.Helper()
	if err := p.QueryRow(t.Context(), "SELECT count(*) FROM "+DefaultTable).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// Keys that nobody uses any more leave no rows, and a key whose row was deleted has higher tokens
// than before.
//
// covers: B5
func TestRowsGo(t *testing.T) {
	url := server(t).URL()
	p := pool(t, url)
	b, err := New(t.Context(), p, Config{})
	want(t, "New", err, nil)
	last := map[string]uint64{}
	for range 2 * rememberedMost {
		key := storetest.Key(t)
		c := claim(key)
		c.NoneInFlight = true
		last[key] = acquired(t, b, c).Token
		want(t, "Release", storetest.Release(t.Context(), b, c), nil)
	}
	storetest.Eventually(t, "a sweep", func() error {
		if n := rows(t, p); n > rememberedMost {
			return fmt.Errorf("%d rows", n)
		}
		return nil
	})
	time.Sleep(3 * skew) // tokens go by the clock
	held := claim(storetest.Key(t))
	acquired(t, b, held)
	want(t, "Close", b.Close(), nil)
	if n := rows(t, p); n != 1 {
		t.Errorf("%d rows are left by Close, want that of the key that is held", n)
	}
	again := opened(t, url)
	for key, token := range last {
		if g := acquired(t, again, claim(key)); g.Token <= token {
			t.Fatalf("token %d after %d", g.Token, token)
		}
	}
	long := claim(storetest.Key(t))
	long.NoneInFlight = true
	before := rows(t, p)
	acquired(t, again, long)
	time.Sleep(3 * skew)
	want(t, "Release", storetest.Release(t.Context(), again, long), nil)
	if n := rows(t, p); n != before {
		t.Errorf("%d rows after a long hold, want %d", n, before)
	}
}

// A server that crashes and comes back keeps what it granted, and who waits is woken by the new
// connection.
//
// covers: R5
func TestCrash(t *testing.T) {
	s := server(t)
	b, other := opened(t, s.URL()), opened(t, s.URL())
	key := storetest.Key(t)
	holder, next := claim(key), claim(key)
	holder.TTL, next.TTL = 10*time.Minute, 10*time.Minute
	next.Queue, next.WaiterTTL = true, 10*time.Minute
	g := acquired(t, b, holder)
	_, err := other.TryAcquire(t.Context(), next)
	want(t, "TryAcquire", err, backend.ErrHeld)
	wake, err := other.Watch(t.Context(), next)
	want(t, "Watch", err, nil)

	s.Kill()
	for range 3 { // connections of the pool, and none
		if err := b.Renew(t.Context(), holder); backend.AnswerOf(err) == backend.Yes ||
			backend.Refused(err) || errors.Is(err, backend.ErrLost) {
			t.Errorf("Renew without a server = %v", err)
		}
	}
	want(t, "Renew without a server", b.Renew(t.Context(), holder), backend.ErrUnavailable)
	s.Restart()
	storetest.Eventually(t, "a renewal", func() error { return b.Renew(t.Context(), holder) })
	_, err = other.TryAcquire(t.Context(), next)
	want(t, "TryAcquire after the crash", err, backend.ErrHeld)
	want(t, "Release", storetest.Release(t.Context(), b, holder), nil)
	for limit := time.After(3 * patience); ; {
		select {
		case w := <-wake:
			if !w.Granted {
				continue
			}
			if w.Grant.Token <= g.Token {
				t.Errorf("token %d after %d", w.Grant.Token, g.Token)
			}
		case <-limit:
			t.Fatal("not woken")
		}
		return
	}
}

// What became of a statement whose answer is lost is unknown, and the repeated verb finds it. A
// server that does not answer keeps nobody for longer than its ctx, whose error is told.
//
// covers: A2, A3
func TestLostAnswer(t *testing.T) {
	s := server(t)
	proxy := testserver.NewProxy(t, s.Addr())
	b := opened(t, strings.Replace(s.URL(), s.Addr(), proxy.Addr(), 1))
	key := storetest.Key(t)
	acquired(t, b, claim(key+"x")) // statements are prepared
	proxy.Set(testserver.Fault{Mode: testserver.ExecuteThenCut, Match: testserver.Containing(key)})
	c := claim(key)
	_, err := b.TryAcquire(t.Context(), c)
	if backend.AnswerOf(err) != backend.Unknown {
		t.Errorf("TryAcquire without an answer = %v, want unknown", err)
	}
	proxy.Pass()
	state, err := b.Inspect(t.Context(), key)
	if want(t, "Inspect", err, nil); len(state.Holders) != 1 {
		t.Fatalf("Inspect = %+v, want that the lost answer was a yes", state)
	}
	if g := acquired(t, b, c); g.Token != state.Holders[0].Token {
		t.Errorf("token %d of the repeated attempt, %d of the lost one", g.Token,
			state.Holders[0].Token)
	}
	proxy.Set(testserver.Fault{Mode: testserver.HalfOpen})
	_, err = b.TryAcquire(storetest.Quick(t, 100*time.Millisecond), claim(key))
	want(t, "TryAcquire of a server that is silent", err, context.DeadlineExceeded)
	proxy.Pass()
}

// Without the right to make or to use the table an error says what an administrator has to execute,
// which helps. Clients that begin at once make one table.
func TestRights(t *testing.T) {
	url := server(t).URL()
	admin := pool(t, url)
	execute := func(statement string) {
		t.Helper()
		if _, err := admin.Exec(t.Context(), statement); err != nil {
			t.Fatalf("%s: %v", statement, err)
		}
	}
	execute(`CREATE ROLE "app user" LOGIN PASSWORD 's3cr3t'; REVOKE CREATE ON SCHEMA ` +
		`public FROM PUBLIC`)
	as := strings.Replace(url, "postgres@", "app%20user:s3cr3t@", 1) + "&lock_table=shop.locks"
	for _, wrong := range []string{
		"", "CREATE SCHEMA shop",
		"REVOKE ALL ON shop.locks FROM PUBLIC, \"app user\"",
	} {
		if wrong != "" {
			execute(wrong)
		}
		_, err := backend.Open(t.Context(), as)
		var rights *RightsError
		if !errors.As(err, &rights) || !errors.Is(err, backend.ErrDenied) ||
			strings.Contains(err.Error(), "s3cr3t") {
			t.Fatalf("Open without rights, after %q = %v, want a *RightsError", wrong, err)
		}
		if wrong != "" {
			execute(rights.Statement)
		}
	}
	b := opened(t, as)
	c := claim("k")
	acquired(t, b, c)
	want(t, "Release", storetest.Release(t.Context(), b, c), nil)
	execute(`REVOKE UPDATE ON shop.locks FROM "app user"`)
	_, err := backend.Open(t.Context(), as)
	want(t, "Open without a right", err, backend.ErrDenied)
	_, err = b.TryAcquire(t.Context(), claim("k"))
	want(t, "TryAcquire without a right", err, backend.ErrDenied)

	_, err = backend.Open(t.Context(), url+"&synchronous_commit=off")
	want(t, "Open without synchronous commits", err, backend.ErrUnsafe)

	var clients sync.WaitGroup
	for range 8 {
		clients.Go(func() {
			b, err := backend.Open(t.Context(), url+"&lock_table=at_once")
			if err != nil {
				t.Errorf("Open = %v", err)
				return
			}
			_ = b.Close()
		})
	}
	clients.Wait()
}

// Who waits by polling needs no connection that listens; and a database whose transactions are
// stricter does.
func TestOtherSettings(t *testing.T) {
	url := server(t).URL()
	for name, more := range map[string]string{
		"poll": "&poll=10ms", "exec": "&default_query_exec_mode=exec",
		"simple":       "&default_query_exec_mode=simple_protocol",
		"serializable": "&default_transaction_isolation=serializable",
		"repeatable":   "&default_transaction_isolation=repeatable%20read",
	} {
		t.Run(name, func(t *testing.T) {
			key, rounds := storetest.Key(t), 20
			var holding atomic.Int64
			var clients sync.WaitGroup
			for range 3 {
				b := opened(t, url+more)
				clients.Go(func() {
					for range rounds {
						c := claim(key)
						taken(t, b, c)
						if n := holding.Add(1); n != 1 {
							t.Errorf("%d hold", n)
						}
						holding.Add(-1)
						storetest.Eventually(t, "Release", func() error {
							return storetest.Release(t.Context(), b, c)
						})
					}
				})
			}
			clients.Wait()
		})
	}
}

// What a client believes proves nothing: it may have been away when others changed a key.
//
// covers: A2
func TestBeliefIsAsked(t *testing.T) {
	url := server(t).URL()
	b, other := opened(t, url), opened(t, url)
	c := claim(storetest.Key(t))
	acquired(t, b, c)
	want(t, "Renew by a client that knows nothing of the key", other.Renew(t.Context(), c), nil)
	want(t, "Release by it", storetest.Release(t.Context(), other, c), nil)
	want(t, "Renew by one that believes to hold it", b.Renew(t.Context(), c), backend.ErrLost)
	acquired(t, other, claim(c.Key))
	_, err := b.TryAcquire(t.Context(), claim(c.Key))
	want(t, "TryAcquire by one that believes it free", err, backend.ErrHeld)
}

// Diagnose tells of what can lose locks: the tests' server writes nothing to a disk.
func TestDiagnose(t *testing.T) {
	url := server(t).URL()
	found := func(url string) (levels string) {
		all, err := opened(t, url).Diagnose(t.Context())
		want(t, "Diagnose", err, nil)
		for _, f := range all {
			levels += f.Check + " " + string(f.Level) + ", "
		}
		return levels
	}
	if got := found(url); got != "version ok, durability fail, notices ok, " {
		t.Error(got)
	}
	if got := found(url + "&poll=1s"); got != "version ok, durability fail, " {
		t.Error(got)
	}
}

// A server that says nothing keeps nobody who asks how it does, though the caller's ctx has no end;
// and a backend that is closed asks no more.
//
// covers: E2
func TestDiagnoseEnds(t *testing.T) {
	s := server(t)
	proxy := testserver.NewProxy(t, s.Addr())
	b := opened(t, strings.Replace(s.URL(), s.Addr(), proxy.Addr(), 1))
	proxy.Set(testserver.Fault{Mode: testserver.HalfOpen})
	answer := make(chan error, 1)
	go func() { _, err := b.Diagnose(context.WithoutCancel(t.Context())); answer <- err }()
	select {
	case err := <-answer:
		want(t, "Diagnose of a server that is silent", err, context.DeadlineExceeded)
	case <-time.After(patience):
		t.Error("Diagnose does not end")
	}
	proxy.Pass()
	proxy.CutAll()

	p := pool(t, s.URL())
	b, err := New(t.Context(), p, Config{})
	want(t, "New", err, nil)
	want(t, "Close", b.Close(), nil)
	_, err = b.Diagnose(t.Context())
	want(t, "Diagnose after Close", err, backend.ErrClosed)
}
