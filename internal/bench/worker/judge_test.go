package worker

import (
	"path/filepath"
	"testing"
)

// TestJudge checks that the judge would see a wrong lock, also in another process' mapping of the
// same file.
func TestJudge(t *testing.T) {
	file := filepath.Join(t.TempDir(), "judge")
	a, unmapA, err := judges(file, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapA()
	b, unmapB, err := judges(file, 2)
	if err != nil {
		t.Fatal(err)
	}
	defer unmapB()
	expect := func(violations, disorder int64) {
		t.Helper()
		if v, d := faults(b); v != violations || d != disorder {
			t.Errorf("%v violations and %v tokens in disorder, want %v and %v", v, d, violations,
				disorder)
		}
	}
	a[0].enter(1, 10)
	a[1].enter(2, 10) // another key
	a[0].leave(1)
	b[0].enter(3, 11)
	expect(0, 0)
	a[0].enter(1, 12) // while 3 is inside
	expect(1, 0)
	b[0].leave(3)
	b[0].enter(3, 12) // the same token twice
	expect(1, 1)
	b[0].leave(3)
	b[0].enter(1, 0) // no fencing: nothing to check
	expect(1, 1)
}
