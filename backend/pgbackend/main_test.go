package pgbackend

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend/backendtest"
	"github.com/holdfast-go/holdfast/internal/storetest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Before TestMain, and before anything is started: this process may be one that Processes started.
func init() { backendtest.Main() }

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// What the tests of all backends on servers say.
var (
	claim    = storetest.Claim
	acquired = storetest.Acquired
	want     = storetest.Want
	opened   = storetest.Opened[*Backend]
)

const patience = storetest.Patience

// server starts a PostgreSQL, which make test does not install.
func server(t testing.TB, args ...string) *testserver.PostgresServer {
	t.Helper()
	testserver.OnlyInAll(t, "PostgreSQL")
	return testserver.Postgres(t, append([]string{"-c", "max_connections=300"}, args...)...)
}

// pool is a pool as a program would have it.
func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url+"&pool_max_conns=20")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}
