package locker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/membackend"
)

// parted is a store of two parts, each with keys of its own. One falls silent; the other answers,
// and it is noted for how long it left a lease without a renewal.
type parted struct {
	backend.Backend
	mu       sync.Mutex
	silent   bool
	inFlight int
	most     int                  // requests in flight that have no answer
	renewed  map[string]time.Time // or granted, of the healthy part
	longest  time.Duration        // between two renewals, since the other part is silent
}

func (p *parted) Renew(ctx context.Context, c backend.Claim) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if strings.HasPrefix(c.Key, "healthy") {
		if p.silent {
			p.longest = max(p.longest, time.Since(p.renewed[c.Key]))
		}
		p.renewed[c.Key] = time.Now()
	} else if p.silent {
		p.inFlight++
		p.most = max(p.most, p.inFlight)
		p.mu.Unlock()
		<-ctx.Done()
		p.mu.Lock()
		p.inFlight--
		return ctx.Err()
	}
	p.mu.Unlock()
	defer p.mu.Lock()
	time.Sleep(time.Millisecond)
	return p.Backend.Renew(ctx, c)
}

// A part of the store is silent, as a primary of a Redis Cluster that is away. The leases of the
// rest are renewed when they are due or little later, however many wait for that part. Where
// nothing answers, no more renewals wait than a few for each place.
//
// covers: B9
func TestSilentPartOfTheStore(t *testing.T) {
	const ttl = 30 * time.Second
	for _, tt := range []struct {
		name            string
		silent, healthy int // leases of each part
		// between the locks of the two, and from then on until the silence
		between, after time.Duration
		most           int // requests without an answer
	}{
		{name: "half and half", silent: 2000, healthy: 2000, after: time.Minute, most: 2000},
		{
			name: "all of the silent part first", silent: 2000, healthy: 2000,
			between: 2 * time.Second, after: 4 * time.Second, most: 2000,
		},
		{name: "nearly all", silent: 5000, healthy: 200, after: time.Minute, most: 5000},
		// twice a second, five seconds each; the race detector bears 8,000 goroutines
		{name: "all", silent: 3000, most: 11 * maxRenewals},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				b := &parted{Backend: membackend.New(), renewed: map[string]time.Time{}}
				l, err := New(b, Bare, Config{TTL: ttl, Logger: slog.New(slog.DiscardHandler)})
				if err != nil {
					t.Fatal(err)
				}
				lock := func(part string, n int) (held []*Guard[struct{}]) {
					for i := range n {
						g, err := l.Lock(t.Context(), fmt.Sprint(part, i))
						if err != nil {
							t.Fatal(err)
						}
						held = append(held, g)
						b.mu.Lock()
						b.renewed[g.Hold().Key] = time.Now()
						b.mu.Unlock()
					}
					return held
				}
				away := lock("silent", tt.silent)
				time.Sleep(tt.between)
				healthy := lock("healthy", tt.healthy)
				time.Sleep(tt.after)
				b.mu.Lock()
				b.silent = true
				b.mu.Unlock()
				time.Sleep(time.Minute)
				for _, g := range healthy {
					if err := g.Unlock(); err != nil {
						t.Fatalf("lost, of the part that answers: %v", err)
					}
				}
				b.mu.Lock()
				if b.longest > ttl/2 {
					t.Errorf("%v between two renewals of the part that answers, at a TTL of %v",
						b.longest, ttl)
				}
				if b.most > tt.most {
					t.Errorf("%d renewals without an answer, want %d at most", b.most, tt.most)
				}
				b.mu.Unlock()
				for _, g := range away {
					_ = g.Unlock()
				}
				if err := errors.Join(l.Close(), b.Close()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
