package locker

import (
	"cmp"
	"context"
	"errors"
	"runtime"
	"sync"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A cohort is the goroutines of one process that want, or hold, one key in the same way: they share
// a lease, one after the other, in the order in which they came. The process has a claim in the
// store only while somebody waits and it has no lease: so when the last of them has unlocked,
// nothing of it is left there.
//
// It exists while there is a lease, somebody asks the store, or somebody waits. It has a mutex of
// its own: thousands may want its key, or stop wanting it, at once, and are in nobody's way who
// wants another.
//
// What holds of it whenever nobody has the mutex: it has a lease, or an acquirer (acquiring), or it
// is over, and in no map. So each step that takes the lease or the acquirer away ends with next,
// which starts an acquirer for those who wait. And of a lease, an outcome and a claim there is one
// owner at a time, which each is handed to under the mutex: so none is left over, and none is used
// by two (TestNothingIsLeftAfterTheLastUnlock, TestCrewStorm,
// TestTurnThatComesWithTheCancellation).
type cohort struct {
	core *core
	id   cohortKey

	mu        sync.Mutex // guards what follows
	lease     *lease     // the process's; nil if it has none
	acquiring bool       // a goroutine asks the store: the first caller itself, or the acquirer
	over      bool       // nobody may join

	cancel     context.CancelFunc // ends the acquirer; nil if there is none
	stopped    chan struct{}      // closed when it has ended and its claim is withdrawn
	unanswered *time.Timer        // fails those who wait for a store that does not answer
	// since when the store owes the acquirer an answer; zero: it does not
	asking time.Time

	first, last *waiter // of those who wait, in the order in which they came
	waiting     int     // how many they are
	spare       *waiter // one that nobody needs any more

	// For error messages.
	refusal error         // the store's last answer to the acquirer; nil before the first
	trouble error         // why there was none since
	turn    time.Duration // how long a hold of the key lasts, as far as was known lately; 0 unknown
}

// A cohortKey is what leases are shared for: claims of one key, with one TTL, that wait in one way
// and say the same to others.
type cohortKey struct {
	key  string
	ttl  time.Duration
	mode waiting.Mode
	note string
}

// A waiter is a goroutine that waits for the lease of its cohort.
type waiter struct {
	ready      chan outcome // one slot; gets one outcome at most, when it is taken out of the queue
	queued     bool         // it is in the queue, between
	prev, next *waiter
	number     int             // one more than that of who came before
	done       <-chan struct{} // of ctx; nil: it looks itself
	alike      int             // how many with the same done are right before it
	crowd      *crowd          // that ends its wait when done is closed; nil: it looks itself
	ctx        context.Context // for its values
	since      time.Time
	failBy     time.Time // see call
}

// A crowd is waiters with one context, one right behind the other, beyond the first few. A
// goroutine of its own looks for the end of their context, see watch.
type crowd struct {
	done  <-chan struct{}
	first *waiter       // of those in the queue
	empty chan struct{} // closed when there is none any more
}

// fewAlike is how many with one context look for its end themselves, as a crowd costs a goroutine;
// of a crowd so many are woken at once. It is well below the 256 that wait for a processor in front
// of all others: beyond them, half of those, whoever they are, go behind everybody.
const fewAlike = 64

// An outcome is a lease, or why there is none.
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
	k := cohortKey{key, o.ttl, o.wait, o.note} // safeguard: notes-apart
	for {
		c.mu.Lock()
		co := c.cohorts[k]
		// Closing is looked at with mu, as refuseNew ends the waits of all cohorts that it finds.
		if co == nil && c.closing.Err() == nil {
			f := &first{}
			f.cohort.core, f.cohort.id, f.cohort.acquiring = c, k, true
			c.cohorts[k] = &f.cohort
			c.mu.Unlock()
			return c.lockFirst(ctx, f, info, o)
		}
		c.mu.Unlock()
		if co == nil {
			return nil, ErrClosed
		}
		if o.try { // safeguard: all-waits-in-turn
			return nil, errOurs
		}
		o.done = ctx.Done() // without mu: a guard's context has a mutex of its own
		co.mu.Lock()
		if co.over { // since we looked
			co.mu.Unlock()
			continue
		}
		me, err := co.join(ctx, o)
		co.mu.Unlock()
		if err != nil {
			return nil, err
		}
		return co.await(ctx, me, info)
	}
}

// join adds one who wants the lease at the end of the queue, unless it would wait in vain. The
// caller has mu.
func (co *cohort) join(ctx context.Context, o *call) (*waiter, error) {
	c := co.core
	// With mu, so that this sees Close, or refuseNew finds the waiter.
	// safeguard: joins-behind-close
	if c.closing.Err() != nil {
		return nil, ErrClosed
	}
	// The first to wait has the estimate made, for all who come while it waits; from then on the
	// key is one that is remembered.
	if !o.failBy.IsZero() || co.waiting == 0 {
		co.turn = c.holdTimes.remember(co.id.key).guess(time.Now())
	}
	if !o.failBy.IsZero() {
		if vain := wouldTimeout(o.failBy, co.blocked(co.waiting)); vain != nil {
			return nil, vain
		}
	}
	// With a lease the turn may come within a microsecond, which a look at the stack would double.
	if co.lease == nil && o.site == (site{}) {
		runtime.Callers(siteSkip+2, o.site[:])
	}
	return co.enqueue(ctx, o, false), nil
}

// lockFirst makes the first attempt in the caller's goroutine, as nobody else of this process is
// there: most locks are free. If the key is held, the caller waits like everybody, and the acquirer
// goes on with the same claim.
//
// Who comes meanwhile finds the cohort and waits in it; so when the attempt has been answered there
// are four ways on, chosen under the mutex: the caller has the lease; it waits, first of all, as it
// came first, and an acquirer goes on with its claim; it fails, and others wait, who inherit the
// claim with its place in the queue; it fails alone, and withdraws the claim. From startAcquirer on
// the wait is the acquirer's, and nothing of it may be read here.
func (c *core) lockFirst(ctx context.Context, f *first, info Hold, o *call) (*lease, error) {
	if o.site == (site{}) { // safeguard: site-of-all
		runtime.Callers(siteSkip+2, o.site[:])
	}
	co, w := &f.cohort, &f.wait
	w.core, w.info, w.cohort, w.prealloc = c, info, co, &f.lease
	w.noWakes = co.id.mode == waiting.Poll
	c.claim(ctx, opLock, co.id.key, o, &w.claim)
	if c.cfg.Wait.Passes > 0 { // a token for each hold that the lease may be handed on to, see pass
		w.claim.Reserve = min(c.cfg.Wait.Passes+1, fewTokens)
	}
	switch known := c.holdTimes.of(co.id.key); {
	case known == nil, o.try: // most keys
	case w.claim.WaiterTTL == 0:
		c.yieldTurn(ctx, known)
	// Subscribed first, a refusal needs no second attempt after the subscription, see run.
	case c.likelyHeld(known):
		w.subscribe(ctx)
	}
	answered := false
	defer func() {
		// The backend panicked: the claim is withdrawn, and those who came meanwhile are seen to.
		if !answered {
			w.unsure = true
			w.stop()
			c.pending.add(ctx, &w.claim, w.info) // safeguard: panicked-withdrawn
			co.firstEnds(ctx, w)
		}
	}()
	l, err := w.attempt(ctx, cmp.Or(o.store, c.b))
	answered = true
	if err == nil {
		if w.wakes != nil {
			w.stop()
		}
		// Until here the lease was nobody's but ours, and those who came meanwhile wait for its
		// Unlock. Had it been lost since the grant, its hold is told when it is made, and its
		// Unlock finds out.
		co.mu.Lock()
		co.acquiring, co.lease = false, l
		co.mu.Unlock()
		return l, nil
	}
	stop, why := o.try || w.shouldStop(ctx, err), cmp.Or(w.last, err)
	if vain := wouldTimeout(o.failBy, err); vain != nil {
		stop, why = true, vain
	}
	// In one step with the look at closing, so that Close finds the waiter, or this finds Close.
	co.mu.Lock()
	if !stop && c.closing.Err() == nil {
		me := co.enqueue(ctx, o, true) // in front of those who joined since
		me.since = w.since
		co.startAcquirer(ctx, w)
		co.mu.Unlock()
		return co.await(ctx, me, info)
	}
	inherited := co.waiting > 0
	if inherited { // the claim, and its place in the queue, are the cohort's
		co.startAcquirer(ctx, w)
	}
	co.mu.Unlock()
	if !inherited {
		w.stop() // safeguard: first-unsubscribes
		w.withdraw(ctx)
		co.firstEnds(ctx, w)
	}
	return nil, why
}

// firstEnds ends what lockFirst began.
func (co *cohort) firstEnds(ctx context.Context, w *wait) {
	co.mu.Lock()
	defer co.mu.Unlock()
	co.acquiring = false
	co.next(ctx, &w.claim, w.info)
}

// await waits for one's turn. Cancellation and turn may come together: which it was is decided by
// who takes the waiter out of the queue first, the waiter itself or its crowd's goroutine
// (endWait), or whoever has a lease to give. A turn that was too late for its waiter has given it
// the lease all the same, so that it is passed on or released by the one who has it, and by nobody
// else.
func (co *cohort) await(ctx context.Context, me *waiter, info Hold) (l *lease, err error) {
	ctx, end := co.core.observe(ctx, OpWait, info)
	ctx, nested := co.core.enterNested(ctx, co.id.key, "", info)
	defer func() {
		err = nested.exit(err)
		end(info, err)
	}()
	done := ctx.Done()
	// If they differ, the observer has given the wait an end of its own.
	if me.crowd != nil && me.crowd.done == done {
		done = nil
	}
	var got outcome
	select {
	case got = <-me.ready:
	case <-done:
		co.mu.Lock()
		if me.queued {
			co.endWait(me)
		}
		co.mu.Unlock()
		got = <-me.ready // which may be the turn that came at the same moment
	}
	switch {
	case got.lease == nil:
		waitGrace(got.stopped)
		return nil, cmp.Or(got.err, ctx.Err())
	case ctx.Err() != nil: // got after the caller's end; safeguard: late-turn
		co.passOrRelease(ctx, got.lease)
		return nil, ctx.Err()
	}
	co.core.observeTurn(ctx, got.lease)
	return got.lease, nil
}

// endWait takes one who waits out of the queue, as its context has ended, and tells it what is
// known of who is in the way. If nobody waits any more the claim is withdrawn, and stopped closed
// when that is done. The caller has mu.
func (co *cohort) endWait(w *waiter) {
	// Those who left in between count in one of the two.
	got := outcome{err: co.blocked(min(w.number-co.first.number, co.waiting-1))}
	co.dequeue(w) // safeguard: gave-up
	if co.waiting == 0 && co.cancel != nil {
		co.cancel()
		got.stopped = co.stopped
	}
	w.ready <- got
}

// joinCrowd has w wait in the crowd of the one before it, if they have one context, or begins one
// if enough do. Whoever looks for the end itself is woken by it, and whoever waits for the network
// comes behind all who were woken, whatever its key: behind a hundred thousand that is long. The
// caller has mu.
func (co *cohort) joinCrowd(w *waiter) {
	if w.done == nil || w.prev.done != w.done {
		return
	}
	w.alike, w.crowd = w.prev.alike+1, w.prev.crowd
	if w.crowd == nil && w.alike >= fewAlike { // safeguard: crowd
		w.crowd = &crowd{w.done, w, make(chan struct{})}
		co.core.add()
		go co.watch(w.crowd)
	}
}

// watch ends the waits of a crowd when its context has ended, a batch at a time, and lets
// goroutines that can run go first between two of them.
func (co *cohort) watch(c *crowd) {
	defer co.core.done()
	select {
	case <-c.empty:
		return
	case <-c.done:
	}
	for more := true; more; runtime.Gosched() {
		co.mu.Lock()
		for n := 0; c.first != nil && n < fewAlike; n++ {
			co.endWait(c.first)
		}
		more = c.first != nil
		co.mu.Unlock()
	}
}

// blocked is what is known of who is in the way of one who waits in the cohort behind ahead others:
// what the store told who asked it, or one of this process. Nil if that is nobody, as far as is
// known. The caller has mu.
func (co *cohort) blocked(ahead int) error {
	var held *HeldError
	switch {
	case errors.As(co.refusal, &held):
		return heldBehind(held.Err, ahead, co.turn)
	case co.refusal != nil:
		return co.refusal
	case co.lease != nil || ahead > 0:
		return heldBehind(&backend.HeldError{Position: 1, Holder: co.core.meta}, ahead, co.turn)
	}
	return co.trouble
}

// startAcquirer starts the goroutine that asks the store with w. The caller has mu, and is counted.
// The first who waits, or else ctx, gives values only: an acquirer outlives the call that started
// it. If by now nobody waits, or Close has begun, it is cancelled at once and does what is left to
// do for the claim, which is to withdraw it.
func (co *cohort) startAcquirer(ctx context.Context, w *wait) {
	c := co.core
	if co.first != nil {
		ctx = co.first.ctx
	}
	// Also that of an attempt by All. safeguard: all-queues-behind
	w.claim.Queue = w.claim.WaiterTTL > 0
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	co.acquiring, co.cancel, co.stopped = true, cancel, make(chan struct{})
	limit := timeout(c.cfg.StoreTimeout, co.id.ttl)
	// An attempt that is still not answered counts from when it was sent, not from now.
	if co.asking = (time.Time{}); w.unanswered {
		co.asking = w.since
		limit = max(limit-time.Since(w.since), 1)
	}
	co.unanswered = time.AfterFunc(limit, co.failUnanswered)
	if co.waiting == 0 || c.closing.Err() != nil {
		cancel()
	}
	c.add()
	go co.acquire(ctx, w)
}

// acquire is the acquirer: it asks the store until it has a lease for the first who waits, or
// nobody waits any more. When it ends, nothing is in the store but the lease that it gave.
func (co *cohort) acquire(ctx context.Context, w *wait) {
	c := co.core
	defer c.done()
	w.cohort = co
	ctx = c.observeAcquirer(ctx, w)
	if known := c.holdTimes.of(co.id.key); known != nil && !w.claim.Queue {
		c.yieldTurn(ctx, known)
	}
	l, err := w.run(ctx)
	co.acquired(ctx, w, l, err)
}

// acquired gives the lease to the first who waits, or tells those who do why there is none. It is
// apart from acquire, as what that needs is on the stack of each sleeping acquirer.
//
// Safety: the lease has one owner from the grant on: the waiter that is taken out of the queue
// under mu, or this goroutine, which releases it. A claim without a lease is withdrawn before the
// acquirer counts as ended, so the next one's claim, which has another name, never stands in the
// store's queue beside it for those who have been told that nothing is left
// (TestWhoGaveUpIsPassedOver, TestCancelledWaitLeavesNothing).
func (co *cohort) acquired(ctx context.Context, w *wait, l *lease, err error) {
	c := co.core
	if err == nil && c.events != nil { // before anybody can have it
		c.observeLease(ctx, EventGrant, l)
	}
	co.mu.Lock()
	if co.first != nil && err == nil {
		co.acquirerEnded()
		co.lease = l
		co.give(co.first, l)
		co.mu.Unlock()
		return
	}
	// Refused: by the store, for good, and so for all who wait. safeguard: refused-not-cancelled
	if err != nil && ctx.Err() == nil {
		co.endWaits(err)
	}
	co.mu.Unlock()
	if err == nil {
		_ = l.release(ctx, nil, nil) // everybody left at the last moment; safeguard: unwanted-grant
	} else {
		w.withdraw(ctx) // safeguard: acquirer-ends-withdrawn
		w.finish(w.info, err)
	}

	co.mu.Lock()
	defer co.mu.Unlock()
	co.acquirerEnded()
	co.next(ctx, &w.claim, w.info)
}

// next starts an acquirer if somebody waits and the process has no lease; if there is nothing left
// of the cohort it is over. like is a claim to make the next one of: the new one has a name of its
// own, so that the release or the tombstone of the last one has no say in it. The caller has mu.
func (co *cohort) next(ctx context.Context, like *backend.Claim, info Hold) {
	c := co.core
	switch {
	case co.lease != nil || co.acquiring || co.over:
	case co.waiting > 0:
		w := &wait{core: c, claim: *like, info: info, noWakes: co.id.mode == waiting.Poll}
		w.claim.Owner, w.claim.NoneInFlight, w.claim.Before = backend.NewOwner(), false, nil
		w.claim.Meta.Since = time.Now().UTC().Truncate(time.Millisecond)
		if c.cfg.Wait.Passes > 0 {
			w.claim.Reserve = min(c.cfg.Wait.Passes+1, backend.MaxReserve)
		}
		co.startAcquirer(ctx, w)
	default:
		co.over = true
		c.mu.Lock()
		delete(c.cohorts, co.id)
		c.mu.Unlock()
	}
}

// acquirerEnded takes note that the acquirer has ended. The caller has mu.
func (co *cohort) acquirerEnded() {
	co.cancel()
	co.unanswered.Stop()
	close(co.stopped)
	co.acquiring, co.cancel, co.stopped, co.unanswered = false, nil, nil, nil
	co.refusal, co.trouble = nil, nil
}

// noteRefusal keeps a definite answer for those who wait. It fails the first, for whom the store
// was asked, if that one asked for it and would wait too long.
func (co *cohort) noteRefusal(err error) {
	co.mu.Lock()
	defer co.mu.Unlock()
	co.asking, co.refusal, co.trouble = time.Time{}, err, nil
	var held *HeldError
	if errors.As(err, &held) {
		co.turn = held.Wait / time.Duration(max(held.Position, 1))
	}
	// Only the first is asked for, and only its own deadline counts: with it gone the next is.
	for w := co.first; w != nil; w = co.first {
		vain := wouldTimeout(w.failBy, err)
		if vain == nil {
			break
		}
		co.fail(w, vain)
	}
	if co.waiting == 0 && co.cancel != nil {
		co.cancel()
	}
}

// noteAttempt takes note that the store owes an answer from now on. It keeps the first of several
// that are not answered: those who wait are counted from it.
func (co *cohort) noteAttempt() {
	co.mu.Lock()
	defer co.mu.Unlock()
	if co.asking.IsZero() {
		co.asking = time.Now()
	}
}

// noteTrouble keeps why the store gave no answer.
func (co *cohort) noteTrouble(err error) {
	co.mu.Lock()
	defer co.mu.Unlock()
	co.trouble = err
}

// failUnanswered fails those who have waited for longer than StoreTimeout without any answer of the
// store, and looks again when the next one may have. Each has a time of its own, as those who came
// later have not waited for as long; when nobody is left the acquirer is cancelled, and withdraws
// what it asked for (TestStoreTimeoutInACohort, TestStoreTimeoutIsAboutSilenceOnly).
func (co *cohort) failUnanswered() {
	c := co.core
	limit := timeout(c.cfg.StoreTimeout, co.id.ttl)
	co.mu.Lock()
	defer co.mu.Unlock()
	if co.unanswered == nil { // the acquirer has ended
		return
	}
	// Those in front have waited the longest, so the first whose time is not over ends the loop,
	// and the timer is set for it. Nobody is failed while the store owes no answer: then it has
	// said who holds.
	for w := co.first; w != nil; w = co.first {
		since := w.since
		if co.asking.After(since) { // safeguard: silent-since-asked
			since = co.asking
		}
		if co.asking.IsZero() || !c.timedOut(since, limit) {
			next := limit - time.Since(since)
			if next <= 0 {
				next = limit / 8
			}
			co.unanswered.Reset(next)
			return
		}
		co.fail(w, errUnanswered(limit, co.trouble))
	}
	co.cancel()
}

// pass hands the lease of a hold that is over to the next in the cohort, if somebody waits and the
// budget allows it and the lease is good for a while.
//
// Safety: the next hold has a token of its own, one of those that the grant has reserved, and each
// is given out once: nobody else touches the lease's tokens, as the last hold is over and the next
// has not begun. Whoever comes when nobody waits finds the lease until it is removed, and is the
// acquirer's from then on, as removed and join are steps under mu
// (TestLeaseIsHandedOnInOrderWithOwnTokens, TestNoMoreTokensThanReserved, TestCrewStorm).
func (co *cohort) pass(l *lease, now instant) bool {
	c := co.core
	co.mu.Lock()
	defer co.mu.Unlock()
	if co.waiting == 0 || co.lease != l || !l.good(now) || c.closing.Err() != nil ||
		l.passes >= c.cfg.Wait.Passes ||
		// safeguard: reserved-tokens
		time.Duration(now-l.granted) >= c.cfg.Wait.PassTime || c.caps.Fencing && l.spare == 0 {
		return false
	}
	if c.caps.Fencing {
		l.token++ // safeguard: token-each
		l.spare--
	}
	l.passes++
	l.tookOver = 0      // safeguard: took-over-first
	co.spare = l.waiter // whose hold is over: it has got its outcome long ago
	co.give(co.first, l)
	return true
}

// removed has those who wait served by an acquirer from now on, as the lease is over.
func (co *cohort) removed(ctx context.Context, l *lease) {
	co.mu.Lock()
	defer co.mu.Unlock()
	if co.lease == l {
		co.lease = nil
		co.next(ctx, &l.claim, l.info)
	}
}

// passOrRelease deals with a lease that came too late for the one who waited for it.
func (co *cohort) passOrRelease(ctx context.Context, l *lease) {
	c := co.core
	if !co.pass(l, c.now()) {
		l.releaseBehind(ctx)
	}
}

// enqueue adds one who waits, at the end or in front. The caller has mu.
func (co *cohort) enqueue(ctx context.Context, o *call, inFront bool) *waiter {
	me := co.spare // used again with its channel, which is most of what a waiter costs
	if co.spare = nil; me == nil {
		me = &waiter{ready: make(chan outcome, 1)}
	}
	*me = waiter{
		ready: me.ready, queued: true, ctx: ctx, since: time.Now(), failBy: o.failBy,
		done: o.done,
	}
	switch {
	case co.first == nil:
		co.first, co.last = me, me
	case inFront:
		me.next, me.number = co.first, co.first.number-1
		co.first.prev, co.first = me, me
	default:
		me.prev, me.number = co.last, co.last.number+1
		co.last.next, co.last = me, me
		co.joinCrowd(me)
	}
	co.waiting++
	return me
}

// dequeue takes one who waits out of the queue: what it gets now is its outcome, or it wants none.
// The caller has mu.
func (co *cohort) dequeue(w *waiter) {
	if c := w.crowd; c != nil && c.first == w { // the next of it is right behind, or there is none
		if c.first = w.next; c.first == nil || c.first.crowd != c {
			c.first = nil
			close(c.empty)
		}
	}
	if w.prev == nil {
		co.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		co.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next, w.queued = nil, nil, false
	// It may be a guard's, which is not dropped as long as somebody has it. safeguard: waiter-ctx
	w.ctx = nil
	co.waiting--
}

// give gives one who waits the lease. Its channel has a slot, so the sender never waits. The caller
// has mu.
func (co *cohort) give(to *waiter, l *lease) {
	co.dequeue(to)
	l.waiter = to
	to.ready <- outcome{lease: l}
}

// fail tells one who waits why there is no lease. The caller has mu.
func (co *cohort) fail(w *waiter, err error) {
	co.dequeue(w)
	w.ready <- outcome{err: err, stopped: co.stopped} // safeguard: failed-withdrawn
}

// endWaits tells everybody who waits why there is no lease. The acquirer ends. The caller has mu.
func (co *cohort) endWaits(err error) {
	for w := co.first; w != nil; w = co.first {
		co.fail(w, err)
	}
	if co.cancel != nil {
		co.cancel()
	}
}

// close ends the waits because of Close.
func (co *cohort) close() {
	co.mu.Lock()
	defer co.mu.Unlock()
	co.endWaits(cmp.Or(co.blocked(0), error(ErrClosed)))
}
