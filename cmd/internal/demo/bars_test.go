package demo

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

func TestDrawBars(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		name  string
		who   string
		took  time.Duration
		bars  []bar
		width int
		want  string
	}{
		{"nobody is known", "me", 10 * ms, nil, 40, `
me     10ms │░░░░░░░░░░░░░░░░░░░░░░░░░░│`},
		{
			"in the order of time, to the cell", "buyer 3", 100 * ms,
			[]bar{{"buyer 2", 60 * ms, 100 * ms}, {"buyer 1", 0, 60 * ms}},
			40, `
buyer 3    100ms │░░░░░░░░░░░░░░░░░░░░░│
buyer 1     60ms │█████████████        │
buyer 2     40ms │             ████████│`,
		},
		{
			"a gap, and one that is shorter than a cell", "me", 100 * ms,
			[]bar{{"a", 0, 1}, {"b", 50 * ms, 51 * ms}, {"c", 100*ms - 1, 100 * ms}},
			40, `
me    100ms │░░░░░░░░░░░░░░░░░░░░░░░░░░│
a        0s │█                         │
b       1ms │             █            │
c        0s │                         █│`,
		},
		{
			"clipped to the wait", "me", 10 * ms,
			[]bar{{"a", -5 * ms, 5 * ms}, {"b", 5 * ms, time.Hour}},
			20, `
me     10ms │░░░░░░░░░░░░░░░░░░░░░░░░░░│
a      10ms │█████████████             │
b    1h0m0s │             █████████████│`,
		},
		{"no time at all", "me", 0, []bar{{"a", 0, 0}}, 40, `
me       0s │░░░░░░░░░░░░░░░░░░░░░░░░░░│
a        0s │█                         │`},
		{
			"a name that has no room", "this process, at /srv/ÄÖÜ/some/where/server.go:123",
			time.Hour, nil, 50, `
this proc…er.go:123   1h0m0s │░░░░░░░░░░░░░░░░░░░│`,
		},
	} {
		got := "\n" + strings.TrimSuffix(drawBars(c.who, c.took, c.bars, c.width), "\n")
		if got != c.want {
			t.Errorf("%s:%s\nwant%s", c.name, got, c.want)
		}
		for line := range strings.Lines(got[1:]) {
			if n := utf8.RuneCountInString(strings.TrimSuffix(line, "\n")); n != max(c.width, 40) {
				t.Errorf("%s: %d columns, not %d: %s", c.name, n, c.width, line)
			}
		}
	}
}
