package migrations

import (
	"context"
	"database/sql"
	"errors"
	"io/fs"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/golang-migrate/migrate/v4"
	"github.com/golang-migrate/migrate/v4/database"
	"github.com/golang-migrate/migrate/v4/database/sqlite"
	"github.com/golang-migrate/migrate/v4/database/stub"
	"github.com/golang-migrate/migrate/v4/source/iofs"
	"github.com/pressly/goose/v3"
	"go.uber.org/goleak"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
	"github.com/holdfast-go/holdfast/locker"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const instances = 4

// What cannot be done twice, and what would be counted twice.
const up = "CREATE TABLE stock (sku TEXT PRIMARY KEY, n INTEGER); INSERT INTO stock VALUES " +
	"('sku-1', 0);"

var steps = []string{up, "UPDATE stock SET n = n + 1;", "UPDATE stock SET n = n + 1;"}

// together has several instances migrate one database at the same time, and looks what became of
// it.
func together(t *testing.T, migrate func(db *sql.DB, c *locker.Client[struct{}]) error) {
	b := membackend.New()
	defer b.Close()
	file := filepath.Join(t.TempDir(), "shop.db")
	var all sync.WaitGroup
	for range instances {
		all.Go(func() {
			c, db := client(t, b), open(t, file)
			defer c.Close()
			defer db.Close()
			if err := migrate(db, c); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	db := open(t, file)
	defer db.Close()
	var n int
	if err := db.QueryRowContext(t.Context(), "SELECT n FROM stock").Scan(&n); err != nil ||
		n != len(steps)-1 {
		t.Errorf("n is %d, %v: want %d, as each step is done once", n, err, len(steps)-1)
	}
}

func open(t *testing.T, file string) *sql.DB {
	db, err := sql.Open("sqlite", file+"?_pragma=busy_timeout(60000)")
	if err != nil {
		t.Error(err)
	}
	return db
}

func client(t *testing.T, b backend.Backend) *locker.Client[struct{}] {
	c, err := locker.New(b, locker.Bare, locker.Config{})
	if err != nil {
		t.Error(err)
	}
	return c
}

func files(name func(i int) string, text func(step string) string) fs.FS {
	all := fstest.MapFS{}
	for i, step := range steps {
		all[name(i)] = &fstest.MapFile{Data: []byte(text(step))}
	}
	return all
}

func TestMigrate(t *testing.T) {
	steps := files(func(i int) string {
		return string(rune('1'+i)) + "_step.up.sql"
	}, strings.Clone)
	together(t, func(db *sql.DB, c *locker.Client[struct{}]) error {
		source, err := iofs.New(steps, ".")
		if err != nil {
			return err
		}
		inner, err := sqlite.WithInstance(db, &sqlite.Config{})
		if err != nil {
			return err
		}
		locked := &Driver{Driver: inner, Client: c, Key: "shop/schema", Wait: 4 * time.Minute}
		m, err := migrate.NewWithInstance("iofs", source, "sqlite", locked)
		if err != nil {
			return err
		}
		m.LockTimeout = 5 * time.Minute
		if err = m.Up(); errors.Is(err, migrate.ErrNoChange) {
			err = nil
		}
		ofSource, ofDatabase := m.Close()
		return errors.Join(err, ofSource, ofDatabase)
	})
}

func TestGoose(t *testing.T) {
	steps := files(func(i int) string { return string(rune('1'+i)) + "_step.sql" },
		func(step string) string { return "-- +goose Up\n" + step })
	together(t, func(db *sql.DB, c *locker.Client[struct{}]) error {
		p, err := goose.NewProvider(goose.DialectSQLite3, db, steps,
			goose.WithLocker(&Goose{Client: c, Key: "shop/schema"}))
		if err != nil {
			return err
		}
		_, err = p.Up(context.Background())
		return err
	})
}

// Who has lost the lock migrates no more, notes nothing, and is told at the end.
func TestLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		defer b.Close()
		c := client(t, b)
		defer c.Close()
		inner := &stub.Stub{CurrentVersion: database.NilVersion}
		d := &Driver{Driver: inner, Client: c, Key: "k"}
		if err := d.Lock(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(d.Run(strings.NewReader("one")), d.SetVersion(1, false)); err != nil {
			t.Error(err)
		}
		if _, err := c.ForceRelease(t.Context(), "k", d.guard.Hold().Token); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for what, err := range map[string]error{
			"Run": d.Run(strings.NewReader("two")), "SetVersion": d.SetVersion(2, false),
			"Unlock": d.Unlock(),
		} {
			if !errors.Is(err, locker.ErrLost) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if inner.CurrentVersion != 1 || string(inner.LastRunMigration) != "one" {
			t.Errorf("the database is at %d, %q", inner.CurrentVersion, inner.LastRunMigration)
		}
	})
}

// Who waits in vain does not migrate.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := membackend.New()
		defer b.Close()
		c, other := client(t, b), client(t, b)
		defer c.Close()
		defer other.Close()
		g, err := other.Lock(t.Context(), "k")
		if err != nil {
			t.Fatal(err)
		}
		if err := (&Driver{Client: c, Key: "k", Wait: time.Second}).Lock(); !errors.Is(err,
			database.ErrLocked) {
			t.Errorf("golang-migrate: %v", err)
		}
		if err := (&Goose{Client: c, Key: "k", Wait: time.Second}).Lock(t.Context(),
			nil); !errors.Is(err, backend.ErrHeld) {
			t.Errorf("goose: %v", err)
		}
		if err := g.Unlock(); err != nil {
			t.Error(err)
		}
	})
}
