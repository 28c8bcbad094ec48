package redissim

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/internal/linear"
	"github.com/holdfast-go/holdfast/internal/redis"
	"github.com/holdfast-go/holdfast/internal/smallredis"
	"github.com/holdfast-go/holdfast/locker"
)

// A kind of world says what may happen in it.
type kind struct {
	name    string
	native  bool          // servers have SET … IFEQ, and some clients use it
	many    bool          // one request is for several keys
	servers int           // primaries
	apart   time.Duration // how far their clocks may be set apart
	moves   bool          // or slots move from one to another
	guard   bool          // and what it is for
	lag     time.Duration // of a replica that is promoted
	// how far behind the clock of a replica may be that is promoted and lacks nothing
	slower  time.Duration
	quorum  bool // the servers are nodes, three to five
	records bool // the server keeps records, as mem:// and file:// do
	dialect bool // locks are as other libraries have them, and one of those uses them too
}

var kinds = []kind{
	{name: "one", native: true, many: true, servers: 1},
	{name: "scripts", many: true, servers: 1},
	{name: "cluster", native: true, servers: 3, apart: 30 * time.Second, moves: true},
	{name: "failover", many: true, servers: 1, guard: true, lag: 500 * time.Millisecond},
	{name: "slower", native: true, servers: 1, slower: 8 * time.Second},
	{name: "record", servers: 1, records: true},
	{name: "dialect", servers: 1, dialect: true},
	{name: "quorum", native: true, quorum: true, apart: 400 * time.Millisecond},
}

// A variant is the world with a safeguard removed.
type variant struct {
	name string
	kind string

	edit     [2]string               // in the Lua
	set      func([]string) []string // of native commands
	backend  func(backend.Backend) backend.Backend
	sameLife bool   // a restarted server keeps its replication id, and a memory is open
	key      string // the only one, so that it is contended
	moves    bool   // slots move
	stops    bool   // clients stop often
	always   int    // every fault of a server is this one; 0: any
	minority bool   // clients use three of five nodes each
	// nodes have the guard, and majorities restart without what they had; memories forget
	forgetful bool
	traced    bool // the history is kept
	cover     *smallredis.Cover
}

// A world is one run of one seed.
type world struct {
	kind      kind
	v         variant
	seed      uint64
	ttl       time.Duration
	calm      time.Duration // between faults, at most
	apart     time.Duration
	retention time.Duration // of a token counter
	// how often a request is lost; and a reply; and how often one is very late
	lossy    float64
	slow     time.Duration
	stops    float64 // how often a client stops at the moment at which it would hear
	keys     []string
	servers  []*server
	clients  []*client
	net      *network
	peaceful bool // there are no faults, and holds are short
	forgets  bool // servers forget, as the clients know; what is stored is lost with them
	moves    bool // slots do
	quiet    bool // all faults are over; only the network's goroutine looks and writes
	inboxes  []*messages
	unaware  map[string]bool // tags of slots that move, or of whose move not everybody has heard
	// has something in its one slot when somebody has begun to hold for long
	held  chan struct{}
	lines []string

	mu      sync.Mutex
	found   []string
	events  []history.Event
	calls   []linear.Call // of what is stored
	runs    []jobRun
	late    sync.WaitGroup // of writes that come late
	holds   int
	natives int // commands without a script that wrote
	many    int // requests for several keys that were executed
}

func (w *world) violate(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.found = append(w.found, fmt.Sprintf("after %v: ", time.Since(w.net.start))+fmt.Sprintf(format,
		args...))
}

// rand returns the random numbers of one actor.
func (w *world) rand(actor string) *rand.Rand { return rand.New(rand.NewPCG(w.seed, hash(actor))) }

const (
	rounds  = 6 // of each worker
	limit   = 3 // of permits
	readers = 1000
	workers = 2
)

// all keys; the first letter says what for: exclusive, shared, permits, re-entrant, a value.
var all = []string{"x1", "x2", "x3", "s1", "p1", "r1", "v1"}

// run simulates a seed.
func run(t *testing.T, k kind, seed uint64, v variant) (w *world) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w = newWorld(k, seed, v)
		w.run()
	})
	w.linear()
	return w
}

func newWorld(k kind, seed uint64, v variant) *world {
	w := &world{kind: k, v: v, seed: seed, ttl: 2 * time.Second, held: make(chan struct{}, 1)}
	r := w.rand("world")
	// To a time whose microseconds have 16 digits, as the short ways of the scripts take it; and
	// what the code under test draws follows from the time.
	time.Sleep(9600*24*time.Hour + fraction(r, 24*time.Hour))
	w.net = newNetwork(seed)
	if v.traced {
		w.net.log = func(line string) { w.lines = append(w.lines, line) }
	}
	w.calm = w.ttl/2 + fraction(r, 6*w.ttl)
	w.lossy = 0.03 * r.Float64() * float64(r.IntN(2))
	w.slow = 20*time.Microsecond + fraction(r, []time.Duration{
		100 * time.Microsecond, 3 * time.Millisecond, 30 * time.Millisecond, 300 * time.Millisecond,
	}[r.IntN(4)])
	w.retention = []time.Duration{15 * time.Second, w.ttl / 2}[r.IntN(2)]
	w.stops = 0.05 * r.Float64() * float64(r.IntN(2))
	if v.stops {
		w.stops = 0.1
	}
	if v.always == stepBack && !k.guard {
		w.calm = w.ttl / 10
	}
	w.forgets = k.guard || k.records && (r.IntN(2) == 0 || v.forgetful)
	w.apart = w.ttl / 20
	if k.apart > 0 && r.IntN(4) > 0 {
		w.apart = k.apart
	}
	if k.moves && (r.IntN(2) == 0 || v.moves) {
		w.apart, w.moves, w.unaware = w.ttl/20, true, map[string]bool{}
	}
	servers, keys := k.servers, all
	if k.dialect {
		keys = all[:3]
	}
	if k.quorum {
		servers, keys = 3+r.IntN(3), all[:3] // a majority can decide of exclusive claims
		if v.minority {
			servers = 5
		}
		if w.peaceful = v.name == "" && r.IntN(3) == 0; w.peaceful {
			w.lossy, w.stops, w.slow = 0, 0, min(w.slow, 3*time.Millisecond)
		}
	}
	for i := range servers {
		w.servers = append(w.servers, newServer(w, i, r))
	}
	for _, i := range r.Perm(len(keys))[:1+r.IntN(3)] {
		w.keys = append(w.keys, keys[i])
	}
	if v.key != "" {
		w.keys = []string{v.key}
	}
	for i := range 2 + r.IntN(3) {
		w.clients = append(w.clients, newClient(w, i))
	}
	return w
}

// delay draws how long something is under way: now and then much longer than mostly.
func (w *world) delay(r *rand.Rand) time.Duration {
	if w.quiet {
		return 50*time.Microsecond + fraction(r, time.Millisecond)
	}
	d := w.slow/2 + fraction(r, w.slow)
	if r.IntN(50) == 0 && !w.peaceful {
		d = min(20*d, w.ttl) // tombstones outlast it
	}
	return d
}

// publish sends a message to all who subscribe to what that server publishes.
func (w *world) publish(from *server, channel, payload string) (n int) {
	for _, m := range w.inboxes {
		if !m.dead && slices.Contains(m.l.to, from) && slices.Contains(m.channels, channel) {
			n++
			m.send(redis.Message{Kind: redis.Published, Channel: channel, Payload: payload})
		}
	}
	return n
}

// cut ends the connections for messages of a server.
func (w *world) cut(s *server) {
	for _, m := range w.inboxes {
		if m.s == s {
			m.breakIt()
		}
	}
	w.inboxes = slices.DeleteFunc(w.inboxes, func(m *messages) bool { return m.s == s })
}

// run lets everybody work under faults, then ends the faults and sees that everything goes on.
func (w *world) run() {
	ctx, calm := context.WithCancel(context.Background())
	var chaos, work sync.WaitGroup
	if w.kind.quorum {
		w.alone()
	}
	for i, s := range w.servers {
		if !w.peaceful {
			chaos.Go(func() { s.faults(ctx, w.rand(fmt.Sprint("server", i))) })
		}
	}
	for i, c := range w.clients {
		if !w.peaceful {
			chaos.Go(func() { c.pauses(ctx, w.rand(fmt.Sprint("pauses", i))) })
		}
		for j := range workers {
			work.Go(func() {
				c.work(fmt.Sprintf("%d.%d", i, j), w.rand(fmt.Sprint("worker", i, j)))
			})
		}
		if w.kind.dialect && i == 0 {
			work.Go(func() { c.peer("peer", w.rand("peer")) })
		}
	}
	work.Wait()
	calm()
	chaos.Wait()
	w.inNet("the end of all faults", func() {
		w.quiet = true
		for _, s := range w.servers {
			s.redis.Full, s.paused, s.before = false, time.Time{}, nil
		}
	})
	time.Sleep(3 * w.ttl) // until nobody is paused any more, and every late request has come
	w.goesOn()
	w.late.Wait()
	for _, c := range w.clients {
		c.close()
	}
	w.nothingLeft()
	w.judge()
	w.net.close()
}

// inNet has the network's goroutine call f.
func (w *world) inNet(what string, f func()) {
	done := make(chan struct{})
	w.net.submit(what, "", "", func(*rand.Rand) {
		w.net.at(time.Now(), func() { f(); close(done) })
	})
	<-done
}

// goesOn sees that with all faults over everybody gets every key in time.
func (w *world) goesOn() {
	most := 8*w.ttl + 3*w.kind.slower // a lease that was counted by the faster clock lasts longer
	if w.kind.guard || w.kind.quorum {
		most += 2*w.ttl + w.kind.lag + 3*time.Second
	}
	for _, c := range w.clients {
		if pair := w.pair(); pair != nil && w.kind.quorum {
			if err := c.lockAll(context.Background(), pair, fmt.Sprintf("%d.end", c.index), most,
				0); err != nil {
				w.violate("all faults are over, and still All of client %d = %v", c.index, err)
			}
		}
		for _, key := range w.keys {
			opts, weight := c.options(key, w.rand("end"))
			asked := time.Since(w.net.start)
			g, err := c.locker.Lock(context.Background(), key,
				append(opts, locker.WaitLimit(most))...)
			if err != nil {
				w.violate("all faults are over for %v, and still Lock(%q) of client %d = %v", most,
					key, c.index, err)
				continue
			}
			c.hold(g, fmt.Sprintf("%d.end", c.index), weight, asked, 0)
		}
	}
}

// nothingLeft sees that nobody holds or waits in any server, all clients being closed.
func (w *world) nothingLeft() {
	c := newClient(w, 100)
	defer c.close()
	for _, key := range w.keys {
		var left []backend.State
		for _, n := range c.nodes {
			state, err := n.Inspect(context.Background(), key)
			for err != nil { // no answer in time
				state, err = n.Inspect(context.Background(), key)
			}
			if len(state.Holders) > 0 || len(state.Waiters) > 0 {
				left = append(left, state)
			}
		}
		// A quorum that is closed leaves what it owes to nodes that had failed shortly before.
		if len(left) > (len(c.nodes)-1)/2 {
			w.violate("all clients are closed, and %q has %+v", key, left)
		}
	}
	for _, key := range w.keys {
		if key[0] == 'v' {
			began := time.Since(w.net.start)
			v, _, err := c.values.Get(context.Background(), key)
			for err != nil {
				v, _, err = c.values.Get(context.Background(), key)
			}
			w.called(linear.Op{Verb: linear.Read, Key: key, Value: v}, began, nil)
		}
	}
}

// hold records a belief that lasts for d, or until it is lost.
func (c *client) hold(g *locker.Guard[struct{}], worker string, weight int, asked,
	d time.Duration,
) {
	c.use(g, worker, weight, asked, d, g.Unlock)
}

// use is hold with another end.
func (c *client) use(g *locker.Guard[struct{}], worker string, weight int, asked, d time.Duration,
	unlock func() error,
) {
	w, h := c.w, g.Hold()
	e := history.Event{
		Worker: worker, Key: h.Key, Token: h.Token, Asked: asked,
		Start: time.Since(w.net.start), Weight: weight,
	}
	if h.Key[0] == 'r' {
		e.Worker = c.owner()
	}
	if d > w.ttl/4 {
		select {
		case w.held <- struct{}{}:
		default:
		}
	}
	c.fenced(h.Key, h.Token)
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-g.Lost():
	}
	e.End = min(time.Since(w.net.start), g.Until().Sub(w.net.start))
	_ = unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.events = append(w.events, e)
	w.holds++
}

// capacity is how many may hold a key together.
func capacity(key string) int {
	switch key[0] {
	case 's':
		return readers
	case 'p':
		return limit
	}
	return 1
}

// owned makes one event of those of one re-entrant owner that have one token: who holds again while
// it holds has the token of the first, and others are kept out until the last has ended.
func owned(events []history.Event) (all []history.Event) {
	type ownership struct {
		key, owner string
		token      uint64
	}
	first := map[ownership]int{}
	slices.SortStableFunc(events, func(a, b history.Event) int {
		return cmp.Compare(a.Start, b.Start)
	})
	for _, e := range events {
		o := ownership{e.Key, e.Worker, e.Token}
		i, known := first[o]
		if e.Key[0] != 'r' || !known {
			first[o] = len(all)
			all = append(all, e)
			continue
		}
		all[i].End = max(all[i].End, e.End)
	}
	return all
}

// A jobRun is a run of a job that is to be done once in a time.
type jobRun struct {
	key   string
	began time.Duration
	every time.Duration // what is to lie between it and those before
	noted bool          // so that it keeps others from running it
}

// judgeRuns looks at whether a job that was noted to have run was run again too soon. The time is
// the server's, whose clock may be a hundredth quicker.
func (w *world) judgeRuns() {
	if w.forgets {
		return
	}
	slices.SortFunc(w.runs, func(a, b jobRun) int { return cmp.Compare(a.began, b.began) })
	for i, a := range w.runs {
		for _, b := range w.runs[i+1:] {
			if a.noted && a.key == b.key && b.began-a.began < b.every-b.every/50-time.Millisecond {
				w.violate("the job of %q ran at %v, and again at %v by a call of once in %v", a.key,
					a.began, b.began, b.every)
			}
		}
	}
}

// judge looks at all holds.
func (w *world) judge() {
	w.events = owned(w.events)
	w.judgeRuns()
	by := map[string][]history.Event{}
	for _, e := range w.events {
		by[e.Key] = append(by[e.Key], e)
	}
	for _, key := range w.keys {
		if err := history.Join(history.CheckCapacity(by[key], capacity(key))); err != nil {
			w.violate("%v", err)
		}
	}
	slices.Sort(w.found)
}

var discard = slog.New(slog.NewTextHandler(io.Discard, nil))

// history is what happened, for a seed that is repeated.
func (w *world) history() string { return strings.Join(w.lines, "\n") }
