package demo

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/cmd/internal/terminal"
	"github.com/holdfast-go/holdfast/internal/blame"
)

// A bar is an interval of a wait as it is drawn: who held, from when to when since the wait began.
type bar struct {
	who      string
	from, to time.Duration
}

// drawBars draws a wait of who that took so long, and below it a line for each bar, the earliest
// first: who it was, for how long, and the bar, in at most width columns (at least 40).
//
//	buyer 3    100ms │░░░░░░░░░░░░░░░░░░░░│
//	buyer 1     60ms │████████████        │
//	buyer 2     40ms │            ████████│
func drawBars(who string, took time.Duration, bars []bar, width int) string {
	earlier := func(a, b bar) int { return cmp.Compare(a.from, b.from) }
	bars = slices.SortedStableFunc(slices.Values(bars), earlier)
	width = max(width, 40) - len("27h46m40s ||") // what a name and its bar have
	name := terminal.Width(who)
	for _, b := range bars {
		name = max(name, terminal.Width(b.who))
	}
	name = min(name, width/2)
	width -= name
	cells := func(at time.Duration) int { // before a moment of the wait
		return int((min(max(at, 0), took)*time.Duration(width) + took/2) / max(took, 1))
	}
	var lines strings.Builder
	line := func(who string, d time.Duration, from, to int, fill string) {
		who = terminal.Shorten(who, name)
		fmt.Fprintf(&lines, "%s%s%9v │%s%s%s│\n",
			who, strings.Repeat(" ", name-terminal.Width(who)), blame.Brief(d),
			strings.Repeat(" ", from), strings.Repeat(fill, to-from), strings.Repeat(" ", width-to))
	}
	line(who, took, 0, width, "░")
	for _, b := range bars {
		from := min(cells(b.from), width-1)
		line(b.who, b.to-b.from, from, max(cells(b.to), from+1), "█")
	}
	return lines.String()
}
