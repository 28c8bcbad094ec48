// Package backend is the contract between holdfast and a store: verbs that make one attempt each.
//
// Applications import package locker. This package is for those who open a backend by URL, and for
// those who write one.
//
// # The verbs
//
// A [Backend] makes one attempt per call. It never waits for a lock, never retries, and never
// remembers a claim between calls on the caller's behalf: package locker does the waiting, the
// renewing and the cleaning up, once, for all stores. What a backend owes is that each verb is
// atomic in the store, idempotent by [Claim.Owner], and honest about its answer.
//
// # Three answers
//
// Every verb answers yes, no or unknown, and [AnswerOf] is the only place that decides which:
//
//   - nil is yes.
//   - [ErrHeld], [ErrLost], [ErrUnavailable], [ErrQuarantined] and every refusal ([Refused]) are
//     certainly no: nothing was changed.
//   - Anything else (a time-out, a reset, an ended ctx) is unknown: the store may have executed the
//     request, may still execute it, or may never see it.
//
// An unknown is never turned into a no. The caller resolves it by repeating the same Claim, which
// returns the grant that was already made, or by releasing it, which also refuses the attempt that
// is still in flight.
//
// # A claim's life
//
//  1. The caller picks a fresh Owner ([NewOwner]) and calls TryAcquire. Whatever the answer, that
//     Owner is never used for another acquisition.
//  2. If the answer is ErrHeld, the caller calls Watch, and only then TryAcquire again. The
//     subscription in Watch must be active before it returns: a release between the two attempts
//     would otherwise signal nobody, and the caller would sleep beside a free lock.
//  3. The caller waits for a Wake, for HeldError.RetryAfter, or for its own poll interval,
//     whichever comes first, and repeats step 2's attempt. A Wake is a hint: it may be lost, late,
//     doubled or false. Only TryAcquire's reply is proof.
//  4. While it holds, the caller calls Renew. A hold that has ended is never revived, not even by
//     its own owner.
//  5. The caller calls Release, on success, on cancellation and after an unknown answer. Release is
//     final for that Owner.
//
// # Time
//
// TTLs are durations on the wire, and the store's clock alone decides expiry: a client's wall clock
// reaches the store at most in a request for a token ([Claim.MinToken]), which is clamped. The
// caller counts its own deadline from before it sent the request, so its belief ends before the
// store's lease.
//
// # The queue
//
// A claim with Queue that is not granted takes the last place in the key's queue, or keeps the
// place it has, for WaiterTTL; the caller repeats TryAcquire well within WaiterTTL, which is its
// heartbeat. The rules:
//
//   - Nobody overtakes. While somebody is queued, a claim without Queue is refused (unless it
//     is a re-entrant claim of an owner who holds), and one with Queue is granted only when all
//     before it are gone or granted.
//   - Hand-off. Whatever may let the head in (a release, the end of a lease or of a place, noticed
//     by any verb of anybody) grants it in the same atomic step, and then the next, as long as they
//     fit: readers together, a writer alone. The grant is an ordinary hold whose first lease is the
//     shorter of WaiterTTL and TTL, and the claim is woken with it. Repeating TryAcquire returns
//     the grant and extends it to the TTL. If nobody does, it runs out and the next one is let in,
//     so a waiter that died costs the others WaiterTTL and no more.
//   - A place that lapsed is passed over. If its claim asks again, it goes to the end.
//   - Leaving is Release: it takes the claim out of the queue, or passes on the grant that raced
//     with it, in one step.
//   - A holder's Release tells how many waited, and who is next: see [Released].
//
// Exclusive excludes everybody, Shared everybody but Shared, Permit everybody but Permit and those
// beyond Limit; each hold has a lease of its own. Claim.Limit must be the same as that of all who
// hold or wait, else [ErrMismatch]. Permits count by [Claim.Weight]: the sum of the weights
// of those who hold never exceeds Limit. A re-entrant claim of an owner who holds already is
// granted at once with the same token, as a hold of its own.
//
// # What outlives a hold
//
// A key's state ([Claim.Load], [Claim.Save]) and its mark ([Claim.NotBefore]) are left by holders
// for later ones. Both are written in the step that proves the hold, and are part of no hold: no
// end of one touches them.
//
// # Writing a backend
//
// Implement Backend with [Base] embedded, and run backendtest.Run against a real server; the suite
// is the definition of a backend, and prints the reason of each rule it finds broken. The steps,
// and what goes wrong in each:
//
//  1. Call [Claim.Validate] first in TryAcquire and Renew, [Claim.ValidateRelease] in Release,
//     [ValidateKey] in the others. Bad input is refused before anything is written.
//  2. TryAcquire is one atomic step (a script, a transaction): if the Owner was released before,
//     refuse with ErrLost; if the Owner holds, extend and return the same Token; if another holds,
//     return *HeldError; else grant with a Token above every earlier Token of the key. Token and
//     grant are written together. All checks come before the first write.
//  3. Renew compares the Owner and the expiry in the same step that extends. It never creates, and
//     never shortens.
//  4. Release compares the Owner in the same step that deletes. Unless [Claim.NoneInFlight], it
//     also leaves a tombstone: an attempt of this Owner that lands later must be refused. A release
//     that overtakes its own acquire on another connection would otherwise leave a lock that nobody
//     knows of. The wake-up comes after the deletion.
//  5. Watch subscribes, waits for the store's confirmation, returns. Its channel has one slot: a
//     signal to a full channel is dropped, because one is already waiting there. After a reconnect
//     signal every watcher, since any message may have been missed. When ctx ends, the watch ends.
//     A closed channel says: poll.
//  6. Every verb returns when its ctx is done, even while the store is silent, and even if the
//     client library ignores ctx in a read. What is still on the wire then is an unknown answer. A
//     ctx may have no deadline, so a backend also bounds each request itself, by some seconds.
//  7. Turn off the client library's own retries: a retried acquire that is not idempotent reports
//     one's own lock as taken.
//  8. Errors are returned as they are, without the verb and the key; the caller adds both. They
//     never contain a password.
//  9. Observe is for people, and for programs that follow who leads. If the store tells of changes,
//     subscribe and call [ObserveBy], which looks and waits for the end of leases; one that tells
//     of states yields those. It costs nothing while nobody observes. Else [Base] returns
//     [errors.ErrUnsupported].
//  10. Close ends every goroutine that the backend started, waits for them, and closes what the
//     backend opened itself.
//
// Wrappers (tracing, faults, prefixes) embed the Backend interface they wrap and override what they
// change, so that a method added later is forwarded and not lost.
package backend
