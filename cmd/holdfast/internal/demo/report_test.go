package demo

import (
	"errors"
	"strings"
	"testing"
	"time"
)

func TestResultErr(t *testing.T) {
	rising := &tokens{1, 9, true}
	for _, c := range []struct {
		name string
		r    result
		want string // empty for nil
	}{
		{"fine", result{Ended: "sold out", Lock: true, Tokens: rising}, ""},
		{"no lock", result{Ended: "sold out", Oversell: 7}, ""},
		{"time is up", result{Ended: "time is up", Lock: true, Tokens: rising}, ""},
		{"oversell", result{Lock: true, Oversell: 7, Tokens: rising}, "7 sold too many, although under a lock"},
		{"oversell in an interrupted sale", result{Ended: "interrupted", Lock: true, Oversell: 7}, "7 sold too many, although under a lock\ninterrupted"},
		{"tokens", result{Lock: true, Tokens: &tokens{}}, "two holds had the same fencing token"},
		{"store", result{Ended: "failed", Lock: true, failed: errors.New("gone")}, "gone"},
		{"nobody killed", result{Lock: true, wantKill: true}, "nobody was killed: the process that was to be never had the lock; give more --stock"},
		{"never free", result{Lock: true, wantKill: true, Kill: &kill{Process: 2}}, "after process 2 was killed, nobody had the lock any more"},
		{"killed", result{Lock: true, wantKill: true, Kill: &kill{Process: 2, NextToken: 4}}, ""},
	} {
		got := ""
		if err := c.r.err(); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	if r := (&result{Ended: "interrupted"}); !errors.Is(r.err(), ErrInterrupted) {
		t.Error(r.err())
	}
}

func TestTallyOfKill(t *testing.T) {
	tl := newTally()
	tl.add(event{Kind: evTurn, Token: 4, Wait: time.Millisecond, Sold: true})
	tl.killed(2, 123, 5)
	tl.add(event{Kind: evTurn, Token: 3, Sold: true}) // told late
	if !strings.HasSuffix(tl.line(9), "killed process to end") || !tl.wasKilled(2) || tl.wasKilled(1) {
		t.Errorf("%+v", tl.kill)
	}
	tl.add(event{Kind: evTurn, Token: 6, Lost: true})
	tl.add(event{Kind: evTurn, Token: 7})
	if tl.kill.NextToken != 6 || len(tl.waits) != 4 {
		t.Errorf("%+v", tl)
	}
	if line := tl.line(9); !strings.HasPrefix(line, "sold 2 of 9, ") || !strings.HasSuffix(line, " 1 lost") {
		t.Errorf("%q", line)
	}
}
