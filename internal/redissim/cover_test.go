package redissim

import (
	"strings"
	"testing"

	"github.com/holdfast-go/holdfast/internal/smallredis"
)

// TestLuaIsRun shows how much of the Lua is run by the simulation, and by what TestDamage does,
// which is for statements about damage, other programs' data, crowds and refusals; and which
// statements are not. The short form runs less.
func TestLuaIsRun(t *testing.T) {
	n, least := min(max(25, *seeds), 60), 90
	switch {
	case testing.Short() || raceEnabled:
		n, least = 2, 40
	case *seeds >= 60:
		least = 97
	}
	cover := &smallredis.Cover{}
	for _, k := range kinds {
		each(t, n, func(t *testing.T, seed uint64) bool {
			run(t, k, seed, variant{cover: cover})
			return !k.quorum || seed < *first+2
		})
	}
	damage(t, 8*n, cover)
	total, never := cover.Report()
	t.Logf("%d of %d statements were run, and not:\n\t%s", total-len(never), total,
		strings.Join(never, "\n\t"))
	if 100*(total-len(never)) < least*total {
		t.Errorf("only %d of %d statements were run", total-len(never), total)
	}
}
