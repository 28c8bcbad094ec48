// Package record makes a whole [backend.Backend] of any store that can change one value in one
// atomic step: a lock is a [Record], a state machine as data, and the store keeps it as bytes. The
// queue, hand-over, heartbeats, shared locks, permits with weights, re-entrancy, tokens,
// tombstones, stored states, marks and force come with it.
//
// # What a store gives
//
//   - [Store]: replace a key's value by what a function makes of it, in one atomic step (a
//     transaction, or read and compare-and-swap: [ByVersion]), and read it.
//   - The time, which its methods hand over with the value. See below.
//   - Optional, [Config].Watch: a notice when a value has changed. Without it, what somebody waits
//     for is read every Config.Poll, and Observe is not offered.
//   - Optional, Config.Keys: which keys there are, for List.
//
// # The form of a record
//
// A value is the text "hfr", the version (one byte, "1"), the fields below, and a CRC-32C (4 bytes,
// big endian) of the key and all of that. Numbers are unsigned varints; texts, owners and states
// any bytes, with their length before them; times are nanoseconds since 1970 by the store's clock,
// and lengths of time nanoseconds; a list has its length before it. No value, and an empty one, are
// a free key.
//
//	record     token, lapsed, mark (time), state (0: never saved; else 1 + length, and the bytes),
//	           list of holds, list of places, list of tombstones, sorted: ID, until (time)
//	hold       flags (a byte: 1 re-entrant, 2 handed over, 4 with its state), owner, for a
//	           re-entrant one its ID, mode, limit, weight, token, tokens reserved, end (time),
//	           token of the hold taken over, meta; if handed over: its first lease, list of past
//	           holds: meta, token, length
//	place      flags (a byte: 1 re-entrant, 2 load), owner, for a re-entrant one its ID, mode,
//	           limit, weight, TTL, waiter TTL, reserve, least token, end (time), meta
//	meta       service, host, pid, traceparent, since (time), note, waits, quorum
//
// A version that does not know the form of a value answers [backend.ErrForeign], and so it does if
// the checksum is wrong: it never takes a lock for free that it cannot read, and never drops a
// field that it does not know. So a version that gives records a new form has to write the old one
// until it is told that all clients can read the new one.
//
// A record takes some 60 bytes for each claim that holds or waits, and what its Meta has (a
// traceparent is 55); and for each that was released while an attempt of it may be in flight, some
// 35 for twice its TTL and a minute. Beside a state it takes Config.MaxRecord
// bytes at most: a claim that finds it full is a *[FullError]. The
// verb that finds nothing left of a key (usually the last release) deletes its value; one with a
// stored state stays.
//
// # Whose clock
//
// Lengths of time go in, and one clock decides. If the store has one (a database's now(), the time
// in an answer's header), its methods hand that over, and clients' clocks do not matter. Else they
// hand over their machine's, and Config.Skew says how far two may be apart.
//
// Safety: a lease is written as now + TTL + Skew, by a now that was read after the request was
// sent, and ended by another client whose clock shows that. The clocks are Skew apart at most, so
// at least TTL has passed since the request was sent, and its claim has stopped to believe in it
// (package locker, which allows for clocks that differ in speed). A now that is old when it is
// written ends others' leases later, never earlier. A clock that steps forward by more than Skew
// ends leases early, as it does in Redis.
//
// Tokens are the clock's, or one above the last of the record, whichever is more. A record is
// deleted only when the clock, less Skew, has passed its last token, so the first token of the next
// one is above it.
//
// # Why a lost answer does no harm
//
// Safety: a change follows from the value that it replaces, so the changes of a key are one after
// the other, and each is a verb as a whole; a store that answered "changed meanwhile" has written
// nothing, so the verb begins anew. A change whose answer was lost is unknown ([backend.AnswerOf]),
// and is not repeated here. The caller repeats the verb, or releases the claim: whoever finds the
// claim's ID among the holds had a grant, among the places had a place, among the tombstones was
// released. So no value needs a mark of who wrote it. An attempt that is executed after its claim's
// release finds the tombstone, which lasts for twice the claim's TTL and a minute: calls have to be
// over by then ([Config].Timeout).
//
// # What is not promised
//
// A store that loses a change that it has confirmed, or shows an old value, loses locks; there is
// no quarantine after that. A key that many want at once costs a write for each attempt, one after
// the other.
package record
