package locker

import (
	"context"
	"slices"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// An Op is an operation that an [Observer] is told of. It is a string, under another name so that
// the page of this package has these constants here, and not before Lock; so are [EventKind] and
// [WakeReason].
type Op = string

// The operations. Each begins under the ctx of the one that it
// belongs to.
const (
	// OpLock is one Lock or TryLock, from the call to the end of the hold, the release included. If
	// nothing is granted, it ends with Lock's error; after EventGrant it ends with nil after
	// Unlock, and else with why the hold ended.
	OpLock Op = "lock"

	// OpWait belongs to an OpLock that has to wait: from the first attempt that came to nothing, or
	// from joining the cohort, to the grant (it ends with nil) or the failure.
	OpWait Op = "wait"

	// OpLease is the lease of a cohort: from when the process asks the store on behalf of those who
	// wait, under the ctx of the first of them, to the end of the lease (with nil, or why it was
	// lost), or to the failure. EventGrant says that the store has granted. Several OpLocks may use
	// the lease, one after the other.
	OpLease Op = "lease"

	// OpAttempt is one attempt of an OpLock or an OpLease. It ends with a *backend.HeldError if
	// another holds.
	OpAttempt Op = "attempt"

	OpRenew   Op = "renew"   // one renewal, or Check, of an OpLock
	OpRelease Op = "release" // one release, by Unlock or of a claim that came to nothing
)

// An Observer is told what happens to locks. Package tracing has one that makes spans and metrics
// of it. Its methods are called on the path of every lock and concurrently: they must be quick and
// must not block.
type Observer interface {
	// Begin is called when op begins. Everything that belongs to the operation is done under the
	// ctx that it returns, which must be derived from ctx; that of an OpLock is the parent of the
	// guard's Context. The function it returns is called once, when op ends, with what is known of
	// the hold by then and the operation's error.
	Begin(ctx context.Context, op Op, h Hold) (context.Context, func(Hold, error))
}

// An EventObserver is an [Observer] that is also told what happens during operations.
type EventObserver interface {
	Observer

	// Event is called when e happens. ctx is the operation's.
	Event(ctx context.Context, e Event)
}

// An EventKind is what an [Event] says: a string, see [Op].
type EventKind = string

// The kinds of events.
const (
	// An OpWait or an OpLease goes on after it slept; Reason says why.
	EventWake  EventKind = "wake"
	EventGrant EventKind = "grant" // an OpLock or an OpLease has got Lease: from now on it is held
	// An OpLock hands Lease on to the next of its cohort, and is about to end.
	EventPass EventKind = "pass"

	// EventRelease: the store has confirmed an OpRelease, and Released says who waited. There is
	// none if it tells of nobody, or the release had to be repeated.
	EventRelease EventKind = "release"

	// EventDeadlock: an OpWait waits for others that wait for it, see Cycle. It comes once for each
	// cycle, and concurrently to other events of the OpWait.
	EventDeadlock EventKind = "deadlock"
)

// A WakeReason is why an [EventWake] came: a string, see [Op].
type WakeReason = string

// The reasons of EventWake.
const (
	WakeSignal WakeReason = "signal" // the store said that the key may be free
	WakeGrant  WakeReason = "grant"  // the store granted the key together with the wake-up
	WakeClosed WakeReason = "closed" // the store sends no wake-ups any more
	// The blocking lease should have run out, or it was time to ask anyway.
	WakeDue    WakeReason = "due"
	WakeCohort WakeReason = "cohort" // the cohort was granted a lease
	WakePass   WakeReason = "pass"   // a holder of the cohort handed its lease on
)

// An Event is something that happens during an operation.
type Event struct {
	Kind   EventKind
	Reason WakeReason // of EventWake
	Lease  Lease      // of EventGrant and EventPass

	// Before, of EventWake, is who held the key until now, the latest last, as far as they told it.
	Before []backend.Past

	Released backend.Released // of EventRelease

	Cycle []Waiting // of EventDeadlock; the first is the OpWait itself
}

// A Lease is what the store granted, and the holds of one process may use it one after the other.
type Lease struct {
	Claim  backend.Meta // what its claim says to the store of who asks
	Token  uint64       // of EventGrant: the fencing token
	Until  time.Time    // of EventGrant: the local deadline
	Passes int          // of EventGrant: how often the lease was handed on before

	TookOver uint64 // of EventGrant: as in [Hold]
}

// A Hold is what is known of one hold of a lock.
type Hold struct {
	Key   string // as the caller gave it, without the namespace
	Class string // what kind of lock it is, by [Config.Classes]; "" if none of them fits Key
	Mode  backend.Mode
	Token uint64 // rises strictly from holder to holder of Key; 0 if the backend has no fencing

	// TookOver, of an exclusive hold, is the last token of the hold before if its lease ran out
	// before the store had its release: as a rule that holder died, or was stopped or cut off for
	// too long, and may have left its work half done (EOWNERDEAD of a robust mutex). The first hold
	// since is told; by [All], which may have to give a key back at first, also the hold that it
	// gets after that. 0 proves nothing: see [backend.Capabilities].TookOver for which stores tell.
	TookOver uint64

	// StoreKey is Key with the namespace, as the backend has it, for whoever asks the store about
	// the hold; empty until it is granted.
	StoreKey string

	Note string // why, by [Note]
}

type traceparentKey struct{}

// WithTraceparent returns a ctx that carries a W3C traceparent. If Begin of OpLock or OpLease
// returns such a ctx, the claim takes the traceparent to the store in its metadata, where those who
// wait for the lock find it. It should name the operation's span.
func WithTraceparent(ctx context.Context, text string) context.Context {
	return context.WithValue(ctx, traceparentKey{}, text)
}

// Traceparent returns what an Observer gave to [WithTraceparent], for others: "" if nothing.
func Traceparent(ctx context.Context) string {
	text, _ := ctx.Value(traceparentKey{}).(string)
	return text
}

// Observers returns one Observer that tells several: the ctx goes through all of them in order, and
// ends are told in reverse. Nil ones are left out.
func Observers(all ...Observer) Observer {
	var many observers
	for _, o := range all {
		if o != nil {
			many = append(many, o)
		}
	}
	return many
}

type observers []Observer

// Begin tells all.
func (many observers) Begin(ctx context.Context, op string,
	h Hold,
) (context.Context, func(Hold, error)) {
	ends := make([]func(Hold, error), len(many))
	for i, o := range many {
		ctx, ends[i] = o.Begin(ctx, op, h)
	}
	return ctx, func(h Hold, err error) {
		for i := len(ends) - 1; i >= 0; i-- {
			ends[i](h, err)
		}
	}
}

// Event tells those who listen.
func (many observers) Event(ctx context.Context, e Event) {
	for _, o := range many {
		if o, ok := o.(EventObserver); ok {
			o.Event(ctx, e)
		}
	}
}

// observe reports an operation to the observer, if there is one, and returns what to call at the
// end.
func (c *core) observe(ctx context.Context, op string,
	h Hold,
) (context.Context, func(Hold, error)) {
	if c.cfg.Observer == nil {
		return ctx, ignore
	}
	return c.cfg.Observer.Begin(ctx, op, h)
}

func ignore(Hold, error) {}

// observeAcquirer begins the operation of an acquirer, which its claim names.
func (c *core) observeAcquirer(ctx context.Context, w *wait) context.Context {
	ctx, w.finish = c.observe(ctx, OpLease, w.info)
	if c.cfg.Observer != nil {
		c.sign(ctx, &w.claim)
	}
	return ctx
}

// observeWake reports to the observer that a wait goes on. Inlined, its Event would be on the stack
// of each goroutine that sleeps.
//
//go:noinline
func (c *core) observeWake(ctx context.Context, reason string, before ...backend.Past) {
	if c.events != nil {
		c.events.Event(ctx, Event{Kind: EventWake, Reason: reason, Before: before})
	}
}

// claimForRelease returns the claim of a lease for its release, which tells whom it lets in who
// held before. Those who wait know who held when they came, and later holders came out of the
// queue: so for a free lock nothing is told.
func (c *core) claimForRelease(l *lease) *backend.Claim {
	if c.events == nil || !l.queued {
		return &l.claim
	}
	claim := l.claim // a renewal may be reading it
	known := claim.Before[max(0, len(claim.Before)-backend.MaxBefore+1):]
	claim.Before = append(slices.Clip(known), backend.Past{
		Meta: claim.Meta, Token: l.token - uint64(l.passes),
		For: time.Duration(c.now() - l.granted),
	})
	return &claim
}

// observeTurn reports to the observer why a wait in a cohort goes on.
func (c *core) observeTurn(ctx context.Context, l *lease) {
	if c.events == nil {
		return
	}
	if l.passes > 0 {
		c.observeWake(ctx, WakePass)
	} else {
		c.observeWake(ctx, WakeCohort)
	}
}

// sign puts into claim the traceparent that the observer gave the operation. (Without an observer,
// one that ctx has belongs to another Client's lock.)
func (c *core) sign(ctx context.Context, claim *backend.Claim) {
	if text := Traceparent(ctx); text != "" {
		claim.Meta.Traceparent = text
	}
}
