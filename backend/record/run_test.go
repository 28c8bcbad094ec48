package record_test

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
)

// A record that is used by this version and by one that knows no Ran keeps a job from being run too
// often for both: each decides by what it knows of the run before.
//
// covers: R24
func TestRunAmongVersions(t *testing.T) {
	job := func(owner string, every time.Duration) backend.Claim {
		return backend.Claim{
			Key: "k", Owner: owner, TTL: time.Minute, NotBefore: every,
			NoneInFlight: true,
		}
	}
	run := func(r *record.Record, now time.Time) {
		t.Helper()
		c := job("a", time.Hour)
		if _, err := r.Acquire(c, now); err != nil {
			t.Fatal(err)
		}
		c.Ran = 10 * time.Minute
		if _, err := r.Release(c, now); err != nil {
			t.Fatal(err)
		}
	}
	left := func(r record.Record, every time.Duration, now time.Time) time.Duration {
		t.Helper()
		_, err := r.Acquire(job("b", every), now)
		var early *backend.EarlyError
		if errors.As(err, &early) {
			return early.RetryAfter
		}
		if err != nil {
			t.Error(err)
		}
		return 0
	}

	var r record.Record
	run(&r, at(0))
	if want := at(50 * 60); !r.Mark.Equal(want) {
		t.Errorf("a version before grants no job until %v, want %v", r.Mark, want)
	}
	stored, err := record.Decode("k", r.Encode("k"))
	if err != nil {
		t.Fatal(err)
	}
	later, never := at(60*60), record.Record{Token: r.Token, Mark: r.Mark}
	for name, r := range map[string]record.Record{
		"as it is": r, "stored": *stored,
		"trimmed": trimmed(r, later), "of a boot before": r.Lasting(),
	} {
		for every, want := range map[time.Duration]time.Duration{
			2 * time.Hour: 50 * time.Minute,
			time.Hour:     0, time.Minute: 0,
		} {
			if got := left(r, every, later); got != want {
				t.Errorf("%s: %v are left of %v for a run 70 minutes ago, want %v", name, got,
					every, want)
			}
		}
	}
	// The version before has dropped what it does not know, or has left its own mark beside that.
	ran := r.Ran
	own := record.Record{Token: r.Token + 5, Mark: at(90 * 60), Ran: ran}
	for name, test := range map[string]struct {
		r    record.Record
		left time.Duration
	}{"dropped": {never, 40 * time.Minute}, "its own": {own, 80 * time.Minute}} {
		for _, every := range []time.Duration{time.Second, time.Hour, 2 * time.Hour} {
			if got := left(test.r, every, at(10*60)); got != test.left {
				t.Errorf("%s: %v are left of %v, want %v", name, got, every, test.left)
			}
		}
	}
	var file record.Record
	if body, err := json.Marshal(&r); err != nil || json.Unmarshal(body, &file) != nil ||
		left(file, 2*time.Hour, later) != 50*time.Minute {
		t.Errorf("in a file it is %+v, %v", file, err)
	}
	if !trimmed(r, at(50*60)).Ran.Began.Equal(at(-10*60)) || trimmed(r, at(2*60*60)).Ran != nil {
		t.Error("a run is kept for twice its time after its end, and no longer")
	}
}

func trimmed(r record.Record, now time.Time) record.Record {
	r.Trim(now)
	return r
}
