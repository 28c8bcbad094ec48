// Package membackend keeps locks in this process's memory: mem:// in a URL. It is the embedded
// default that needs nothing installed, the reference for other backends, and the test double:
// inside a testing/synctest bubble an hour's lease takes no time.
//
// It excludes goroutines of one process from each other, and nothing else. Its clock is the
// process's monotonic clock, so neither clock steps nor drift can end a lease early. What it holds
// dies with the process.
package membackend

import (
	"context"
	"iter"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/backend/record"
	"github.com/holdfast-go/holdfast/waiting"
)

func init() { backend.Register("mem", open) }

// A store is what its clients share: a record for each key. Every verb is one critical section of
// mu, which makes it atomic.
type store struct {
	hub waiting.Hub[backend.Wake]
	// who holds, by key; see Observe. The end of a lease is not signalled
	changes waiting.Hub[struct{}]
	id      string        // of this memory: another store has another, also if it follows this one
	opens   time.Time     // nothing is granted before
	grace   time.Duration // Config.Quarantine

	mu      sync.Mutex
	records map[string]*record.Record // by key; one that is not there is free, and nobody waits
	floor   uint64                    // the last token of all records that were forgotten
	// of any key; while there are none nobody is told of changes
	observers int
}

// Backend is one client of a store in memory.
type Backend struct {
	backend.Base
	store   *store
	closed  atomic.Bool
	name    string // by which the store was opened
	counted bool   // among the clients of what name stands for
}

var _ backend.Backend = (*Backend)(nil)

// New returns the first client of a new store.
func New() *Backend { return NewWith(Config{}) }

// A Config makes a store behave like one on a server of its own. The zero Config is what New has.
type Config struct {
	// Quarantine is how long the store grants nothing, from now on, as a server that lost its
	// memory does: holds that it cannot know of must run out first. A claim with a longer TTL is an
	// *[backend.InvalidError], because its hold would outlast the quarantine of a store that
	// follows this one.
	Quarantine time.Duration
}

// NewWith is New with a Config.
func NewWith(cfg Config) *Backend {
	s := &store{id: backend.NewOwner(), grace: cfg.Quarantine, records: map[string]*record.Record{}}
	if s.grace > 0 {
		s.opens = time.Now().Add(s.grace)
	}
	return &Backend{store: s}
}

// Client returns another client of b's store, as a second process would be on a real one. Closing
// either leaves the other.
func (b *Backend) Client() *Backend {
	named.Lock()
	defer named.Unlock()
	return join(b.store, b.name) // safeguard: mem-each-client
}

// Capabilities says what a store in one process can do soundly.
func (b *Backend) Capabilities() backend.Capabilities { return capabilities }

var capabilities = func() backend.Capabilities {
	caps := record.Capabilities
	caps.Name = "mem"
	return caps
}()

// TryAcquire implements [backend.Backend].
func (b *Backend) TryAcquire(ctx context.Context, c backend.Claim) (backend.Grant, error) {
	if err := c.Validate(capabilities); err != nil {
		return backend.Grant{}, err
	}
	if err := b.ready(ctx); err != nil {
		return backend.Grant{}, err
	}
	s := b.store
	if s.grace > 0 && c.TTL > s.grace {
		return backend.Grant{}, s.outlasted(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r := s.at(c.Key, now)
	defer s.done(c.Key, r, now)
	// Until the holds that an earlier memory may have had are over. There is nothing in this one
	// before, so there is nothing to repeat or to hand over either.
	if now.Before(s.opens) { // safeguard: mem-quarantine
		return backend.Grant{}, &backend.QuarantineError{
			RetryAfter: s.opens.Sub(now),
			Why:        "restarted",
		}
	}
	return r.Acquire(c, now)
}

// outlasted refuses a claim whose hold would outlast the quarantine of a store that follows this
// one.
func (s *store) outlasted(c backend.Claim) error {
	reason := "is over the store's quarantine of " + s.grace.String()
	return &backend.InvalidError{Field: "ttl", Value: c.TTL.String(), Reason: reason}
}

// Renew implements [backend.Backend].
func (b *Backend) Renew(ctx context.Context, c backend.Claim) error {
	if err := c.Validate(capabilities); err != nil {
		return err
	}
	if err := b.ready(ctx); err != nil {
		return err
	}
	s := b.store
	if s.grace > 0 && c.TTL > s.grace {
		return s.outlasted(c)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r := s.at(c.Key, now)
	defer s.done(c.Key, r, now)
	return r.Renew(c, now)
}

// Release implements [backend.Backend].
func (b *Backend) Release(ctx context.Context, c backend.Claim) (backend.Released, error) {
	if err := c.ValidateRelease(capabilities); err != nil {
		return backend.Released{}, err
	}
	if err := b.ready(ctx); err != nil {
		return backend.Released{}, err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	r := s.at(c.Key, now)
	defer s.done(c.Key, r, now)
	return r.Release(c, now)
}

// Heartbeat implements [backend.Backend].
func (b *Backend) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if err := backend.ValidateHeartbeat(claims, capabilities); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	answers := make([]error, len(claims))
	b.store.together(claims, backend.ByKey(claims), answers, (*record.Record).Heartbeat)
	return answers, nil
}

// ReleaseAll implements [backend.Backend].
func (b *Backend) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	groups, answers, err := backend.ValidateReleaseAll(claims, capabilities)
	if err == nil {
		err = b.ready(ctx)
	}
	if err != nil {
		return nil, err
	}
	b.store.together(claims, groups, answers, (*record.Record).ReleaseAll)
	return answers, nil
}

// together makes one verb about the claims of each key.
func (s *store) together(
	claims []backend.Claim, groups [][]int, answers []error,
	verb func(*record.Record, []backend.Claim, time.Time) []error,
) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	backend.Together(claims, groups, answers, func(some []backend.Claim) ([]error, error) {
		r := s.at(some[0].Key, now)
		defer s.done(some[0].Key, r, now)
		return verb(r, some, now), nil
	})
}

// Watch implements [backend.Backend]. Releases signal, and grants to claims that are queued. A
// lease that runs out does not, see HeldError.RetryAfter.
func (b *Backend) Watch(ctx context.Context, c backend.Claim) (<-chan backend.Wake, error) {
	if err := backend.ValidateKey(c.Key); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	return b.store.hub.Watch(ctx, record.Topic(c)), nil
}

// Inspect implements [backend.Backend].
func (b *Backend) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := backend.ValidateKey(key); err != nil {
		return backend.State{}, err
	}
	if err := b.ready(ctx); err != nil {
		return backend.State{}, err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[key]; r != nil {
		return r.Inspect(time.Now()), nil
	}
	return backend.State{}, nil
}

// Observe implements [backend.Backend]. A hold has to last for as long as a goroutine takes to be
// woken, to be seen.
func (b *Backend) Observe(ctx context.Context, key string) iter.Seq2[backend.State, error] {
	return func(yield func(backend.State, error) bool) {
		changed, leave := b.store.changes.Enter(key)
		b.store.count(1)
		defer func() {
			leave()
			b.store.count(-1)
		}()
		look := func(ctx context.Context) (backend.State, error) { return b.Inspect(ctx, key) }
		backend.ObserveBy(ctx, backend.SlowLook, changed, look, yield)
	}
}

func (s *store) count(observers int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.observers += observers
}

// List implements [backend.Backend].
func (b *Backend) List(ctx context.Context, prefix string) iter.Seq2[backend.Listed, error] {
	return func(yield func(backend.Listed, error) bool) {
		if err := b.ready(ctx); err != nil {
			yield(backend.Listed{}, err)
			return
		}
		for _, l := range b.store.list(prefix) {
			if !yield(l, nil) {
				return
			}
		}
	}
}

func (s *store) list(prefix string) (all []backend.Listed) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	for key, r := range s.records {
		if !strings.HasPrefix(key, prefix) {
			continue
		}
		if state := r.Inspect(now); state.Holders != nil || state.Waiters != nil {
			all = append(all, backend.Listed{Key: key, State: state})
		}
	}
	return all
}

// ForceRelease implements [backend.Backend].
func (b *Backend) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, b, key, token)
}

// Saved implements [backend.Backend].
func (b *Backend) Saved(ctx context.Context, key string) ([]byte, error) {
	if err := backend.ValidateKey(key); err != nil {
		return nil, err
	}
	if err := b.ready(ctx); err != nil {
		return nil, err
	}
	s := b.store
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.records[key]; r != nil {
		return slices.Clone(r.Saved), nil
	}
	return nil, nil
}

// looks is how many records a verb looks at in passing. A verb adds one at most, so what is left
// behind by keys that nobody asks for again stays in proportion to what is alive.
const looks = 2

// at returns key's record, after a look at others, in the order of a map, which is random. The
// caller has mu, and ends with done.
func (s *store) at(key string, now time.Time) *record.Record {
	looked := 0
	for other, r := range s.records {
		if r.Trim(now) {
			s.forget(other, r)
		}
		if looked++; looked == looks {
			break
		}
	}
	r := s.records[key]
	if r == nil {
		r = &record.Record{Token: s.floor}
		s.records[key] = r
	}
	return r
}

// done tells what a verb has changed in key's record, only now that it is made: a waiter that was
// woken before would find the key held and sleep again. It forgets the record if nothing is left.
// The caller has mu.
func (s *store) done(key string, r *record.Record, now time.Time) {
	if r.NewHolders && s.observers > 0 {
		s.changes.Wake(key, struct{}{})
	}
	if r.NewSignals {
		r.Signal(&s.hub, key)
	}
	r.NewHolders, r.NewSignals = false, false
	if len(r.Holds)+len(r.Queue)+len(r.Tombs) == 0 && r.Trim(now) {
		s.forget(key, r)
	}
}

// forget deletes a record. Its last token is below the next of any key.
func (s *store) forget(key string, r *record.Record) {
	s.floor = max(s.floor, r.Token) // safeguard: mem-floor
	delete(s.records, key)
}

// Close implements [backend.Backend]. Leases that this client holds run out by themselves.
func (b *Backend) Close() error {
	if b.closed.CompareAndSwap(false, true) && b.counted { // safeguard: mem-closed-once
		leave(b.name)
	}
	return nil
}

// Identity implements [backend.Backend]: clients of one store have the same.
func (b *Backend) Identity(ctx context.Context) (string, error) { return b.store.id, b.ready(ctx) }

// Diagnose implements [backend.Backend].
func (b *Backend) Diagnose(ctx context.Context) ([]backend.Finding, error) {
	return []backend.Finding{{
		Check: "processes", Level: backend.Warn,
		Text: "locks are in the memory of one process, and keep no other process out",
		Change: "nothing, for tests and for one process; else name file:///DIR for those of one " +
			"machine, or a server",
	}}, b.ready(ctx)
}

func (b *Backend) ready(ctx context.Context) error {
	if b.closed.Load() {
		return backend.ErrClosed
	}
	return ctx.Err()
}

// named are the stores that were opened by URL, with the number of their clients: mem://a twice is
// one store.
var named struct {
	sync.Mutex
	stores  map[string]*store
	clients map[string]int
}

// open serves mem://NAME. All who open one NAME in a process, the empty one included, share a
// store, as they would on a server; it goes with its last client.
func open(_ context.Context, u *url.URL) (backend.Backend, error) {
	if u.User != nil || u.RawQuery != "" || u.Fragment != "" || (u.Path != "" && u.Path != "/") {
		return nil, &backend.InvalidError{
			Field:  "url",
			Reason: "mem:// takes a name and nothing else, as in mem://shop",
		}
	}
	name := u.Host
	named.Lock()
	defer named.Unlock()
	if named.stores[name] == nil {
		if named.stores == nil {
			named.stores, named.clients = map[string]*store{}, map[string]int{}
		}
		named.stores[name] = New().store
	}
	return join(named.stores[name], name), nil
}

// join returns a client of s, and counts it if s is what name stands for. The caller has named's
// lock.
func join(s *store, name string) *Backend {
	counted := named.stores[name] == s
	if counted {
		named.clients[name]++
	}
	return &Backend{store: s, name: name, counted: counted}
}

// leave is for the Close of each client that is counted.
func leave(name string) {
	named.Lock()
	defer named.Unlock()
	if named.clients[name]--; named.clients[name] == 0 {
		delete(named.stores, name)
		delete(named.clients, name)
	}
}
