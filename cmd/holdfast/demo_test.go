package main_test

import (
	"encoding/json"
	"strings"
	"testing"
)

// A result is the part of the demo's JSON that tests look at.
type result struct {
	Ended     string
	Lock      bool
	Backend   string
	TTL       float64 `json:"ttl_ms"`
	Processes int
	Stock     int
	Sold      int
	Oversell  int
	Turns     int                             `json:"acquisitions"`
	Waits     struct{ P50, P99, Max float64 } `json:"wait_ms"`
	Lost      int                             `json:"lost_holds"`
	Refused   int                             `json:"refused_writes"`
	Tokens    struct {
		First, Last uint64
		Rising      bool
	}
	Kill *struct {
		Process, PID int
		Token        uint64
		Free         float64 `json:"free_after_ms"`
		Next         uint64  `json:"next_token"`
	}
	Slowest struct {
		Held []struct {
			By  string
			PID int
		}
	}
}

func (o outcome) result(t *testing.T) (r result) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatalf("%v in\n%s%s", err, o.out, o.err)
	}
	return r
}

// wantSafe checks what must hold of every sale under a lock.
func (r result) wantSafe(t *testing.T) result {
	t.Helper()
	if !r.Lock || r.Oversell != 0 || r.Lost != 0 || r.Refused != 0 || !r.Tokens.Rising ||
		r.Tokens.Last < r.Tokens.First {
		t.Errorf("not safe: %+v", r)
	}
	return r
}

func (r result) wantSoldOut(t *testing.T) result {
	t.Helper()
	if r.Ended != "sold out" || r.Sold != r.Stock || r.Turns < r.Stock ||
		r.Waits.Max < r.Waits.P99 || r.Waits.P99 < r.Waits.P50 {
		t.Errorf("not sold out: %+v", r)
	}
	return r
}

func TestDemoNeedsNothing(t *testing.T) {
	o := holdfast(t, "demo", "--stock=200").want(t, 0)
	for _, says := range []string{
		"sold 200 of 200\n", "on mem://, TTL 2s.", "Nothing was sold",
		"│░░░",
	} {
		if !strings.Contains(o.out, says) {
			t.Errorf("no %q in\n%s", says, o.out)
		}
	}
	for _, flag := range []string{"--json", "--output=json"} {
		holdfast(t, "demo", "--stock=20", flag).want(t, 0).result(t).wantSafe(t).wantSoldOut(t)
	}
}

// Without flags it is the tour, whatever store is configured.
func TestDemoIsTheTour(t *testing.T) {
	o := holdfastWith(t, []string{
		"HOLDFAST_BACKEND=redis://127.0.0.1:1",
		"HOLDFAST_NAMESPACE=shop",
	}, "demo").want(t, 0)
	for _, says := range []string{
		"\n1. Without a lock: sold ",
		"\n2. With a lock (mem://): sold 200 of 200\n", "\n4. One slow purchase",
		"\n- Without a lock ",
	} {
		if !strings.Contains(o.out, says) {
			t.Errorf("no %q in\n%s", says, o.out)
		}
	}
}

func TestDemoWithoutLockSellsTooMuch(t *testing.T) {
	for _, processes := range []string{"1", "2"} {
		r := holdfast(t, "demo", "--no-lock", "--json", "--processes", processes).want(t,
			0).result(t)
		if r.Lock || r.Oversell <= 0 || r.Sold != r.Stock+r.Oversell {
			t.Errorf("%s processes: %+v", processes, r)
		}
	}
	if o := holdfast(t, "demo", "--no-lock").want(t, 0); !strings.Contains(o.out, "no lock") ||
		strings.Contains(o.out, "│") {
		t.Error(o.out)
	}
}

// A sale of many buyers, whose time runs out.
func TestDemoEndsInTime(t *testing.T) {
	o := holdfast(t, "demo", "--stock=1000000", "--workers=40", "--think=0s", "--rest=0s",
		"--duration=300ms").want(t, 0)
	if !strings.Contains(o.out, "It ended early: time is up.") ||
		!strings.Contains(o.out, "Nothing was sold") {
		t.Error(o.out)
	}
}

func TestVersionAndHelp(t *testing.T) {
	if o := holdfast(t, "version").want(t, 0); !strings.HasPrefix(o.out, "holdfast ") ||
		strings.Count(o.out, "\n") != 1 {
		t.Errorf("%q", o.out)
	}
	o := holdfast(t).want(t, 0)
	if !strings.Contains(o.out, "demo ") || !strings.Contains(o.out, "version ") ||
		strings.Contains(o.out, "demo-worker") {
		t.Error(o.out)
	}
	if o := holdfast(t, "demo", "--help").want(t, 0); !strings.Contains(o.out, "--no-lock") {
		t.Error(o.out)
	}
}
