package backendtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/internal/history"
	"github.com/holdfast-go/holdfast/locker"
)

// OneOpen has the workers of three processes open what the guards of one lock of the store at url
// protect, and close it (see [locker.Scoped]): by Unlock, by a panic, by MaxHold. Some 100 ms after
// each other processes are killed with SIGKILL, or stopped with SIGSTOP for one and a half TTLs,
// most of them while they have it open or close it. Others take the place of those killed.
//
// Three kinds of records are judged, each of which must have no two at a time:
//
//   - Of all processes: what is open counts from before it is opened until it is closed, its
//     process is killed, or the lease has ended, as far as its holder saw it renewed; whichever
//     comes first. More cannot be promised of a process that is stopped.
//   - Of one process: until it is closed, whatever has become of the lease.
//   - Of all processes, where Unlock says that all went well: until it is closed, without a look at
//     any lease. Closing may take longer than the TTL then.
//
// Whatever a process that lives has opened must be closed. The package calls [Main], as for
// [Processes].
//
// covers: G6, B11
func OneOpen(t *testing.T, url string) {
	t.Helper()
	if testing.Short() {
		t.Skip("seconds of all processors")
	}
	calibrate()
	ttl, _ := leaseFor(t, url, 400*time.Millisecond)
	m := &openMatch{
		T: t, ttl: ttl, dir: t.TempDir(),
		orders: orders{URL: url, Key: "open-" + rand.Text(), TTL: ttl, Open: true, Workers: 4},
	}
	var err error
	m.files = []string{filepath.Join(m.dir, "parent")}
	if m.rec, err = history.NewRecorder(m.files[0], "parent"); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		m.start()
	}
	const atLeast, atMost, lasting = 6, 12, 4 * time.Second
	for i, began := 0, time.Now(); i < atLeast || i < atMost && time.Since(began) < lasting; i++ {
		victim := m.running[0]
		m.opens(victim)
		time.Sleep(slower(100 * time.Millisecond))
		m.running = m.running[1:]
		switch i % 6 {
		case 0, 2: // wherever it is
			m.kill(victim)
		case 1:
			m.hold(victim, sayHoldOpen)
			m.stop(victim)
		case 3:
			m.hold(victim, sayHoldOpen)
			m.kill(victim)
		case 4:
			m.hold(victim, sayHoldClosing)
			m.stop(victim)
		case 5:
			m.hold(victim, sayHoldClosing)
			m.kill(victim)
		}
	}
	for _, p := range m.running { // closing takes longer than the lease, which is renewed
		m.hold(p, sayHoldClosing)
		time.Sleep(ttl + ttl/4)
		p.tell(t, sayGoOn)
		m.opens(p)
	}
	for _, p := range m.running {
		p.stop(t)
	}
	m.judge()
}

// What the parent says besides, and the worker answers by sayHolding.
const (
	sayHoldOpen    = "hold open"    // keep open what is opened next
	sayHoldClosing = "hold closing" // take long to close it
	sayGoOn        = "go on"        // with neither
)

// An openMatch is one run of OneOpen.
type openMatch struct {
	*testing.T
	orders  orders
	ttl     time.Duration
	dir     string
	rec     *history.Recorder
	files   []string // the parent's, and one of each process
	running []*process
	stopped int
}

func (m *openMatch) start() {
	m.Helper()
	o := m.orders
	o.Name = fmt.Sprint("p", len(m.files))
	o.History = filepath.Join(m.dir, o.Name)
	m.files = append(m.files, o.History)
	m.running = append(m.running, startWorker(m.T, o))
}

// opens waits until p has opened and closed once more.
func (m *openMatch) opens(p *process) {
	m.Helper()
	before := p.count()
	p.await(m.T, "to open and close", 4*m.ttl+5*patience, func() bool { return p.locked > before })
}

// hold has p stay where it is told to.
func (m *openMatch) hold(p *process, line string) {
	m.Helper()
	p.mu.Lock()
	p.holding = false
	p.mu.Unlock()
	p.tell(m.T, line)
	p.await(m.T, "to hold", 4*m.ttl+5*patience, func() bool { return p.holding })
}

func (m *openMatch) kill(p *process) {
	m.Helper()
	// Before the signal: from now on nothing of it counts.
	if err := m.rec.Killed(p.name); err != nil {
		m.Fatal(err)
	}
	p.kill()
	m.start()
}

// stop stops p, which has it open, for longer than its lease. Others open it meanwhile, and then p
// goes on: what it has open takes a while to be closed, and the next of its holders waits for that.
func (m *openMatch) stop(p *process) {
	m.Helper()
	err := p.freeze()
	switch {
	case errors.Is(err, errors.ErrUnsupported):
	case err != nil:
		m.Fatal(err)
	default:
		m.stopped++
		time.Sleep(m.ttl + m.ttl/2)
		m.opens(m.running[0])
		if err := p.thaw(); err != nil {
			m.Fatal(err)
		}
		time.Sleep(m.ttl / 2)
	}
	p.tell(m.T, sayGoOn)
	m.running = append(m.running, p)
}

// judge looks at what was recorded.
func (m *openMatch) judge() {
	m.Helper()
	if err := m.rec.Close(); err != nil {
		m.Fatal(err)
	}
	events, err := history.Read(m.files...)
	if err != nil {
		m.Fatal(err)
	}
	if err := history.Join(history.Check(events)); err != nil {
		m.Error(err)
	}
	opened, kept, longer, now := 0, 0, 0, history.Now()
	for _, e := range events {
		switch {
		case e.Key == m.orders.Key:
			opened++
		case e.Key == m.orders.Key+unlocked:
			kept++
			if e.End-e.Start > m.ttl {
				longer++
			}
		case strings.HasPrefix(e.Key, withinProcess) && e.End > now:
			m.Errorf("process %s ended, and did not close what it opened at %v", e.Process, e.Start)
		}
	}
	m.Logf("%d opened by %d processes, %d of them stopped; %d unlocked, %d after more than "+
		"the TTL of %v",
		opened, len(m.files)-1, m.stopped, kept, longer, m.ttl)
	if longer == 0 {
		m.Errorf("no closing that took longer than the TTL of %v kept its lease", m.ttl)
	}
}

// The keys of the records that do not end with the lease.
const (
	withinProcess = "within "   // and the process: until it is closed
	unlocked      = " unlocked" // behind the lock's key: until it is closed, if Unlock returned nil
)

// An opened is what one hold's guard protects.
type opened struct {
	*team
	ctx     context.Context // of the worker
	holds   *openHolds
	worker  string
	way     way
	closing time.Duration // how long it takes

	mu            sync.Mutex
	until         time.Duration   // the end of the lease, as far as it is known before it is opened
	lease, itself *history.Belief // nil until it is opened
	since, closed time.Duration
}

type openedKey struct{}

// A way is how a hold ends.
type way int

// Any other way is a plain Unlock.
const (
	byMaxHold way = iota
	byPanic
	ways way = 6 // so that most are plain
)

// openHolds are what the parent wants to last.
type openHolds struct{ open, closing atomic.Bool }

var errPanicked = errors.New("panicked")

// openAndClose locks, which opens and closes.
func openAndClose(o orders) error {
	c, holds := &team{orders: o}, &openHolds{}
	heard := func(line string) {
		holds.open.Store(line == sayHoldOpen)
		holds.closing.Store(line == sayHoldClosing)
	}
	scoped := locker.Scoped(openIt, (*opened).closeIt)
	bind := func(ctx context.Context, h locker.Hold) (none struct{}, err error) {
		_, err = scoped(ctx, h)
		return none, err
	}
	return c.run(bind, leaseEnds{c.TTL}, heard, func(ctx context.Context, worker string) error {
		for ctx.Err() == nil {
			r := &opened{
				team: c, ctx: ctx, holds: holds, worker: worker, way: mathrand.N(ways),
				closing: mathrand.N(2 * time.Millisecond),
			}
			err := r.use(context.WithValue(ctx, openedKey{}, r))
			switch {
			case err == nil && r.open():
				return errors.New("what a guard protects is open, and its Unlock has returned")
			case err == nil:
				if _, err := c.rec.Begin(history.Event{
					Worker: worker, Key: c.Key + unlocked,
					Start: r.since,
				}, r.closed); err != nil {
					return err
				}
			case ctx.Err() != nil:
				return nil
			case silent(err):
				continue
			case !errors.Is(err, errPanicked) && !errors.Is(err, locker.ErrLost) &&
				!errors.Is(err, locker.ErrMaxHold):
				return err
			}
			c.say(sayLocked)
		}
		return nil
	})
}

// use opens, works and closes.
func (r *opened) use(ctx context.Context) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", errPanicked, p)
		}
	}()
	var opts []locker.Option
	if r.way == byMaxHold {
		opts = append(opts, locker.MaxHold(r.TTL/16))
	}
	return locker.Do(ctx, r.locker, r.Key, func(context.Context, struct{}) error {
		r.keep(&r.holds.open)
		switch r.way {
		case byMaxHold:
			time.Sleep(r.TTL / 8) // whatever becomes of the hold: this one does not look
		case byPanic:
			panic("at work")
		}
		time.Sleep(mathrand.N(2 * time.Millisecond))
		return nil
	}, opts...)
}

// keep returns when the parent wants what is open, or is being closed, to last no longer.
func (r *opened) keep(wanted *atomic.Bool) {
	for ; r.way > byPanic && wanted.Load() && r.ctx.Err() == nil; time.Sleep(r.TTL / 20) {
		r.say(sayHolding)
	}
}

// openIt makes the records before anything else.
func openIt(ctx context.Context, h locker.Hold) (*opened, error) {
	r, ok := ctx.Value(openedKey{}).(*opened)
	if !ok {
		return nil, errors.New("the ctx of a Binder is not derived from Lock's")
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.since = history.Now()
	var err error
	if r.itself, err = r.rec.Begin(
		history.Event{Worker: r.worker, Key: withinProcess + r.Name, Start: r.since},
		r.since+time.Hour); err != nil {
		return nil, err
	}
	r.lease, err = r.rec.Begin(history.Event{
		Worker: r.worker, Key: r.Key, Token: h.Token,
		Start: r.since,
	}, r.until)
	return r, err
}

func (r *opened) closeIt() error {
	time.Sleep(r.closing)
	r.keep(&r.holds.closing)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = history.Now()
	return errors.Join(r.lease.End(0), r.itself.End(0))
}

func (r *opened) open() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.closed == 0
}

// renewed takes note of the end of the lease.
func (r *opened) renewed(until time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.until = max(r.until, until); r.lease != nil {
		_ = r.lease.Renew(r.until) // if it cannot be written, less is checked
	}
}

// leaseEnds is an Observer that tells what is open when its lease ends: the deadline of the grant,
// and a TTL, less a hundredth of it, after each renewal was sent. A renewal is told also while
// Unlock closes.
type leaseEnds struct{ ttl time.Duration }

func (o leaseEnds) Begin(ctx context.Context, op string,
	_ locker.Hold,
) (context.Context, func(locker.Hold, error)) {
	r, ok := ctx.Value(openedKey{}).(*opened)
	if op != locker.OpRenew || !ok {
		return ctx, func(locker.Hold, error) {}
	}
	sent := history.Now()
	return ctx, func(_ locker.Hold, err error) {
		if err == nil {
			r.renewed(sent + o.ttl - o.ttl/100)
		}
	}
}

func (leaseEnds) Event(ctx context.Context, e locker.Event) {
	if r, ok := ctx.Value(openedKey{}).(*opened); ok && e.Kind == locker.EventGrant {
		r.renewed(history.At(e.Lease.Until))
	}
}
