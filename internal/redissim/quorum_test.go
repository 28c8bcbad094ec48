package redissim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/counting"
	"github.com/holdfast-go/holdfast/internal/simstore"
	"github.com/holdfast-go/holdfast/locker"
	"github.com/holdfast-go/holdfast/redlock"
)

// Nodes of a quorum are servers of which each is one of three. Some have a guard, and restart with
// and without what they had; their clients use only scripts. Some keep what they have, and their
// clients use native commands where the server has them. And one, or none, is like an etcd.
func (s *server) asNode(r *rand.Rand) {
	w := s.w
	s.guard = r.IntN(2) == 0 || w.v.forgetful
	s.redis.IFEQ = r.IntN(2) == 0
	s.redis.Journal()
	if s.index == 0 && r.IntN(2) == 0 && !w.v.forgetful {
		s.guard = false
		s.records = &counting.Store{Store: simstore.New(simstore.Config{Now: s.ran})}
	}
}

// join makes the client one of a quorum of all servers.
func (c *client) join(r *rand.Rand, requests time.Duration) backend.Backend {
	w := c.w
	ahead := either(r, w.ttl/2*time.Duration(r.IntN(2)))
	for _, i := range r.Perm(len(w.servers)) {
		s := w.servers[i]
		l := link{c, []*server{s}, requests}
		var n backend.Backend = remote{l: l}
		if s.records == nil {
			n = newStore(l, s.guard)
		}
		c.nodes = append(c.nodes, orderly{n, l.named(""), w.net, ahead})
	}
	listed := c.nodes
	if w.v.minority {
		listed = listed[:3]
	}
	red, err := redlock.New(listed,
		redlock.Config{NodeTimeout: 30*time.Millisecond + fraction(r, w.ttl/3)})
	if err != nil {
		panic(err)
	}
	return orderly{red, fmt.Sprintf("client %d: ", c.index), w.net, 0}
}

// An orderly backend is called one call at a time, and those of one instant in the order of what
// they are, which goroutines do not have. Its client's wall clock, of which the least token is, is
// set ahead.
type orderly struct {
	backend.Backend
	name  string
	net   *network
	ahead time.Duration
}

// workerKey is of the name of who calls, in a context.
type workerKey struct{}

func (o orderly) turn(ctx context.Context, verb string, c backend.Claim) {
	worker, _ := ctx.Value(workerKey{}).(string)
	o.net.turn(o.name+"begins to "+verb+" "+c.Key, worker, c.ID())
}

// back is the turn of who comes back because it gives up: several do when what they have in common
// is over, and what they do next is to begin at different instants.
func (o orderly) back(ctx context.Context, verb string, c backend.Claim, err error) error {
	if err != nil && ctx.Err() != nil {
		o.turn(ctx, "go without "+verb, c)
	}
	return err
}

func (o orderly) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	o.turn(ctx, "acquire", c)
	if c.MinToken > 0 {
		c.MinToken = uint64(max(1, int64(c.MinToken)+o.ahead.Microseconds()))
	}
	g, err := o.Backend.TryAcquire(ctx, c)
	return g, o.back(ctx, "acquire", c, err)
}

func (o orderly) Renew(ctx context.Context, c backend.Claim) error {
	o.turn(ctx, "renew", c)
	return o.back(ctx, "renew", c, o.Backend.Renew(ctx, c))
}

func (o orderly) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	o.turn(ctx, "release", c)
	told, err := o.Backend.Release(ctx, c)
	return told, o.back(ctx, "release", c, err)
}

// ReleaseAll is not that of a quorum.
func (orderly) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	return backend.Base{}.ReleaseAll(ctx, claims)
}

func (o orderly) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	o.turn(ctx, "watch", c)
	wakes, err := o.Backend.Watch(ctx, c)
	return wakes, o.back(ctx, "watch", c, err)
}

func (o orderly) Identity(ctx context.Context) (string, error) {
	o.turn(ctx, "identify", backend.Claim{})
	return o.Backend.Identity(ctx)
}

// alone has clients use the keys on single nodes, before they use the quorum.
func (w *world) alone() {
	var work sync.WaitGroup
	for i, c := range w.clients {
		for j, n := range c.nodes {
			r := w.rand(fmt.Sprint("alone", i, j))
			if r.IntN(2) == 0 {
				continue
			}
			l, err := locker.New[struct{}](n, locker.Bare, c.config(r))
			if err != nil {
				panic(err)
			}
			c.alone = append(c.alone, l)
			work.Go(func() {
				for range 1 + r.IntN(3) {
					time.Sleep(fraction(r, w.ttl/50) + time.Duration(1+r.IntN(1000)))
					for _, key := range w.keys {
						g, err := l.Lock(context.Background(), key, locker.WaitLimit(w.ttl))
						if err != nil {
							continue
						}
						time.Sleep(fraction(r, w.ttl/50))
						_ = g.Unlock()
					}
				}
			})
		}
	}
	work.Wait()
}

// pair are two keys for exclusive locks that are locked by All, nil if there are none. Where All
// takes more than one request, and is not a quorum's, Go chooses which is the first.
func (w *world) pair() (pair []string) {
	if !w.kind.many && !w.kind.quorum {
		return nil
	}
	for _, key := range w.keys {
		if key[0] == 'x' {
			pair = append(pair, key)
		}
	}
	if len(pair) < 2 {
		return nil
	}
	return pair[:2]
}

// lockAll is locker.All on two keys, which are unlocked together, or one after the other.
func (c *client) lockAll(ctx context.Context, pair []string, name string, most,
	d time.Duration,
) error {
	w := c.w
	asked := time.Since(w.net.start)
	all, err := locker.All(ctx, c.locker, pair, locker.WaitLimit(most))
	if err != nil {
		return err
	}
	var holds sync.WaitGroup
	for i, key := range all.Keys() {
		g := all.Guard(key)
		unlock := g.Unlock
		if d%2 == 0 {
			unlock = func() error { return nil }
		}
		holds.Go(func() { c.use(g, name, 1, asked, d+time.Duration(i), unlock) })
	}
	holds.Wait()
	_ = all.Unlock()
	return nil
}

// powerCut restarts a majority of the nodes at once.
func (w *world) powerCut(r *rand.Rand) {
	for _, i := range r.Perm(len(w.servers))[:len(w.servers)/2+1] {
		w.servers[i].reboot(fraction(r, w.ttl/50), r.IntN(2) == 0)
	}
}

// reboot restarts a node. Without a guard it has all that it had.
func (s *server) reboot(d time.Duration, forgets bool) {
	n := s.redis.Written()
	if s.guard && (forgets || s.w.v.forgetful) {
		n = 0
	}
	s.restart(d, n)
}

// unserved is told of a Lock that failed within its time, which it may only where something is
// wrong.
func (w *world) unserved(key string, err error) {
	if w.peaceful {
		w.violate("nothing is wrong, and still Lock(%q) = %v", key, err)
	}
}
