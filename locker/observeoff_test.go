package locker

import (
	"context"
	"testing"
)

// hooks are all that an uncontended Lock and Unlock ask of an observer that is not there.
func hooks(ctx context.Context, c *core) {
	h := Hold{Key: "k"}
	for _, op := range [...]string{OpLock, OpAttempt, OpRelease} {
		_, end := c.observe(ctx, op, h)
		end(h, nil)
	}
}

func TestObserverOffAllocatesNothing(t *testing.T) {
	c := &core{}
	if n := testing.AllocsPerRun(1000, func() { hooks(t.Context(), c) }); n != 0 {
		t.Errorf("%v allocations per Lock without an observer", n)
	}
}

func BenchmarkObserverOff(b *testing.B) {
	c := &core{}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		hooks(ctx, c)
	}
}
