package pgbackend

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/backend/record/recordtest"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// harness is the suite's way to a server.
func harness(server *testserver.PostgresServer) recordtest.Harness {
	return recordtest.Harness{
		Open: func(t testing.TB) (record.Store, record.Config) {
			p, err := pgxpool.New(context.Background(), server.URL())
			if err != nil {
				t.Fatal(err)
			}
			s, use, err := newStore(t.Context(), p, Config{})
			if err != nil {
				t.Fatal(err)
			}
			s.owned = true
			return s, use
		},
		Restart: func(testing.TB) { server.Restart() },
	}
}

// TestConformance runs the whole suite.
func TestConformance(t *testing.T) {
	recordtest.Run(t, harness(server(t)))
}
