package tracing

import (
	"time"

	"go.opentelemetry.io/otel/attribute"
)

// scope names this instrumentation to the providers.
const scope = "github.com/holdfast-go/holdfast/tracing"

// schema is that of OpenTelemetry's own names below.
const schema = "https://opentelemetry.io/schemas/1.37.0"

// The spans.
const (
	SpanLock    = "lock"      // followed by the class, as in "lock order"
	SpanWait    = "lock.wait" // likewise
	SpanLease   = "lock.lease"
	SpanRenew   = "lock.renew"
	SpanRelease = "lock.release"
	// Below lock.wait, followed by the holder's service: when it held meanwhile.
	SpanHeldBy = "held by "

	SpanStore = "store." // followed by the request: acquire, renew, release, watch, inspect
)

// The events of spans.
const (
	// Of lock, lock.wait and lock.lease: an attempt that was not granted at once; has the place in
	// the queue.
	EventAttempt  = "attempt"
	EventWake     = "wake"     // of lock.wait and lock.lease: goes on after a sleep
	EventGranted  = "granted"  // of lock and lock.lease: from here on it is held
	EventDeadlock = "deadlock" // of lock.wait: it waits for others that wait for it
	EventPass     = "pass"     // of lock: the lease goes to the next goroutine of this process
)

// The attributes. Those of spans alone may have any number of values; those marked with (m) are
// metrics' too.
const (
	// (m) what kind of lock it is; see locker.Config.Classes.
	AttrClass = attribute.Key("holdfast.key.class")
	AttrKey   = attribute.Key("holdfast.key") // the key itself, with Config.ShowKeys
	// (m) exclusive, shared, permit; spans have it unless it is exclusive.
	AttrMode = attribute.Key("holdfast.mode")
	// (m) of an acquisition, an attempt or a renewal; see the results.
	AttrResult = attribute.Key("holdfast.result")
	AttrCause  = attribute.Key("holdfast.cause") // (m) why a hold was lost
	// The fencing token; collectors black out what is called a token.
	AttrToken = attribute.Key("holdfast.fence")
	// Until when the hold was provably good when it began, RFC 3339.
	AttrDeadline = attribute.Key("holdfast.deadline")
	// How many a lock made with a claim of its own, unless one.
	AttrAttempts = attribute.Key("holdfast.attempts")
	// How often the hold's lease had been handed on before.
	AttrPasses = attribute.Key("holdfast.passes")
	// Of a lock: the fencing token of the hold before, if its lease ran out.
	AttrTakenOver = attribute.Key("holdfast.taken_over")
	AttrPosition  = attribute.Key("holdfast.position") // in the store's queue; 1 is next
	// Of a wake-up: signal, grant, closed, due, cohort, pass.
	AttrReason = attribute.Key("holdfast.reason")
	AttrLink   = attribute.Key("holdfast.link")  // what a link leads to; see the links
	AttrStore  = attribute.Key("holdfast.store") // the name of a wrapped backend

	// (m) who holds, by its own account.
	AttrHolderService = attribute.Key("holdfast.holder.service")
	AttrHolderHost    = attribute.Key("holdfast.holder.host")
	AttrHolderPID     = attribute.Key("holdfast.holder.pid")
	AttrHolderNote    = attribute.Key("holdfast.holder.note") // why, by locker.Note
	AttrHolderTrace   = attribute.Key("holdfast.holder.trace_id")
	AttrHolderToken   = attribute.Key("holdfast.holder.fence") // its fencing token, if it told
	// Of a bar: how the hold ended, if that is known; of a wait if one expired; see the ends.
	AttrHolderEnd = attribute.Key("holdfast.holder.end")
	// (m) of MetricWait alone: whether the key was found held.
	AttrContended = attribute.Key("holdfast.contended")
	// Of a wait: how many are known to have held meanwhile.
	AttrHolders = attribute.Key("holdfast.holders")
	// Of a wait: how many of them are not drawn, as they are more than maxBars.
	AttrOthers = attribute.Key("holdfast.others")
	// Of a wait: for how long those held in sum, in seconds.
	AttrOthersHeld = attribute.Key("holdfast.others_held")
	// Of a wait: for how long nobody held, in seconds.
	AttrUnheld = attribute.Key("holdfast.unheld")
	// Of a wait: for how long it is not known who held, in seconds.
	AttrUnexplained = attribute.Key("holdfast.unexplained")
	// Of a hold: how many waited: of its process meanwhile, and at the store when it ended.
	AttrWaiters = attribute.Key("holdfast.waiters")

	// Of EventDeadlock: of those who wait for each other, this one first.
	AttrServices = attribute.Key("holdfast.deadlock.services")
	// Where each called Lock: file and line.
	AttrPlaces = attribute.Key("holdfast.deadlock.places")
	AttrKeys   = attribute.Key("holdfast.deadlock.keys") // what each holds, with Config.ShowKeys

	AttrSystem    = attribute.Key("db.system.name")    // as OpenTelemetry has them
	AttrOperation = attribute.Key("db.operation.name") // the request, as in the span's name
	// How many keys a request was for, if it was for several.
	AttrBatch  = attribute.Key("db.operation.batch.size")
	AttrError  = attribute.Key("error.type") // the result, where it is an error
	AttrServer = attribute.Key("server.address")
	AttrPort   = attribute.Key("server.port")
)

// The links, as values of AttrLink.
const (
	// From a bar to the lock or lock.lease that was in its way, if that ended and knew of who
	// waited.
	LinkBlockedBy = "blocked_by"
	LinkLease     = "lease"   // from a lock to the lock.lease, or other lock, whose lease it uses
	LinkUsedBy    = "used_by" // from a lock.lease to the locks that use it
	// From a lock to the lock or lock.lease that was next, if that had waited for nextOver.
	LinkNext = "next"
)

// The ends of holds, as values of AttrHolderEnd.
const (
	EndReleased = "released" // by Unlock
	// Likewise, in another process, and the next of the store's queue had the key at once.
	EndHanded  = "handed"
	EndHolding = "holding" // it held when the wait came to nothing
	// Its lease ran out: whoever held died, or was stopped or cut off for too long.
	EndExpired = "expired"
)

// maxBars is how many holders of a wait are drawn, those that held for the longest.
const maxBars = 16

// nextOver is for how long a claim has waited to which a lock links that kept it waiting: longer
// than docs/tracing.md has tail sampling keep any trace for, as clocks of two hosts differ.
const nextOver = 600 * time.Millisecond

// The results, as values of AttrResult and AttrError.
const (
	ResultGranted   = "granted"   // of acquisitions and attempts
	ResultHeld      = "held"      // another holds
	ResultTimeout   = "timeout"   // ctx, or the wait limit, ran out
	ResultCancelled = "cancelled" // the caller went away
	// The caller holds it, or is one of those who wait for each other.
	ResultDeadlock = "deadlock"
	ResultClosed   = "closed" // the client was closed
	// The store will not, until somebody changes something: see the error.
	ResultRefused     = "refused"
	ResultUnavailable = "unavailable" // the store did not take the request
	ResultUnanswered  = "unanswered"  // the store did not answer
	// The store may have forgotten holds, and grants nothing until they are over.
	ResultQuarantined = "quarantined"

	ResultConfirmed = "confirmed" // of renewals
	ResultLost      = "lost"      // of renewals and releases: the store knows of no such hold
)

// The causes, as values of AttrCause.
const (
	CauseExpired = "expired"  // the lease ran out without a confirmed renewal
	CauseStore   = "store"    // the store said so
	CauseLeaked  = "leaked"   // a guard was dropped without Unlock
	CauseMaxHold = "max_hold" // it was held for too long
	CauseClosed  = "closed"   // the client was closed under it
	CauseOther   = "other"
)

// The metrics. Durations are in seconds.
const (
	MetricWait         = "holdfast.wait.duration" // histogram, by class, mode, result, contended
	MetricHold         = "holdfast.hold.duration" // histogram, by class, mode
	MetricAcquisitions = "holdfast.acquisitions"  // counter, by class, mode, result
	// Counter of those that had to wait, by class, mode.
	MetricContended = "holdfast.contended"
	MetricLost      = "holdfast.lost" // counter of holds, by class, mode, cause
	// Counter of holds whose predecessor's lease ran out, by class, mode.
	MetricTakenOver = "holdfast.taken_over"
	MetricRenewals  = "holdfast.renewals" // counter, by class, mode, result
	// Counter of seconds for which others were waited for, by class and the holder's service.
	MetricBlocked = "holdfast.blocked"
	// Counter of hand-overs inside the process, by class, mode.
	MetricPasses = "holdfast.passes"
	// Counter of attempts that a store in quarantine refused, by class, mode.
	MetricQuarantined = "holdfast.quarantined"
	// Counter of waits that were found to wait for each other, by class, mode.
	MetricDeadlocks = "holdfast.deadlocks"
	// Up-down counter of those that wait now, by class, mode.
	MetricWaiters     = "holdfast.waiters"
	MetricHolds       = "holdfast.holds"        // up-down counter, by class, mode
	MetricOldestWait  = "holdfast.wait.oldest"  // gauge of those that wait now, by class, mode
	MetricLongestHold = "holdfast.hold.longest" // gauge of those that last, by class, mode
)

// Buckets are the upper bounds of both histograms, in seconds: from a local hand-over to a lock
// that is stuck.
var Buckets = []float64{
	0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1,
	2.5, 5, 10, 30, 60, 300,
}
