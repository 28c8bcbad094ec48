//go:build linux

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
	"github.com/holdfast-go/holdfast/internal/testserver"
)

// Safeguards that workers can do without.
const (
	sentAt       = "the deadline counts from before the request"
	unknownIsOne = "an answer that did not come is no no"
)

// without is the backend of a client that lacks a safeguard.
func without(safeguard string, b backend.Backend) backend.Backend {
	switch safeguard {
	case sentAt:
		return fromReply{b}
	case unknownIsOne:
		return noAnswerIsNo{b}
	}
	return b
}

// fromReply has the locker count its deadline from the reply.
type fromReply struct{ backend.Backend }

func (f fromReply) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	sent := time.Now()
	g, err := f.Backend.TryAcquire(ctx, c)
	g.TTL = max(g.TTL, c.TTL) + time.Since(sent)
	return g, err
}

// noAnswerIsNo takes a release without an answer for one that was refused.
type noAnswerIsNo struct{ backend.Backend }

func (n noAnswerIsNo) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	_, err := n.Backend.Release(ctx, c)
	if err != nil && backend.AnswerOf(err) == backend.Unknown {
		return backend.Released{}, fmt.Errorf("%w: %w", backend.ErrLost, errors.New(err.Error()))
	}
	return backend.Released{}, err
}

func (noAnswerIsNo) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	return backend.Base{}.ReleaseAll(ctx, claims)
}

// Faults that nearly always show that a safeguard is missing.
var (
	// The first worker, whose holds are long, believes for a whole TTL in leases that end soon, and
	// its renewals come late. The others take the keys when the leases end, as nothing slows them.
	lateBeliefs = fault{
		"grants are held back, and then requests are late", onSet, 1.9, 1.9,
		func(s *stage, _ int, _ *rand.Rand) func() {
			layout, err := script.NewLayout("", 0, 0)
			s.must(err)
			p, acquires := s.proxies[0],
				testserver.Containing(layout.Acquire(backend.Claim{}).Script.SHA1())
			p.Set(testserver.Fault{Mode: testserver.HoldReply, Match: acquires})
			late := time.AfterFunc(s.ttl*9/10, func() {
				p.Set(testserver.Fault{Mode: testserver.Delay, Delay: s.ttl})
			})
			return func() { late.Stop(); p.Pass() }
		},
	}
	backAndFlush = fault{
		"the clock steps back, and then FLUSHALL", onServer, 0.1, 0.5,
		func(s *stage, i int, r *rand.Rand) func() {
			s.clocks[i].step(s.t, -2*s.ttl-fraction(r, s.ttl))
			s.servers[i].MustDo("FLUSHALL")
			return nil
		},
	}
)

// TestFinds removes one safeguard at a time, which must be found within a few runs: one nearly
// always does, on a busy machine as well.
func TestFinds(t *testing.T) {
	testserver.OnlyInAll(t, "chaos without safeguards")
	for _, c := range []struct {
		removed string
		sc      scenario
		finds   string
	}{
		{sentAt, scenario{
			name: "sent", keys: []string{"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7"},
			promised: all, lengthy: [processes]int{1},
			faults: [][]fault{{lateBeliefs}},
		}, "has two holders|refused token"},
		{unknownIsOne, scenario{
			name: "unknown", keys: []string{"x0", "v0", "v1"}, promised: all,
			faults: [][]fault{
				{lostReplies},
			},
		}, "no order explains"},
		{"the guard", scenario{
			name: "guard", keys: []string{"x0", "x1", "x2", "x3", "x4", "x5"},
			promised: all &^ data, lengthy: [processes]int{1},
			faults: [][]fault{{flush, killServer}},
		}, "has two holders"},
		{"a clock that is not set back behind what was forgotten", scenario{
			name: "back", keys: []string{"x0", "x1", "v0"}, promised: tokens,
			faults: [][]fault{{backAndFlush}},
		}, "fell from|was granted twice"},
	} {
		t.Run(c.sc.name, func(t *testing.T) {
			t.Parallel()
			c.sc.setUp, c.sc.programs = one(""), []string{redis7}
			const runs = 8
			for i := range runs {
				s := perform(t, c.sc, rand.Uint64N(1<<40), 8*time.Second, c.removed)
				s.must(os.RemoveAll(s.dir))
				found := strings.Join(s.found, "\n")
				for what := range strings.SplitSeq(c.finds, "|") {
					if strings.Contains(found, what) {
						t.Logf("run %d, %d holds, found: %s", i+1, s.holds,
							found[strings.Index(found, what):min(len(found),
								strings.Index(found, what)+200)])
						return
					}
				}
			}
			t.Errorf("without %s nothing was found in %d runs", c.removed, runs)
		})
	}
}
