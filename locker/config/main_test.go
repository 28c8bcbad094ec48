package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"

	_ "github.com/holdfast-go/holdfast/backend/membackend"
)

func TestMain(m *testing.M) {
	// What the machine has set must not decide how a test ends.
	for _, assignment := range os.Environ() {
		if name, _, _ := strings.Cut(assignment, "="); strings.HasPrefix(name, envPrefix) {
			_ = os.Unsetenv(name)
		}
	}
	goleak.VerifyTestMain(m)
}

// write makes a file of text and returns its path.
func write(t testing.TB, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "holdfast.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// load loads a file of text that must be good.
func load(t *testing.T, text string) File {
	t.Helper()
	f, err := Load(write(t, text))
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// problems loads a file of text that must be bad, and returns the texts of the errors with the path
// cut to its last name.
func problems(t *testing.T, path string) ([]*Error, []string) {
	t.Helper()
	f, err := Load(path)
	if err == nil {
		t.Fatalf("loaded as %v, want an error", f)
	}
	if f.String() != "" {
		t.Errorf("a configuration was returned beside the error: %v", f)
	}
	list := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		list = joined.Unwrap()
	}
	var found []*Error
	var texts []string
	for _, err := range list {
		var e *Error
		if !errors.As(err, &e) {
			t.Fatalf("%v is a %T", err, err)
		}
		found = append(found, e)
		texts = append(texts, strings.ReplaceAll(e.Error(),
			filepath.Dir(path)+string(filepath.Separator), ""))
	}
	return found, texts
}
