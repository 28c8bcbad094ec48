package backendtest

import (
	"strings"
	"testing"
)

// A brief run leaves out what is marked, says so, and keeps the races, the leases and the faults.
func TestBrief(t *testing.T) {
	h := modelHarness(modelCaps, "")
	all, _ := suite{h: h, caps: modelCaps}.choose(rules(false))
	h.Brief = true
	brief, left := suite{h: h, caps: modelCaps}.choose(rules(false))
	kept := map[string]bool{}
	for _, r := range brief {
		kept[r.name] = true
		if strings.HasPrefix(r.name, "as-mutex/") || strings.HasPrefix(r.name, "input/") {
			t.Errorf("%s is in a brief run", r.name)
		}
	}
	for _, name := range []string{
		"exclusive/race", "expiry/not-early", "tombstone/late-attempt",
		"queue/in-order", "state/race",
	} {
		if !kept[name] {
			t.Errorf("%s is not in a brief run", name)
		}
	}
	told := 0
	for _, why := range left {
		if strings.HasSuffix(why, "the run is a brief one") {
			told++
		}
	}
	if told == 0 || told != len(all)-len(brief) {
		t.Errorf("%d rules are left out, and %d are told of", len(all)-len(brief), told)
	}
}
