package locker

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// withdrawGrace is how long a failing Lock waits for its clean-up, so that usually nothing is left
// when it returns. A store that takes longer is cleaned up behind the caller.
const withdrawGrace = 100 * time.Millisecond

const (
	// maxTimeout caps what defaults to the TTL: a hung store does not silence Lock, and an Unlock
	// that leaves something, for longer.
	maxTimeout = 30 * time.Second

	// maxRelease is that of an Unlock that only releases. The lease does the same by itself, and
	// whoever ends a process gives it no more than 10 to 30 s.
	maxRelease = 5 * time.Second
)

// timeout is how long the store may be silent: as configured, or else the TTL.
func timeout(configured, ttl time.Duration) time.Duration {
	return cmp.Or(configured, min(ttl, maxTimeout))
}

// releaseTimeout is how long a release may take. What claim leaves in the store, a value or the
// mark of a job, nothing else leaves: it is tried for longer.
func (c *core) releaseTimeout(claim *backend.Claim) time.Duration {
	most := maxRelease
	if claim.Save != nil || claim.NotBefore > 0 { // safeguard: release-leaves
		most = maxTimeout
	}
	return cmp.Or(c.cfg.ReleaseTimeout, min(claim.TTL, most))
}

// errReleasedBefore is what a release comes to that leaves something, was not answered, and finds
// the hold gone when it is repeated: the first has left it, or else the hold ended before it.
var errReleasedBefore = errors.New("the lease is over, and a release before was not answered")

// release tells the store that claim is over, again and again until it answers or the timeout is
// over. It never runs on the caller's ctx, which may be long done and gives values alone: a release
// under a dead ctx is not sent at all, and the lock stays for a TTL (redsync, open-match#1578,
// ncps#913). What it leaves to the lease's end when the store stays silent is not an error of
// safety.
//
// Safety: what is written is the end of the hold of this claim's owner, and no other's: a store
// compares the owner, so a release that lands late, or twice, or after the lease was granted to
// another, ends nothing that is in use. With the release goes a state or a mark, which the store
// writes only if it ends a hold by it; so what a holder saves that was lost is refused however late
// it comes (TestUnlockOfATakenLockSaysSo, TestStoreSaveThatComesTooLate, backendtest release).
//
// The first request is made by store, if that is not nil: then All has others beside it, see batch.
// Nearly every release is answered at once, and the backend bounds each request: so the first has
// a ctx that never ends, unless a timeout is configured that may be shorter.
func (c *core) release(ctx context.Context, claim *backend.Claim, store backend.Backend,
	info Hold,
) (err error) {
	ctx, end := c.observe(context.WithoutCancel(ctx), OpRelease, info)
	defer func() { end(info, err) }()
	if c.cfg.ReleaseTimeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.cfg.ReleaseTimeout)
		defer cancel()
	}
	began := time.Now() // what the first takes counts against the timeout of all
	told, err := cmp.Or(store, c.b).Release(ctx, *claim)
	if err != nil && !released(err) {
		// safeguard: first-release
		return c.releaseAgain(ctx, claim, info, err, c.releaseTimeout(claim)-time.Since(began))
	}
	if told.Waiting > 0 && c.events != nil {
		c.events.Event(ctx, Event{Kind: EventRelease, Released: told})
	}
	c.noteReply()
	return err
}

// detached returns a context with the values of ctx, which ends after limit, or when Close runs out
// of time. After that, an Unlock that comes late still asks the store: it has nobody who waits for
// it but its own caller.
func (c *core) detached(ctx context.Context,
	limit time.Duration,
) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	if c.cut.Err() != nil { // safeguard: release-after-close
		return ctx, cancel
	}
	stop := context.AfterFunc(c.cut, cancel)
	return ctx, func() { stop(); cancel() }
}

// released reports whether err is an answer that repeating the release cannot change: a yes, a no,
// or a refusal, such as of wrong credentials.
func released(err error) bool {
	return err == nil || errors.Is(err, backend.ErrLost) || backend.Refused(err)
}

// releaseAgain repeats a release that was not answered, until it is or rest is over; then it goes
// on behind the caller. A repeated release is the same write, which a store executes once with
// effect. So ErrLost says two things: that an earlier one has ended the hold, if one of them was
// not answered; that the hold was gone before, if each was refused or never arrived. A release that
// leaves something cannot tell the first from a hold that ended otherwise, see errReleasedBefore.
// So whether it saved is looked up: a state has the token of the hold that saved it, and no other
// hold writes the same. If another has saved since, nobody knows (TestUnlockAfterALostReply,
// TestUnlockRefusedAndThenLost, TestStoreSaveWithoutAnAnswer).
func (c *core) releaseAgain(ctx context.Context, claim *backend.Claim, info Hold, err error,
	rest time.Duration,
) error {
	ctx, cancel := c.detached(ctx, rest)
	defer cancel()
	retry := waiting.NewBackoff(retryFirst, retryMost)
	unknown := false
	cause := err
	for {
		// safeguard: release-unknown-stays
		unknown = unknown || backend.AnswerOf(err) == backend.Unknown
		if !waiting.Pause(ctx, retry.Next()) {
			c.pending.add(ctx, claim, info) // safeguard: release-behind
			return fmt.Errorf("store did not confirm, the lease runs out by itself: %w", cause)
		}
		_, err = c.b.Release(ctx, *claim)
		if ctx.Err() == nil { // the last request is cut short, and only says so
			cause = err
		}
		switch {
		case errors.Is(err, backend.ErrLost) && unknown: // safeguard: release-refused-before
			// Whoever releases believed in the hold when it did. Until that belief's deadline only
			// a release of this claim can have ended the hold, and the one that was not answered is
			// such a release. After it, there is nothing to tell the caller: the hold was good
			// until the call.
			if claim.Save != nil {
				saved, failed := c.b.Saved(ctx, claim.Key)
				if failed == nil && bytes.Equal(saved, claim.Save) { // safeguard: save-unconfirmed
					return nil
				}
				return errReleasedBefore
			}
			if claim.NotBefore > 0 {
				return errReleasedBefore // whoever knows the deadline decides
			}
			return nil
		case released(err):
			return err
		}
	}
}

// withdraw releases a claim that came to nothing, and returns when that was tried, or the store has
// been silent for too long; then it goes on behind the caller, for as long as the claim's lease
// could last.
//
// Thousands may be withdrawn at once, and the store may have as many attempts of theirs to answer
// first. Each caller waits for its own as long as those before it are answered: when all have
// returned, nothing of them is in the store.
func (c *core) withdraw(ctx context.Context, claim *backend.Claim, info Hold) {
	c.pending.await(c.pending.add(ctx, claim, info)) // safeguard: withdrawn-before-return
}

// waitGrace waits until done is closed, for withdrawGrace at most, and reports whether it was. Nil
// is nothing to wait for.
func waitGrace(done <-chan struct{}) bool {
	if done == nil {
		return true
	}
	grace := time.NewTimer(withdrawGrace)
	defer grace.Stop()
	select {
	case <-done:
		return true
	case <-grace.C:
		return false
	}
}

// behind calls f, and goes on behind the caller if that takes long. It reports whether f has
// returned.
func behind(f func()) bool {
	done := make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	return waitGrace(done)
}

// pending are releases that the store has not confirmed, of claims that nobody wants. Up to
// maxWorkers goroutines see to them, each with one request at a time, one key after the other;
// those of a key go together, as thousands may give up at once that wait for one. While the store
// is silent, to the rest of the client as well, that is one goroutine, as a probe: what is sent to
// a store that is away only waits in the client library. What is not confirmed within the claim's
// TTL has run out by itself.
//
// Nothing here is needed for safety: a lease that is never released ends by itself. It is for those
// who wait for the key, and for the store, which would have a place in the queue for each. So the
// list may be bounded when the store has been silent for long, and Close may leave what is in it.
type pending struct {
	core *core
	ask  sync.Once // for most
	most int       // claims in a request: 1 where each has to be released by itself

	mu          sync.Mutex
	keys        map[string]*pendingKey
	next        []*pendingKey // whose turn it is; each once
	listed      int           // releases that wait for their request, of all keys
	sent        int           // and those that are in one
	workers     int
	lastReply   time.Time // when one was answered, last, or the first of the present ones was added
	unconfirmed int       // releases left to their leases since the last log
}

// A pendingKey has those of one key. A request takes along what has come while a first one before
// it was in flight; more are in flight at once only if they are full. A repeated one, which may
// take longer, keeps nobody waiting.
type pendingKey struct {
	name  string
	list  []pendingRelease // oldest first
	sent  int              // requests in flight
	first int              // and those that are the first of one of their claims
	queue bool             // it is in pending.next
}

const (
	// maxPending bounds the list when the store has been silent for StoreTimeout. Beyond, the
	// oldest of a key is left to its lease.
	maxPending = 1 << 12

	// maxWorkers is how many requests are in flight at once.
	maxWorkers = 64

	// fewPending are answered within withdrawGrace by any store that is at work, and more within
	// firstTry, which is how long the first request of each may take.
	fewPending = 8
	firstTry   = time.Second
)

// A pendingRelease is one of them.
type pendingRelease struct {
	ctx   context.Context // for its values
	claim backend.Claim
	info  Hold
	until time.Time
	tried chan struct{} // closed when it was tried once
}

// patience is for how much longer the store may answer nothing before it counts as silent: it has
// more time if many are pending, as it was asked for much then, and answers each late. The caller
// has mu.
func (p *pending) patience() time.Duration {
	all := withdrawGrace
	if p.listed+p.sent > fewPending {
		all = firstTry
	}
	return all - time.Since(p.lastReply)
}

// silent reports whether the store answers nobody, and is only probed. One that answers others of
// this client may have a single shard that is away, which must not keep the others' releases
// waiting. The caller has mu.
func (p *pending) silent() bool {
	if p.core.silence() < firstTry { // safeguard: shard-away
		return false
	}
	return p.patience() <= 0
}

// add has claim released behind the caller. tried is closed when that was tried; nil if it is not.
func (p *pending) add(ctx context.Context, claim *backend.Claim,
	info Hold,
) (tried <-chan struct{}) {
	d := pendingRelease{
		context.WithoutCancel(ctx), *claim, info,
		time.Now().Add(claim.TTL + maxTimeout), // safeguard: owed-until
		make(chan struct{}),
	}
	p.ask.Do(func() {
		p.most = backend.MaxReleaseAll
		// ReleaseAll of nothing asks nobody.
		if _, err := p.core.b.ReleaseAll(d.ctx, nil); errors.Is(err, errors.ErrUnsupported) {
			p.most = 1
		}
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	// Close has no more time: with mu, so that close counts it, or this does.
	if p.core.cut.Err() != nil {
		p.unconfirmed++
		return nil
	}
	if p.workers == 0 {
		p.lastReply = time.Now()
	}
	p.put(d)
	if !p.silent() {
		p.help()
	}
	return d.tried
}

// put puts d at the end of its key's list. The lists are bounded once the store has been silent for
// StoreTimeout, when those who wait have given up as well, and not before: thousands that give up
// at once may have so much in flight that nothing is answered for seconds on a busy machine, and
// what is left out keeps its place in a queue, in front of others, until that lapses. Until then
// the lists are as long as what was given up meanwhile, and shorten by themselves. The caller has
// mu.
func (p *pending) put(d pendingRelease) {
	k := p.keys[d.claim.Key]
	if k == nil {
		k = &pendingKey{name: d.claim.Key}
		if p.keys == nil {
			p.keys = map[string]*pendingKey{}
		}
		p.keys[k.name] = k
	}
	k.list = append(k.list, d)
	p.listed++
	p.line(k)
	limit := timeout(p.core.cfg.StoreTimeout, d.claim.TTL)
	if p.listed > maxPending && p.core.timedOut(p.lastReply, limit) { // safeguard: owed-bound
		p.shorten()
	}
}

// shorten leaves the oldest to their leases that are too many: of the keys whose turn it is, as
// those whose requests are in flight are few. The caller has mu.
func (p *pending) shorten() {
	for p.listed > maxPending && len(p.next) > 0 {
		k := p.turn()
		k.list = k.list[1:]
		p.listed--
		p.unconfirmed++
		p.line(k)
	}
}

// line gives k a turn, if it has something to send now. The caller has mu.
func (p *pending) line(k *pendingKey) {
	switch {
	case len(k.list) == 0 && k.sent == 0:
		delete(p.keys, k.name)
	// safeguard: withdrawn-full
	case !k.queue && len(k.list) > 0 && (k.first == 0 || len(k.list) >= p.most):
		k.queue = true
		p.next = append(p.next, k)
	}
}

// turn takes the key whose turn it is out of the line; there is one. The caller has mu.
func (p *pending) turn() *pendingKey {
	k := p.next[0]
	p.next, k.queue = p.next[1:], false
	return k
}

// take takes one request of the key whose turn it is. The caller has mu.
func (p *pending) take() (*pendingKey, []pendingRelease) {
	k := p.turn()
	n := min(p.most, len(k.list)) // safeguard: withdrawn-together
	some := k.list[:n:n]
	k.list = k.list[n:]
	k.sent++
	if untried(some) {
		k.first++
	}
	p.listed, p.sent = p.listed-n, p.sent+n
	p.line(k)
	return k, some
}

// untried reports whether one of some was never tried.
func untried(some []pendingRelease) bool {
	// safeguard: withdrawn-first
	return slices.ContainsFunc(some, func(d pendingRelease) bool { return d.tried != nil })
}

// help starts another worker, if there is work for it. The caller has mu.
func (p *pending) help() {
	if len(p.next) > 0 && p.workers < maxWorkers {
		p.workers++
		p.core.add()
		go p.work()
	}
}

// await waits until a release was tried, for as long as others are answered: so of thousands the
// last waits for as long as the store needs, and none waits for a store that is silent.
func (p *pending) await(tried <-chan struct{}) {
	for tried != nil {
		p.mu.Lock()
		rest := p.patience()
		p.mu.Unlock()
		if rest <= 0 {
			return
		}
		patience := time.NewTimer(rest)
		select {
		case <-tried:
			tried = nil
		case <-p.core.cut.Done():
			tried = nil
		case <-patience.C:
		}
		patience.Stop()
	}
}

// close ends it, as Close has run out of time, and returns how many releases were still pending.
func (p *pending) close() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := p.listed + p.unconfirmed
	for _, k := range p.keys { // some have a request in flight
		k.list = nil // safeguard: owed-closed
	}
	p.keys, p.next, p.listed, p.unconfirmed = nil, nil, 0, 0
	return n
}

// work sees to the list until it is empty, or the store is silent and another is at it. What is not
// answered goes to the end, as another may be (of another shard): so one request is about one key.
func (p *pending) work() {
	c := p.core
	defer c.done()
	retry := waiting.NewBackoff(retryFirst, 4*retryMost)
	for {
		p.mu.Lock()
		if len(p.next) == 0 || p.workers > 1 && p.silent() {
			break
		}
		k, some := p.take()
		p.mu.Unlock()
		if p.try(k, some) {
			retry.Reset()
		} else { // what comes back at once without an answer must not be asked again at once
			waiting.Pause(c.cut, retry.Next())
		}
	}
	p.workers--
	left := 0
	if p.workers == 0 {
		left, p.unconfirmed = p.unconfirmed, 0
	}
	p.mu.Unlock()
	if left > 0 {
		c.cfg.Logger.Warn("holdfast: releases that the store did not confirm were not "+
			"repeated any more; the leases run out by themselves",
			"releases", left)
	}
}

// try makes one request, and puts back what is not answered and still matters: as long as the
// claim's lease, or an attempt of it that is in flight, may last. It reports whether anything was
// answered.
func (p *pending) try(k *pendingKey, some []pendingRelease) (answered bool) {
	c := p.core
	answers := p.release(some)
	for i, err := range answers {
		if released(err) && err != nil && !errors.Is(err, backend.ErrLost) {
			c.cfg.Logger.Warn("holdfast: could not release a lock; its lease runs out by itself",
				"key", some[i].info.Key, "error", err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	k.sent--
	if untried(some) {
		k.first--
	}
	p.sent -= len(some)
	for i, d := range some {
		if d.tried != nil {
			close(d.tried)
			d.tried = nil
		}
		switch {
		case released(answers[i]):
			answered, p.lastReply = true, time.Now()
		case c.cut.Err() != nil, time.Now().After(d.until):
			p.unconfirmed++
		default:
			p.put(d) // safeguard: withdrawn-again
		}
	}
	p.line(k)
	if answered {
		p.help()
	}
	return answered
}

// release asks once for some, and returns what the store says of each. A request for several is
// nobody's in particular, so it has the values of no ctx.
func (p *pending) release(some []pendingRelease) []error {
	c := p.core
	ctx, limit := context.Background(), time.Duration(0)
	claims, ends := make([]backend.Claim, len(some)), make([]func(Hold, error), len(some))
	for i := range some {
		d := &some[i]
		claims[i] = d.claim
		limit = max(limit, c.releaseTimeout(&d.claim))
		var observed context.Context
		observed, ends[i] = c.observe(d.ctx, OpRelease, d.info)
		if len(some) == 1 {
			ctx = observed
		}
	}
	if untried(some) {
		limit = min(limit, firstTry)
	}
	ctx, cancel := c.detached(ctx, limit)
	defer cancel()
	answers, err := make([]error, 1), error(nil)
	if len(some) == 1 {
		_, answers[0] = c.b.Release(ctx, claims[0])
	} else {
		answers, err = c.b.ReleaseAll(ctx, claims)
	}
	if err == nil && len(answers) != len(some) { // safeguard: release-answers
		err = fmt.Errorf("%d answers to a release of %d claims", len(answers), len(some))
	}
	if err != nil {
		answers = make([]error, len(some))
		for i := range answers {
			answers[i] = err
		}
	}
	for i, end := range ends {
		end(some[i].info, answers[i])
	}
	return answers
}
