package fence_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/locker/fence"
)

// A database changes so many rows, or fails. Real ones are in internal/fencing.
type database struct {
	rows int64
	err  error
	ran  bool
}

func (d *database) ExecContext(context.Context, string, ...any) (sql.Result, error) {
	d.ran = true
	return driver.RowsAffected(d.rows), d.err
}

func TestExec(t *testing.T) {
	down := errors.New("down")
	for _, test := range []struct {
		db    database
		token uint64
		want  error
		ran   bool
	}{
		{database{rows: 1}, 7, nil, true},
		{database{rows: 3}, 7, nil, true},
		{database{rows: 0}, 7, fence.ErrStale, true},
		{database{err: down}, 7, down, true},
		{database{rows: 1}, 0, backend.ErrInvalid, false},
		{database{rows: 1}, 1 << 63, backend.ErrInvalid, false},
	} {
		db := test.db
		if _, err := fence.Exec(t.Context(), &db, "k", test.token, "UPDATE"); !errors.Is(err,
			test.want) || db.ran != test.ran {
			t.Errorf("%+v: %v, ran: %v", test, err, db.ran)
		}
	}
}
