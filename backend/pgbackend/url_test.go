package pgbackend

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/backend"
)

// covers: I1
func TestURL(t *testing.T) {
	for url, settings := range map[string]string{
		"postgres://db/shop": "host='db' port='5432' dbname='shop' ",
		"postgresql://a:p%27w%5C@db:5433/shop": `host='db' port='5433' user='a' ` +
			`password='p\'w\\' dbname='shop' `,
		"postgres://[::1]:5433/x?sslmode=disable": "host='::1' port='5433' dbname='x' " +
			"sslmode='disable' ",
		"postgres://a,b:1/x": "host='a,b' port='5432,1' dbname='x' " +
			"target_session_attrs='read-write' ",
		"postgres:///x?lock_table=s.t_1&poll=250ms": "dbname='x' ",
	} {
		u, err := backend.ParseURL(url)
		if err != nil {
			t.Fatal(err)
		}
		got, cfg, err := parse(u)
		if err != nil || got != settings {
			t.Errorf("%s: %q, %v; want %q", url, got, err, settings)
		}
		if strings.Contains(url, "lock_table") &&
			cfg != (Config{Table: "s.t_1", Poll: 250 * time.Millisecond}) {
			t.Errorf("%s: %+v", url, cfg)
		}
	}
}

// What is wrong is said before anything is sent, and no error has the password.
func TestURLRefused(t *testing.T) {
	for _, wrong := range []string{
		"?lock_table=a%3B%20DROP", "?lock_table=A", "?lock_table=a.b.c", "?lock_table=1a",
		"?lock_table=" + strings.Repeat("a", 64),
		"?lock_table=a&lock_table=b", "?lock_table=", "?poll=often", "?poll=1h", "?poll=0s",
		"?a%20b=c", "#x",
		"?sslmode=sometimes", "?pool_max_conns=s3cr3t!", "?connect_timeout=x",
		"?sslrootcert=/nowhere",
	} {
		_, err := backend.Open(t.Context(), "postgres://u:s3cr3t@127.0.0.1:1/db"+wrong)
		if !errors.Is(err, backend.ErrInvalid) || strings.Contains(err.Error(), "u:s3cr3t") {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	_, err := backend.Open(t.Context(), "postgres://u:s3cr3t@127.0.0.1:1/db")
	if !errors.Is(err, backend.ErrUnavailable) || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("nobody listens: %v", err)
	}
}

// Neither an error of a connection nor one of the server says who the user is.
func TestErrorsNameNobody(t *testing.T) {
	_, refused := backend.Open(t.Context(), "postgres://appuser:secret@127.0.0.1:1/shop")
	want(t, "Open", refused, backend.ErrUnavailable)
	denied := explain(fmt.Errorf("x: %w", &pgconn.PgError{
		Severity: "FATAL", Code: "28P01",
		Message: `password authentication failed for user "appuser"`,
	}))
	want(t, "a wrong password", denied, backend.ErrDenied)
	for _, err := range []error{refused, denied} {
		if strings.Contains(err.Error(), "appuser") || strings.Contains(err.Error(), "secret") {
			t.Error(err)
		}
	}
}
