package backendtest

import (
	"strings"
	"testing"
)

// TestStormsFind shows that storms find what single requests may miss: each of these defects,
// within so many seeds, ten times as many as any took.
func TestStormsFind(t *testing.T) {
	const most = 1500 // some take 40 on average
	for _, defect := range []string{
		"no tombstone", "tombstones not looked at", "repeat refused", "token constant",
		"anybody may release",
		"cancelled claims stay in the queue", "readers beside a writer",
		"reserved tokens are given away",
		"a weight counts as one",
	} {
		t.Run(strings.ReplaceAll(defect, " ", "-"), func(t *testing.T) {
			s := suite{h: modelHarness(modelCaps, defect), caps: modelCaps, name: "TestStormsFind"}
			for n, seed := range seeds(most) {
				r := rule{name: "storm", run: func(e *env) {
					runStorm(e, seed)
				}, why: "it finds " + defect}
				if try(t, s, r).Failed() {
					t.Logf("found by storm %d", n+1)
					return
				}
			}
			t.Errorf("not found in %d storms", most)
		})
	}
}
