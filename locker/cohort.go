package locker

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A cohort is the goroutines of one process that want, or hold, one key in the same way: they share
// a lease, one after the other, in the order in which they came. The process has a claim in the
// store only while somebody waits and it has no lease: so when the last of them has unlocked,
// nothing of it is left there.
//
// It exists while there is a lease, somebody asks the store, or somebody waits. core.mu guards it.
type cohort struct {
	id        cohortKey
	lease     *lease // the process's; nil if it has none
	acquiring bool   // a goroutine asks the store: the first caller itself, or the acquirer

	cancel     context.CancelFunc // ends the acquirer; nil if there is none
	stopped    chan struct{}      // closed when it has ended and its claim is withdrawn
	unanswered *time.Timer        // fails those who wait for a store that does not answer
	asking     time.Time          // since when the store owes the acquirer an answer; zero: it does not

	first, last *waiter // in the order in which they came
	waiting     int
	spare       *waiter // one that nobody needs any more
	refusal     error   // the store's last answer, for error messages; nil before the first
	trouble     error   // why there was none since
}

// A cohortKey is what leases are shared for: claims of one key, with one TTL, that wait in one way.
type cohortKey struct {
	key  string
	ttl  time.Duration
	mode waiting.Mode
}

// A waiter is a goroutine that waits for the lease of its cohort.
type waiter struct {
	ready      chan outcome // one slot; gets one outcome at most
	prev, next *waiter
	queued     bool
	ctx        context.Context // for its values
	since      time.Time
	deadline   time.Time // of its ctx, for FailFast; zero without either
}

// An outcome is a lease, or why there is none. With neither it is Close's.
type outcome struct {
	lease   *lease
	err     error
	stopped <-chan struct{} // without a lease: closed when the claim is withdrawn
}

// fewTokens is how many tokens a claim asks for whose process has nobody waiting. Most of the time
// nobody comes, and a store whose tokens are microseconds gives out no more of them than time has
// passed since the last grant.
const fewTokens = 16

// A first is what the first of a cohort makes, in one piece: most locks are free, and need it all.
type first struct {
	cohort cohort
	wait   wait
	lease  lease
}

// lockTogether gets the lease for one of those who want the key in this process.
func (c *core) lockTogether(ctx context.Context, key string, info Hold, o *call) (*lease, error) {
	k := cohortKey{key, o.ttl, o.wait}
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return nil, ErrClosed
	}
	if co := c.cohorts[k]; co != nil {
		if o.failFast {
			if vain := inVain(ctx, c.blocked(co, key, co.waiting)); vain != nil {
				c.mu.Unlock()
				return nil, vain
			}
		}
		if co.lease == nil { // else the turn may come within a microsecond, which a look at the stack would double
			runtime.Callers(siteSkip+1, o.site[:])
		}
		me := co.join(ctx, o)
		c.mu.Unlock()
		return c.await(ctx, co, me, key, info)
	}
	f := &first{}
	f.cohort.id, f.cohort.acquiring = k, true
	c.cohorts[k] = &f.cohort
	c.mu.Unlock()
	return c.lockFirst(ctx, f, info, o)
}

// lockFirst makes the first attempt in the caller's goroutine, as nobody else of this process is
// there: most locks are free. If the key is held, the caller waits like everybody, and the acquirer
// goes on with the same claim.
func (c *core) lockFirst(ctx context.Context, f *first, info Hold, o *call) (l *lease, err error) {
	runtime.Callers(siteSkip+2, o.site[:])
	co, w := &f.cohort, &f.wait
	w.core, w.info, w.mode, w.cohort, w.room = c, info, co.id.mode, co, &f.lease
	c.claim(ctx, opLock, co.id.key, o, &w.claim)
	if c.cfg.Wait.Passes > 0 {
		w.claim.Reserve = min(c.cfg.Wait.Passes+1, fewTokens)
	}
	if !w.claim.Queue {
		c.standBack(ctx, co.id.key)
	}
	if c.likelyHeld(&w.claim) {
		w.subscribe(ctx)
	}
	answered := false
	defer func() {
		if !answered { // the backend panicked: the claim is withdrawn, and those who came meanwhile are seen to
			w.unsure = true
			w.stop()
			c.owed.add(ctx, &w.claim, w.info)
			c.stopAsking(ctx, co, w)
		}
	}()
	l, err = w.attempt(ctx)
	answered = true
	if err == nil {
		w.stop()
		c.mu.Lock()
		co.acquiring, co.lease, l.cohort = false, l, co
		c.mu.Unlock()
		return l, nil
	}
	var vain error
	if o.failFast {
		vain = inVain(ctx, err)
	}
	c.mu.Lock()
	if vain == nil && !c.closed && !w.hopeless(ctx, err) {
		me := co.joinFirst(ctx, o, w.since)
		c.startAcquirer(ctx, co, w)
		c.mu.Unlock()
		return c.await(ctx, co, me, co.id.key, info)
	}
	if co.first != nil { // the claim, and its place in the queue, are the cohort's
		c.startAcquirer(ctx, co, w)
		c.mu.Unlock()
	} else {
		c.mu.Unlock()
		w.stop()
		w.withdraw(ctx)
		c.stopAsking(ctx, co, w)
	}
	switch {
	case vain != nil:
		return nil, vain
	case w.last != nil:
		return nil, w.last
	}
	return nil, err
}

// stopAsking ends what lockFirst began.
func (c *core) stopAsking(ctx context.Context, co *cohort, w *wait) {
	c.mu.Lock()
	defer c.mu.Unlock()
	co.acquiring = false
	c.next(ctx, co, &w.claim, w.info)
}

// await waits for one's turn. Cancellation and turn may come together: under mu it is decided which
// it was.
func (c *core) await(ctx context.Context, co *cohort, me *waiter, key string, info Hold) (l *lease, err error) {
	ctx, end := c.observe(ctx, OpWait, info)
	defer func() { end(info, err) }()
	select {
	case got := <-me.ready:
		switch {
		case got.lease == nil:
			patiently(got.stopped)
			if got.err == nil { // Close
				return nil, cmp.Or(c.waitedFor(co, key), error(ErrClosed))
			}
			return nil, got.err
		case ctx.Err() != nil: // got after the caller gave up
			c.giveBack(ctx, got.lease)
			return nil, cmp.Or(c.waitedFor(co, key), ctx.Err())
		}
		c.observeTurn(ctx, got.lease)
		return got.lease, nil
	case <-ctx.Done():
	}
	c.mu.Lock()
	why := cmp.Or(c.blocked(co, key, co.ahead(me)), ctx.Err())
	if !me.queued { // the turn came at the same moment
		c.mu.Unlock()
		if got := <-me.ready; got.lease != nil {
			c.giveBack(ctx, got.lease)
		}
		return nil, why
	}
	co.remove(me)
	var stopped chan struct{}
	if co.first == nil && co.cancel != nil { // nobody waits: the claim is withdrawn before this returns, if that is soon
		co.cancel()
		stopped = co.stopped
	}
	c.mu.Unlock()
	patiently(stopped)
	return nil, why
}

func (c *core) waitedFor(co *cohort, key string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.blocked(co, key, 0)
}

// blocked is what is known of who is in the way of one who waits in the cohort behind ahead others:
// what the store told who asked it, or one of this process. Nil if that is nobody, as far as is
// known. The caller has mu.
func (c *core) blocked(co *cohort, key string, ahead int) error {
	var held *HeldError
	claim := &backend.Claim{Key: key} // exclusive
	switch {
	case errors.As(co.refusal, &held):
		return c.estimate(claim, held.Err, ahead)
	case co.refusal != nil:
		return co.refusal
	case co.lease != nil || ahead > 0:
		return c.estimate(claim, &backend.HeldError{Position: 1, Holder: c.meta}, ahead)
	}
	return co.trouble
}

// startAcquirer starts the goroutine that asks the store with w. The caller has mu, and is counted.
// The first who waits, or else ctx, gives values only: an acquirer outlives the call that started
// it.
func (c *core) startAcquirer(ctx context.Context, co *cohort, w *wait) {
	if co.first != nil {
		ctx = co.first.ctx
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	co.acquiring, co.cancel, co.stopped = true, cancel, make(chan struct{})
	timeout := c.storeTimeout(co.id.ttl)
	if co.asking = (time.Time{}); w.unanswered {
		co.asking = w.since
		timeout = max(timeout-time.Since(w.since), 1)
	}
	co.unanswered = time.AfterFunc(timeout, func() { c.failUnanswered(co) })
	if co.first == nil || c.closed {
		cancel()
	}
	c.open++
	go c.acquireFor(ctx, co, w)
}

// acquireFor is the acquirer: it asks the store until it has a lease for the first who waits, or
// nobody waits any more. When it ends, nothing is in the store but the lease that it gave.
func (c *core) acquireFor(ctx context.Context, co *cohort, w *wait) {
	defer c.done()
	w.cohort = co
	ctx = c.observeAcquirer(ctx, w)
	if !w.claim.Queue {
		c.standBack(ctx, co.id.key)
	}
	l, err := w.run(ctx)
	c.acquired(ctx, co, w, l, err)
}

// acquired gives the lease to the first who waits, or tells those who do why there is none. It is
// apart from acquireFor, as what that needs is on the stack of each sleeping acquirer.
func (c *core) acquired(ctx context.Context, co *cohort, w *wait, l *lease, err error) {
	if err == nil && c.events != nil { // before anybody can have it
		c.observeLease(ctx, EventGrant, l)
	}
	c.mu.Lock()
	if err == nil && co.first != nil {
		co.acquirerEnded()
		co.lease, l.cohort = l, co
		co.give(l)
		c.mu.Unlock()
		return
	}
	if err != nil && ctx.Err() == nil { // refused
		co.failAll(err)
	}
	c.mu.Unlock()
	if err == nil {
		_ = c.giveUp(ctx, l) // everybody left at the last moment
	} else {
		w.withdraw(ctx)
		w.finish(w.info, err)
	}

	c.mu.Lock()
	defer c.mu.Unlock()
	co.acquirerEnded()
	c.next(ctx, co, &w.claim, w.info)
}

// next starts an acquirer if somebody waits and the process has no lease; if there is nothing left
// of the cohort it is forgotten. like is a claim to make the next one of. The caller has mu.
func (c *core) next(ctx context.Context, co *cohort, like *backend.Claim, info Hold) {
	switch {
	case co.lease != nil || co.acquiring:
	case co.first != nil:
		w := &wait{core: c, claim: *like, info: info, mode: co.id.mode}
		w.claim.Owner, w.claim.NoneInFlight, w.claim.Before = backend.NewOwner(), false, nil
		w.claim.Meta.Since = time.Now().UTC().Truncate(time.Millisecond)
		if c.cfg.Wait.Passes > 0 {
			w.claim.Reserve = min(c.cfg.Wait.Passes+1, backend.MaxReserve)
		}
		c.startAcquirer(ctx, co, w)
	case c.cohorts[co.id] == co:
		delete(c.cohorts, co.id)
	}
}

// acquirerEnded forgets the acquirer. The caller has mu.
func (co *cohort) acquirerEnded() {
	co.cancel()
	co.unanswered.Stop()
	close(co.stopped)
	co.acquiring, co.cancel, co.stopped, co.unanswered = false, nil, nil, nil
	co.refusal, co.trouble = nil, nil
}

// noteRefusal keeps a definite answer for those who wait. It fails the first, for whom the store
// was asked, if that one asked for it and would wait too long.
func (c *core) noteRefusal(w *wait, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	co := w.cohort
	co.refusal, co.trouble, co.asking = err, nil, time.Time{}
	for co.first != nil && !co.first.deadline.IsZero() {
		vain := wouldTimeout(co.first.deadline, err)
		if vain == nil {
			break
		}
		co.pop().ready <- outcome{err: vain, stopped: co.stopped}
	}
	if co.first == nil && co.cancel != nil {
		co.cancel()
	}
}

// noteAttempt takes note that the store owes an answer from now on.
func (c *core) noteAttempt(co *cohort) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if co.asking.IsZero() {
		co.asking = time.Now()
	}
}

// noteTrouble keeps why the store gave no answer.
func (c *core) noteTrouble(co *cohort, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	co.trouble = err
}

// failUnanswered fails those who have waited for longer than StoreTimeout without any answer of the
// store, and looks again when the next one may have.
func (c *core) failUnanswered(co *cohort) {
	timeout := c.storeTimeout(co.id.ttl)
	c.mu.Lock()
	defer c.mu.Unlock()
	if co.unanswered == nil { // the acquirer has ended
		return
	}
	for co.first != nil {
		since := co.first.since
		if co.asking.After(since) {
			since = co.asking
		}
		if co.asking.IsZero() || !c.unanswered(since, timeout) {
			next := timeout - time.Since(since)
			if next <= 0 {
				next = timeout / 8
			}
			co.unanswered.Reset(next)
			return
		}
		co.pop().ready <- outcome{err: errUnanswered(timeout, co.trouble), stopped: co.stopped}
	}
	co.cancel()
}

// pass hands the lease of a hold that is over to the next in the cohort, if somebody waits, the
// budget allows it and the lease is good for a while; good says that it is. The next hold has a
// token of its own, one of those that the grant has reserved. Nobody else touches the lease's
// tokens meanwhile: the last hold is over, and the next has not begun.
func (c *core) pass(l *lease, now instant, good bool) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	co := l.cohort
	if co == nil || co.lease != l || co.first == nil || !good || c.closed || l.passes >= c.cfg.Wait.Passes ||
		time.Duration(now-l.granted) >= c.cfg.Wait.PassTime || c.caps.Fencing && l.spare == 0 {
		return false
	}
	if c.caps.Fencing {
		l.token++
		l.spare--
	}
	l.passes++
	co.spare = l.waiter // whose hold is over: it has got its outcome long ago
	co.give(l)
	return true
}

// drop ends a lease that is lost, or about to be released, and takes it from its cohort: those who
// wait in it are the acquirer's from now on. Its first attempt may come before the release or after
// it: before, it is queued and handed the key; after, it is granted if it is the first. finish is
// to be called at the end of the release, if there is one: it ends the operation for the observer.
func (c *core) drop(ctx context.Context, l *lease) (finish func()) {
	l.mu.Lock()
	l.halt()
	lost := l.lost
	l.mu.Unlock()
	c.mu.Lock()
	_, first := c.leases[l]
	delete(c.leases, l)
	info := l.info
	info.Token = l.token
	if co := l.cohort; co != nil && co.lease == l {
		co.lease = nil
		c.next(ctx, co, &l.claim, l.info)
	}
	c.mu.Unlock()
	if !first || l.finish == nil {
		return func() {}
	}
	return func() { l.finish(info, lost) }
}

// giveBack deals with a lease that came too late for the one who waited for it.
func (c *core) giveBack(ctx context.Context, l *lease) {
	now := c.now()
	if c.pass(l, now, l.good(now)) {
		return
	}
	_ = c.giveUp(ctx, l)
}

// give gives the lease to the first. The caller has mu.
func (co *cohort) give(l *lease) {
	l.waiter = co.pop()
	l.waiter.ready <- outcome{lease: l}
}

// join adds a waiter at the end. The caller has mu.
func (co *cohort) join(ctx context.Context, o *call) *waiter {
	me := co.spare
	if co.spare = nil; me == nil {
		me = &waiter{ready: make(chan outcome, 1)}
	}
	*me = waiter{ready: me.ready, queued: true, ctx: ctx, since: time.Now(), prev: co.last}
	if o.failFast {
		me.deadline, _ = ctx.Deadline()
	}
	if co.last == nil {
		co.first = me
	} else {
		co.last.next = me
	}
	co.last = me
	co.waiting++
	return me
}

// joinFirst adds the one who came first, as it asked the store for itself meanwhile. The caller has
// mu.
func (co *cohort) joinFirst(ctx context.Context, o *call, since time.Time) *waiter {
	me := co.join(ctx, o)
	me.since = since
	if me.prev != nil {
		co.last = me.prev
		co.last.next = nil
		me.prev, me.next = nil, co.first
		co.first.prev = me
		co.first = me
	}
	return me
}

// pop removes the first. The caller has mu.
func (co *cohort) pop() *waiter {
	me := co.first
	co.remove(me)
	return me
}

// remove takes a waiter out. The caller has mu.
func (co *cohort) remove(me *waiter) {
	if me.prev == nil {
		co.first = me.next
	} else {
		me.prev.next = me.next
	}
	if me.next == nil {
		co.last = me.prev
	} else {
		me.next.prev = me.prev
	}
	me.prev, me.next, me.queued = nil, nil, false
	co.waiting--
}

// failAll tells everybody who waits why there is no lease; nil for Close. The acquirer ends. The
// caller has mu.
func (co *cohort) failAll(err error) {
	for co.first != nil {
		co.pop().ready <- outcome{err: err, stopped: co.stopped}
	}
	if co.cancel != nil {
		co.cancel()
	}
}

// ahead returns how many wait before me. The caller has mu.
func (co *cohort) ahead(me *waiter) (n int) {
	if !me.queued {
		return 0
	}
	for w := me.prev; w != nil; w = w.prev {
		n++
	}
	return n
}
