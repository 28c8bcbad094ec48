package onrecord

import (
	"database/sql"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/backendtest"
)

func TestMain(m *testing.M) {
	backendtest.Main()
	os.Exit(m.Run())
}

func TestConformance(t *testing.T) {
	file := filepath.Join(t.TempDir(), "locks.db")
	backendtest.Run(t, backendtest.Harness{
		Open: func(t testing.TB) backend.Backend {
			b, err := backend.Open(t.Context(), "sqlite://"+file)
			if err != nil {
				t.Fatal(err)
			}
			return b
		},
		PutForeign: func(t testing.TB, key string) (intact func() bool) {
			put(t, file, key, "another's")
			return func() bool { return get(t, file, key) == "another's" }
		},
		Drop: func(t testing.TB, key string) {
			put(t, file, key, "")
			time.Sleep(2 * time.Millisecond) // tokens go by the clock then
		},
	})
}

// TestProcesses has processes compete for a lock, of which one is killed.
func TestProcesses(t *testing.T) {
	backendtest.Processes(t, "sqlite://"+filepath.Join(t.TempDir(), "locks.db"))
}

// TestPage holds docs/writing-a-backend.md to this code, and the code to the length that it
// promises.
func TestPage(t *testing.T) {
	code, err := os.ReadFile("sqlite.go")
	if err != nil {
		t.Fatal(err)
	}
	page, err := os.ReadFile("../../docs/writing-a-backend.md")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(code), "\n"); n > 150 {
		t.Errorf("sqlite.go has %d lines, over 150", n)
	}
	_, shown, _ := strings.Cut(string(code), "package onrecord\n")
	if !strings.Contains(string(page), strings.TrimSpace(shown)) {
		t.Error("docs/writing-a-backend.md shows other code than sqlite.go")
	}
}

// put writes a row behind everybody's back, or deletes it.
func put(t testing.TB, file, key, value string) {
	t.Helper()
	query := `REPLACE INTO locks VALUES (?, ?)`
	if value == "" {
		query = `DELETE FROM locks WHERE key = ? OR value = ?`
	}
	if _, err := data(t, file).Exec(query, key, []byte(value)); err != nil {
		t.Error(err)
	}
}

func get(t testing.TB, file, key string) (value string) {
	t.Helper()
	if err := data(t, file).QueryRow(`SELECT value FROM locks WHERE key = ?`,
		key).Scan(&value); err != nil {
		t.Error(err)
	}
	return value
}

func data(t testing.TB, file string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(4000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}
