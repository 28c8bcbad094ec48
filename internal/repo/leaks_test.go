package repo

import (
	"io/fs"
	"strings"
	"testing"
)

// leakFree are the packages whose tests need not look for goroutines left behind.
const leakFree = `
`

// TestGoleak holds every package with tests to looking for leaked goroutines when they end.
//
// covers: G1
func TestGoleak(t *testing.T) {
	report(t, checkGoleak(tree(), leakFree))
}

func checkGoleak(tree fs.FS, allow string) (faults []string) {
	exceptions, faults := newList("leakFree", allow)
	looks := map[string]bool{}
	var dirs []string
	for _, s := range sources(tree) {
		if !s.test {
			continue
		}
		if _, seen := looks[s.dir()]; !seen {
			dirs = append(dirs, s.dir())
		}
		looks[s.dir()] = looks[s.dir()] ||
			strings.Contains(read(tree, s.name), "goleak.VerifyTestMain(")
	}
	for _, dir := range dirs {
		if !looks[dir] && !exceptions.allows(dir) {
			faults = append(faults, dir+": no TestMain calls goleak.VerifyTestMain")
		}
	}
	return append(faults, exceptions.unused()...)
}

func TestGoleakCanFail(t *testing.T) {
	const verify = "package p\nfunc TestMain(m *testing.M) { goleak.VerifyTestMain(m) }"
	tree := fixture(map[string]string{
		"good/a_test.go": "package p", "good/b_test.go": verify,
		"bad/a_test.go": "package p", "bad/a.go": verify,
		"pure/a_test.go": "package p",
		"none/a.go":      "package p",
	})
	expect(t, checkGoleak(tree, "pure # a pure function\ngone # once"), "bad: no TestMain",
		"gone is not needed")
}
