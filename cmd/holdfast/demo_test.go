package main_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
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
	Shares []struct {
		Process, Worker, Sold int
		Killed                bool
	}
	Kill *struct {
		Process, PID int
		Token        uint64
		Free         float64 `json:"free_after_ms"`
		Next         uint64  `json:"next_token"`
	}
}

func (o outcome) result(t *testing.T) (r result) {
	t.Helper()
	if err := json.Unmarshal([]byte(o.out), &r); err != nil {
		t.Fatalf("%v in\n%s%s", err, o.out, o.err)
	}
	if len(r.Shares) > 0 {
		sum := 0
		for _, s := range r.Shares {
			sum += s.Sold
		}
		if sum != r.Sold {
			t.Errorf("shares add up to %d, sold are %d", sum, r.Sold)
		}
	}
	return r
}

// wantSafe checks what must hold of every sale under a lock.
func (r result) wantSafe(t *testing.T) result {
	t.Helper()
	if !r.Lock || r.Oversell != 0 || r.Lost != 0 || r.Refused != 0 || !r.Tokens.Rising || r.Tokens.Last < r.Tokens.First {
		t.Errorf("not safe: %+v", r)
	}
	return r
}

func (r result) wantSoldOut(t *testing.T) result {
	t.Helper()
	if r.Ended != "sold out" || r.Sold != r.Stock || r.Turns < r.Stock || r.Waits.Max < r.Waits.P99 || r.Waits.P99 < r.Waits.P50 {
		t.Errorf("not sold out: %+v", r)
	}
	return r
}

func TestDemoNeedsNothing(t *testing.T) {
	o := holdfast(t, "demo").want(t, 0)
	if o.took > 10*time.Second {
		t.Errorf("took %v", o.took)
	}
	for _, line := range []string{"sold          200 of 200 in ", "oversell      0\n", "rising: yes\n", "on mem://, TTL 2s\n", "process 1, buyer  8"} {
		if !strings.Contains(o.out, line) {
			t.Errorf("no %q in\n%s", line, o.out)
		}
	}
	holdfast(t, "demo", "--json").want(t, 0).result(t).wantSafe(t).wantSoldOut(t)
}

func TestDemoWithoutLockSellsTooMuch(t *testing.T) {
	for _, processes := range []string{"1", "2"} {
		r := holdfast(t, "demo", "--no-lock", "--json", "--processes", processes).want(t, 0).result(t)
		if r.Lock || r.Oversell <= 0 || r.Sold != r.Stock+r.Oversell {
			t.Errorf("%s processes: %+v", processes, r)
		}
	}
	if o := holdfast(t, "demo", "--no-lock").want(t, 0); !strings.Contains(o.out, "no lock") || strings.Contains(o.out, "tokens") {
		t.Error(o.out)
	}
}

// A sale of more buyers than get a line each, whose time runs out.
func TestDemoEndsInTime(t *testing.T) {
	o := holdfast(t, "demo", "--stock=1000000", "--workers=40", "--think=0s", "--rest=0s", "--duration=300ms").want(t, 0)
	if !strings.Contains(o.out, ": time is up\n") || strings.Contains(o.out, "buyer  1") || !strings.Contains(o.out, "oversell      0\n") {
		t.Error(o.out)
	}
}

func TestVersionAndHelp(t *testing.T) {
	if o := holdfast(t, "version").want(t, 0); !strings.HasPrefix(o.out, "holdfast ") || strings.Count(o.out, "\n") != 1 {
		t.Errorf("%q", o.out)
	}
	o := holdfast(t).want(t, 0)
	if !strings.Contains(o.out, "demo ") || !strings.Contains(o.out, "version ") || strings.Contains(o.out, "demo-worker") {
		t.Error(o.out)
	}
	if o := holdfast(t, "demo", "--help").want(t, 0); !strings.Contains(o.out, "--no-lock") {
		t.Error(o.out)
	}
}
