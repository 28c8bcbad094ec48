package waiting

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		start := time.Now()
		if !Pause(ctx, 50*time.Second) || time.Since(start) != 50*time.Second {
			t.Errorf("slept for %v, want 50s and true", time.Since(start))
		}
		if Pause(ctx, time.Hour) || time.Since(start) != time.Minute {
			t.Errorf("ended %v after the start, want false when ctx is done, at 1m",
				time.Since(start))
		}
	})
}
