package suspend

import (
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestAsleepStandsStillWhileAwake(t *testing.T) {
	before := Slept(time.Now())
	if after := Slept(time.Now()); after < before-Napless || after > before+Napless {
		t.Errorf("slept from %v to %v between two calls", before, after)
	}
}
