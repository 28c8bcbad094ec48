package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A defect whose line has changed is tried by nobody, and would only be noticed after all the others.
func TestNoneIsStale(t *testing.T) {
	for _, m := range mutants {
		source, err := os.ReadFile(filepath.Join("..", "..", m.File))
		if err != nil {
			t.Error(err)
		}
		if n := strings.Count(string(source), m.Old); n != 1 {
			t.Errorf("%s: %q is %d times in %s", m.Name, m.Old, n, m.File)
		}
	}
}
