package testserver

import "testing"

// A skipping is a test that notes whether it was skipped.
type skipping struct {
	testing.TB
	skipped bool
}

func (*skipping) Helper() {}

func (s *skipping) Skip(...any) { s.skipped = true }

func TestOnlyInAll(t *testing.T) {
	for level, left := range map[string]bool{"": false, "all": false, "main": true} {
		t.Setenv(testsVar, level)
		s := &skipping{TB: t}
		OnlyInAll(s, "what follows")
		if s.skipped != left {
			t.Errorf("%s=%q leaves it out: %v, want %v", testsVar, level, s.skipped, left)
		}
	}
}
