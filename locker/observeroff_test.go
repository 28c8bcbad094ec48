package locker

import (
	"context"
	"testing"

	"github.com/holdfast-go/holdfast/backend"
)

// hooks are all that an uncontended Lock and Unlock ask of an observer that is not there.
func hooks(ctx context.Context, c *core, claim *backend.Claim, l *lease) {
	h := Hold{Key: "k"}
	for _, op := range [...]string{OpWait, OpAttempt, OpHold, OpRelease} {
		_, end := c.observe(ctx, op, h)
		end(h, nil)
	}
	c.sign(ctx, claim)
	c.observeLease(ctx, EventGrant, l)
}

func TestObserverOffAllocatesNothing(t *testing.T) {
	c, claim, lease := &core{}, backend.Claim{}, &lease{}
	if n := testing.AllocsPerRun(1000, func() { hooks(t.Context(), c, &claim, lease) }); n != 0 {
		t.Errorf("%v allocations per Lock without an observer", n)
	}
}

func BenchmarkObserverOff(b *testing.B) {
	c, claim, lease := &core{}, backend.Claim{}, &lease{}
	ctx := b.Context()
	b.ReportAllocs()
	for b.Loop() {
		hooks(ctx, c, &claim, lease)
	}
}
