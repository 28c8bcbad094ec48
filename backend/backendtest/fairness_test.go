package backendtest

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
)

// Process 0 is not queued for half of the time; process 1 always is, and has the more holds.
func TestSharesOf(t *testing.T) {
	var events []history.Event
	turn := func(process string, asked, granted int) {
		at := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
		events = append(events,
			history.Event{
				Process: process, Key: fairLine, Asked: at(asked), Start: at(granted),
				End: at(granted) + 1,
			},
			history.Event{Process: process, Key: "k", Start: at(granted), End: at(granted + 10)})
	}
	for i := range 100 {
		ms := 1000 + 20*i
		turn("1", ms-10, ms)
		if i < 50 {
			turn("0", ms, ms+10)
		}
	}
	turn("0", 2990, 2990)
	shares, rates := sharesOf("k", events, time.Second, 3*time.Second)
	if !slices.Equal(shares, []int{51, 100, 0, 0}) || rates[0] < 48 || rates[0] > 52 ||
		rates[1] != 50 {
		t.Errorf("shares %v, rates %v", shares, rates)
	}
}
