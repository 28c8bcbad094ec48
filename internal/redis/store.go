// Package redis is what the Redis backends have in common beyond the scripts of package script:
// the verbs, the look at the server, what an error means, who watches what, and what a URL may
// say. It imports no client: what a client library does for it is [Transport] and [Messages].
//
// A verb is three steps: make the request from the claim, send it ([Transport]), read the reply or
// classify the error ([Store.Failure]).
package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// A Request is a script to run.
type Request struct {
	script.Request
	Replicas int // that must have what the script wrote before there is an answer; 0 waits for none
}

// A Transport is a client library at work. Its methods may be called concurrently.
type Transport interface {
	// Run executes the script by its SHA1, and by its Source when the server does not know it. It
	// returns when ctx is done or Config.RequestTimeout has passed, whatever is on the wire, and
	// never sends anything twice that the server may have executed. With Request.Replicas it then
	// waits on the same connection, for half of RequestTimeout at most, and returns how many have
	// it.
	Run(ctx context.Context, r Request) (reply any, replicas int, err error)

	// Set executes SET key args, and reports whether the server wrote. It is bounded as Run is, and
	// sends nothing twice.
	Set(ctx context.Context, key string, args ...string) (wrote bool, err error)

	// Info returns the reply to INFO section of every primary. It is bounded as Run is.
	Info(ctx context.Context, section string) ([]string, error)

	// Scan calls page with the keys of each primary that match pattern, some at a time, until it
	// returns false. Each request is bounded as Run is, and none is in flight while page runs, or
	// after it has returned false.
	Scan(ctx context.Context, pattern string, page func(keys []string) bool) error

	// Check tries what the library sends besides, when the server is looked at for the first time.
	// It is bounded as Run is.
	Check(ctx context.Context) error

	// Messages returns a connection for pub/sub, which need not be there yet. It ends with ctx.
	Messages(ctx context.Context) Messages

	// Track makes a connection of its own to the primary of a key in Redis, on which the server is
	// to tell of changes (CLIENT TRACKING ON BCAST PREFIX key, by RESP3), and calls changed when it
	// is made and for each change that the server tells of. It returns when ctx is done, and
	// with an error when the connection is not made within Config.RequestTimeout, is lost, answers
	// no ping, or leads to a server that is not the key's primary any more, as far as is known.
	Track(ctx context.Context, key string, changed func()) error

	// Explain says what an error of this library means.
	Explain(err error) Failure
}

// A Store is what a backend is made of, on a Transport. It is a [backend.Backend] itself: a backend
// has those verbs of it that need no more.
type Store struct {
	backend.Base
	Layout  script.Layout
	Secrets []string // passwords, which are in no error

	t       Transport
	cfg     Config
	caps    backend.Capabilities
	waiters *Subscription
	cluster bool // see OnCluster
	single  bool // see OnOneServer
	// see Counts; and requests without an answer, as then a connection may be lost
	dials *atomic.Uint64
	// dials has all, so while it stays, a server that answers is the one that did before
	one       bool
	checked   atomic.Bool // the server was found fit, see Check
	noPublish atomic.Bool // the user may not publish: nobody would be woken
	native    native

	mu       sync.RWMutex // guards closed, and inFlight.Add from zero against inFlight.Wait
	closed   bool
	inFlight sync.WaitGroup
}

// New checks cfg, puts defaults into it, and returns a Store that has no Transport yet. name is the
// backend's plain scheme, for errors. The error is a *[backend.InvalidError].
func New(cfg *Config, name string) (*Store, error) {
	layout, err := cfg.layout()
	if err != nil {
		return nil, err
	}
	s := &Store{
		cfg: *cfg, caps: cfg.capabilities(name), Layout: layout.For(backend.NewOwner()),
		dials: new(atomic.Uint64),
	}
	s.waiters = newSubscription(s)
	return s, nil
}

// Use sets the Transport, before the first verb.
func (s *Store) Use(t Transport) { s.t = t }

// Counts says that dials counts the connections, each when it has been made and before anything is
// sent on it. It is called before the first verb, or never.
func (s *Store) Counts(dials *atomic.Uint64) { s.dials, s.one = dials, true }

// ClusterInFlight is how many requests of a cluster's client are in flight; more wait for one of
// them. They are so many that those for a primary that is silent leave room for the others': a
// client has connections to each, and requests for one of them wait there.
const ClusterInFlight = 1 << 14

// OnCluster says that the servers are a cluster, before the first verb. It returns an
// *[backend.InvalidError] if the Config asks for what a cluster cannot have.
func (s *Store) OnCluster() error {
	s.cluster = true
	return s.cfg.RefuseCluster()
}

// OnOneServer says that all keys are on one server, whichever that is at the time, before the first
// verb. A client of which that is not known may route each request by its first key.
func (s *Store) OnOneServer() { s.single = true }

// Capabilities are all there are; in the string dialect exclusive locks, without a queue.
func (s *Store) Capabilities() backend.Capabilities { return s.caps }

// TryAcquire is that of [backend.Backend]. The first one checks the server.
func (s *Store) TryAcquire(ctx context.Context, c backend.Claim) (g backend.Grant, err error) {
	if err = s.validate(&c); err == nil && !s.checked.Load() {
		err = s.Check(ctx)
	}
	if err != nil {
		return g, err
	}
	layout := s.Layout
	if !c.Queue && s.waiters.watches(c.Key) {
		layout = layout.Watched()
	}
	r := layout.Acquire(c)
	if s.native.on.Load() {
		return s.acquireNative(ctx, &c, r)
	}
	reply, replicas, err := s.run(ctx, r, s.cfg.Replicas)
	if err != nil {
		return g, err
	}
	if g, err = script.DecodeAcquire(reply, c); err == nil && replicas < s.cfg.Replicas {
		return backend.Grant{}, s.lacksReplicas(replicas)
	}
	return g, err
}

// TryAcquireAll is that of [backend.Backend], in one script. In the string dialect, and where not
// all keys are known to be on one server, it is not supported.
//
// Safety: as of an attempt for each claim, of which nothing is repeated. What this client knows of
// a lock is forgotten before it is about to be another.
func (s *Store) TryAcquireAll(ctx context.Context,
	claims []backend.Claim,
) ([]backend.Grant, error) {
	if s.cfg.Dialect != "" || !s.single { // safeguard: try-all-one-server
		return s.Base.TryAcquireAll(ctx, claims)
	}
	if len(claims) == 0 {
		return nil, nil
	}
	err := backend.ValidateTryAcquireAll(claims, s.caps)
	for i := 0; i < len(claims) && err == nil; i++ {
		err = s.validate(&claims[i])
	}
	if err == nil && !s.checked.Load() { // safeguard: try-all-checked
		err = s.Check(ctx)
	}
	if err != nil {
		return nil, err
	}
	s.forget(claims)
	reply, replicas, err := s.run(ctx, s.Layout.TryAcquireAll(claims), s.cfg.Replicas)
	if err != nil {
		return nil, err
	}
	grants, err := script.DecodeTryAcquireAll(reply, claims)
	if err == nil && len(grants) > 0 && replicas < s.cfg.Replicas { // safeguard: replicas-try-all
		return nil, s.lacksReplicas(replicas)
	}
	return grants, err
}

// forget forgets what is known of the locks of claims, whose values are about to be others.
func (s *Store) forget(claims []backend.Claim) {
	if !s.native.on.Load() {
		return
	}
	for i := range claims {
		s.native.take(s.Layout.Key(claims[i].Key), s.Layout.OwnerID(claims[i]))
	}
}

// Renew is that of [backend.Backend].
func (s *Store) Renew(ctx context.Context, c backend.Claim) error {
	if err := s.validate(&c); err != nil {
		return err
	}
	reply, replicas, err := s.run(ctx, s.Layout.Renew(c), s.cfg.Replicas)
	if err != nil {
		return err
	}
	// safeguard: replicas-renewal
	if err = script.DecodeRenew(reply); err == nil && replicas < s.cfg.Replicas {
		return s.lacksReplicas(replicas)
	}
	return err
}

// Release is that of [backend.Backend].
func (s *Store) Release(ctx context.Context, c backend.Claim) (told backend.Released, err error) {
	if err = c.ValidateRelease(s.caps); err == nil && s.cfg.Dialect != "" {
		err = s.Layout.CheckKey(c.Key, s.cluster)
	}
	if err != nil {
		return told, err
	}
	if s.native.on.Load() {
		if done, err := s.releaseNative(ctx, &c); done {
			return told, err
		}
	}
	acknowledge := 0
	if c.Save != nil { // a state is kept as well as a grant is
		acknowledge = s.cfg.Replicas
	}
	reply, replicas, err := s.run(ctx, s.Layout.Release(c), acknowledge)
	if err != nil {
		return told, err
	}
	// safeguard: replicas-save
	if told, err = script.DecodeRelease(reply); err == nil && replicas < acknowledge {
		return backend.Released{}, s.lacksReplicas(replicas)
	}
	return told, err
}

// TryReleaseAll is that of [backend.Backend], in one script, and supported where TryAcquireAll is.
//
// Safety: as of a release alone. The script compares each claim's id, so none of another's is
// ended.
func (s *Store) TryReleaseAll(ctx context.Context, claims []backend.Claim) ([]bool, error) {
	if s.cfg.Dialect != "" || !s.single {
		return s.Base.TryReleaseAll(ctx, claims)
	}
	if err := backend.ValidateTryReleaseAll(claims, s.caps); err != nil || len(claims) == 0 {
		return nil, err
	}
	s.forget(claims)
	reply, _, err := s.run(ctx, s.Layout.TryReleaseAll(claims), 0)
	if err != nil {
		return nil, err
	}
	return script.DecodeTryReleaseAll(reply, len(claims))
}

// ReleaseAll is that of [backend.Backend]; in the string dialect it is not supported. One script
// releases the claims of a lock, except for those that leave something.
func (s *Store) ReleaseAll(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if s.cfg.Dialect != "" { // safeguard: dialect-release-all
		return s.Base.ReleaseAll(ctx, claims)
	}
	locks, answers, err := backend.ValidateReleaseAll(claims, s.caps)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return nil, err
	}
	var requests sync.WaitGroup
	for _, lock := range locks {
		together := lock[:0:0]
		for _, i := range lock {
			// safeguard: releaseall-leaves
			if c := &claims[i]; len(lock) > 1 && c.Save == nil && c.NotBefore == 0 &&
				len(c.Before) == 0 {
				together = append(together, i)
			} else {
				requests.Go(func() { _, answers[i] = s.Release(ctx, *c) })
			}
		}
		if len(together) > 0 {
			requests.Go(func() {
				backend.Together(claims, [][]int{together}, answers,
					func(some []backend.Claim) ([]error, error) {
						return s.releaseTogether(ctx, some)
					})
			})
		}
	}
	requests.Wait()
	return answers, nil
}

// releaseTogether releases claims of one lock, in one step.
//
// Safety: as of a release alone. The script compares each claim's id, so none of another's is
// ended.
func (s *Store) releaseTogether(ctx context.Context, lock []backend.Claim) ([]error, error) {
	s.forget(lock)
	reply, _, err := s.run(ctx, s.Layout.ReleaseAll(lock), 0)
	if err != nil {
		return nil, err
	}
	return script.DecodeReleaseAll(reply, len(lock))
}

// Saved reads key's stored state from the primary.
func (s *Store) Saved(ctx context.Context, key string) ([]byte, error) {
	if !s.caps.State {
		return s.Base.Saved(ctx, key)
	}
	if err := backend.ValidateKey(key); err != nil {
		return nil, err
	}
	reply, _, err := s.run(ctx,
		script.Request{Script: script.Saved, Keys: []string{s.Layout.StateKey(key)}}, 0)
	if err != nil {
		return nil, err
	}
	return script.DecodeSaved(reply)
}

// maxLocks is how many locks one heartbeat script looks after: it holds up everybody else's
// requests for less than a millisecond.
const maxLocks = 64

// Heartbeat is that of [backend.Backend]; in the string dialect, which has no queue, it is not
// supported. One script looks after several locks, where they are all known to be on one server: in
// a cluster a script is about one slot.
func (s *Store) Heartbeat(ctx context.Context, claims []backend.Claim) ([]error, error) {
	if !s.caps.Queue {
		return s.Base.Heartbeat(ctx, claims)
	}
	if err := backend.ValidateHeartbeat(claims, s.caps); err != nil {
		return nil, err
	}
	for i := range claims {
		if err := s.validate(&claims[i]); err != nil {
			return nil, err
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	locks := maxLocks
	if !s.single { // safeguard: heartbeat-one-server
		locks = 1
	}
	answers := make([]error, len(claims))
	var requests sync.WaitGroup
	for some := range slices.Chunk(backend.ByKey(claims), locks) {
		requests.Go(func() { s.heartbeat(ctx, claims, some, answers) })
	}
	requests.Wait()
	return answers, nil
}

// heartbeat asks for the claims of some locks, by their indices, together. The locks about which
// that tells nothing it asks about alone.
func (s *Store) heartbeat(ctx context.Context, claims []backend.Claim, locks [][]int,
	answers []error,
) {
	of, counts := make([][]backend.Claim, len(locks)), make([]int, len(locks))
	for n, lock := range locks {
		counts[n] = len(lock)
		for _, i := range lock {
			of[n] = append(of[n], claims[i])
		}
	}
	reply, _, err := s.run(ctx, s.Layout.Heartbeat(of...), 0)
	var got [][]error
	if err == nil {
		got, err = script.DecodeHeartbeat(reply, counts...)
	}
	var alone sync.WaitGroup
	for n, lock := range locks {
		if err == nil && got[n] == nil {
			alone.Go(func() { s.heartbeat(ctx, claims, locks[n:n+1], answers) })
			continue
		}
		for k, i := range lock {
			if answers[i] = err; err == nil {
				answers[i] = got[n][k]
			}
		}
	}
	alone.Wait()
}

// Inspect reads who holds key. The answer was true on the primary when it was given.
func (s *Store) Inspect(ctx context.Context, key string) (backend.State, error) {
	if err := s.checkKey(key); err != nil {
		return backend.State{}, err
	}
	reply, _, err := s.run(ctx, s.Layout.Inspect(key), 0)
	if err != nil {
		return backend.State{}, err
	}
	all, err := s.Layout.DecodeInspect(reply, 1)
	if err != nil {
		return backend.State{}, err
	}
	return all[0].State, all[0].Err
}

// checkKey refuses a key that no lock here can have.
func (s *Store) checkKey(key string) error {
	if err := backend.ValidateKey(key); err != nil {
		return err
	}
	return s.Layout.CheckKey(key, s.cluster)
}

// Identity returns the server's replication id. A cluster has none: the error is
// [errors.ErrUnsupported].
func (s *Store) Identity(ctx context.Context) (string, error) {
	infos, err := s.info(ctx, "replication")
	if err != nil {
		return "", err
	}
	if len(infos) != 1 {
		return "", fmt.Errorf("%w: the identity of %d servers", errors.ErrUnsupported, len(infos))
	}
	return script.ReplicationID(infos[0])
}

// ForceRelease ends a hold whoever's it is, as [backend.Backend] says.
func (s *Store) ForceRelease(ctx context.Context, key string,
	token uint64,
) (backend.Holder, error) {
	return backend.ForceReleaseBy(ctx, s, key, token)
}

// Close ends the subscription and waits for requests in flight. The transport's own goroutines may
// outlast it. The error is nil.
func (s *Store) Close() error {
	s.mu.Lock()
	s.closed = true
	s.mu.Unlock()
	s.waiters.close()
	s.inFlight.Wait()
	return nil
}

// run sends a request, and turns what went wrong into one of the three answers.
func (s *Store) run(ctx context.Context, r script.Request,
	replicas int,
) (reply any, have int, err error) {
	if err := s.Begin(ctx); err != nil {
		return nil, 0, err
	}
	defer s.inFlight.Done()
	reply, have, err = s.t.Run(ctx, Request{r, replicas})
	if err != nil {
		return nil, 0, forbiddenKeys(s.Failure(ctx, err), r.Keys)
	}
	return reply, have, nil
}

// forbiddenKeys adds to err which keys were asked for, if it says that the user may not touch one
// of them:
// the server does not say which, and a lock may have one whose name begins with a brace.
func forbiddenKeys(err error, keys []string) error {
	if !errors.Is(err, script.ErrNotPermitted) || !strings.Contains(err.Error(), " key") {
		return err
	}
	// safeguard: forbidden-keys
	return fmt.Errorf("%w (it asks for %q; prefix=… sets how they begin)", err, keys)
}

// lacksReplicas is the unknown answer of a write that too few replicas have: the hold might not
// survive a failover. (With enough of them there is no promise either: another replica may be
// promoted.)
func (s *Store) lacksReplicas(have int) error {
	return fmt.Errorf("redis: %d of %d replicas have the lock (replicas=%d)", have, s.cfg.Replicas,
		s.cfg.Replicas)
}

func (s *Store) info(ctx context.Context, section string) ([]string, error) {
	if err := s.Begin(ctx); err != nil {
		return nil, err
	}
	defer s.End()
	infos, err := s.t.Info(ctx, section)
	return infos, s.Failure(ctx, err)
}

// Begin counts a request, for which Close waits until End. The error says that the Store is
// closed, or is that of ctx.
func (s *Store) Begin(ctx context.Context) error {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if s.closed {
		return backend.ErrClosed
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	s.inFlight.Add(1)
	return nil
}

// End is the end of what Begin counted.
func (s *Store) End() { s.inFlight.Done() }

// validate refuses a claim that cannot be kept here.
func (s *Store) validate(c *backend.Claim) error {
	if err := c.Validate(s.caps); err != nil {
		return err
	}
	// A longer lease would outlive the guard's grace. safeguard: max-ttl
	if s.cfg.MaxTTL != 0 && c.TTL > s.cfg.MaxTTL {
		return &backend.InvalidError{
			Field: "ttl", Value: c.TTL.String(),
			Reason: "is over max_ttl, " + s.cfg.MaxTTL.String(),
		}
	}
	if s.cfg.Dialect != "" {
		return s.Layout.CheckKey(c.Key, s.cluster)
	}
	return nil
}
