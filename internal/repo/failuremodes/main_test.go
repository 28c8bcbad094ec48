package main

import (
	"os"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The page is what the tests' comments say now.
func TestPageIsFresh(t *testing.T) {
	want, err := build()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(root + "/" + page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s is stale: make generate", page)
	}
}

func TestCatalogue(t *testing.T) {
	modes, err := parse(catalogue)
	if err != nil {
		t.Fatal(err)
	}
	if len(modes) < 159 {
		t.Errorf("got %d failure modes, want 159: ids are for good", len(modes))
	}
	for _, bad := range []string{"A1 | home", "a1 | home | text", "A1 | h | t\nA1 | h | t"} {
		if _, err := parse(bad); err == nil {
			t.Errorf("parse(%q) found nothing wrong", bad)
		}
	}
}

func TestCollect(t *testing.T) {
	tree := fstest.MapFS{
		"p/p_test.go": {Data: []byte(`package p

// TestDoc does this and that.
//
// covers: A1, A2 (in part).
func TestDoc(t *testing.T) {}

func TestInside(t *testing.T) {
	// covers: A1
	t.Run("x", nil)
}

var table = []int{
	1, // covers: B7
}

// covers: nothing known
func TestEmpty(t *testing.T) {}

// covers: C1

type lonely int
`)},
		"p/testdata/x.go": {Data: []byte("package x\n\n// covers: Z1\nfunc F() {}\n")},
	}
	covers, faults := collect(tree)
	if want := []test{
		{"p/p_test.go", "TestDoc"},
		{"p/p_test.go", "TestInside"},
	}; !slices.Equal(covers["A1"], want) {
		t.Errorf("A1: got %v, want %v", covers["A1"], want)
	}
	if want := []test{{"p/p_test.go", "TestDoc"}}; !slices.Equal(covers["A2"], want) {
		t.Errorf("A2: got %v, want %v", covers["A2"], want)
	}
	if want := []test{{"p/p_test.go", "table"}}; !slices.Equal(covers["B7"], want) {
		t.Errorf("B7: got %v, want %v", covers["B7"], want)
	}
	if len(faults) != 2 || !strings.Contains(faults[0], "p_test.go:17") ||
		!strings.Contains(faults[1], "p_test.go:20") {
		t.Errorf("faults: got %q, want TestEmpty's and the lonely one", faults)
	}
	if covers["Z1"] != nil {
		t.Error("testdata was read")
	}
}

func TestUnknown(t *testing.T) {
	modes := []mode{{"A", "A1", "locker", "text"}}
	covers := map[string][]test{"A1": {{"x_test.go", "TestX"}}, "A99": {{"y_test.go", "TestY"}}}
	if got := unknown(modes, covers); len(got) != 1 ||
		!strings.Contains(got[0], "TestY covers A99") {
		t.Errorf("got %q", got)
	}
}

func TestRender(t *testing.T) {
	modes := []mode{
		{"S", "A1", "locker", "one"},
		{"S", "A2", "redlock", "two"},
		{"T", "A3", "doc:guarantees.md#time", "three"},
	}
	got := render(modes, map[string][]test{"A1": {{"locker/x_test.go", "TestX"}}})
	for _, want := range []string{
		"Of 3 failure modes 1 are tested, 1 are for documentation to tell, 1 are not tested yet.",
		"| A1 | one | [locker TestX](../locker/x_test.go) |",
		"| A2 | two | not yet: redlock |",
		"| A3 | three | told in [guarantees.md](guarantees.md#time) |",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
