package pgbackend

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-go/holdfast/backend"
)

// explain says what an error of pgx is to package backend. Whatever is not certainly "not done"
// stays as it is, which is unknown.
//
// Who the user is stays out of it: pgx says so, and the server, when it refuses one.
//
// Safety: a statement of ours is a transaction of its own. One that the server answers with an
// ERROR has been rolled back. A FATAL may come from a server that shuts down, after the commit and
// before the answer, so it decides nothing; nor does a connection that breaks, unless pgx knows
// that nothing was sent.
func explain(err error) error {
	var unreached *pgconn.ConnectError
	var refused *pgconn.PgError
	switch answered := errors.As(err, &refused); {
	case err == nil:
		return nil
	case answered && strings.HasPrefix(refused.Code, "28"):
		return fmt.Errorf("%w: the server refuses the user, or the password (SQLSTATE %s)",
			backend.ErrDenied, refused.Code)
	case answered && refused.Code == "42501":
		return fmt.Errorf("%w: %w", backend.ErrDenied, err)
	case errors.As(err, &unreached):
		return fmt.Errorf("%w: no connection: %w", backend.ErrUnavailable, unreached.Unwrap())
	case answered && refused.SeverityUnlocalized == "ERROR": // safeguard: pg-fatal
		return fmt.Errorf("%w: %w", backend.ErrNotServing, err)
	case pgconn.SafeToRetry(err):
		return fmt.Errorf("%w: %w", backend.ErrUnavailable, err)
	}
	return err
}

// isCode reports whether err is the server's of this SQLSTATE.
func isCode(err error, code string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == code
}
