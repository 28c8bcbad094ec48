package backend

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"
)

// A Backend is one client's view of a store that can keep locks. All methods may be called
// concurrently.
//
// Every verb makes one attempt, returns when ctx is done, and answers yes, no or unknown; see the
// package comment.
type Backend interface {
	// Capabilities says what this backend can do. It does not change during the backend's life and
	// asks nobody.
	Capabilities() Capabilities

	// TryAcquire grants c or returns an error that is [ErrHeld] (as *[HeldError], with what is
	// known of the holder). Repeating a granted claim returns the same grant with its lease
	// extended, so a lost reply is repeated safely. A claim that was released is refused with
	// [ErrLost] for good. With c.Queue it also takes, keeps or refreshes c's place in the queue,
	// which lapses unless refreshed.
	TryAcquire(ctx context.Context, c Claim) (Grant, error)

	// TryAcquireAll makes an attempt for each of claims, in their order, in one request to the
	// store, and ends at the first that it does not grant at once: because another holds or waits,
	// or for any other reason. grants are those of the claims before it. Of all others there is
	// nothing in the store, and TryAcquire says why. A grant is as one by TryAcquire, which may
	// repeat the claim. With an error each claim may have been granted, or may yet be, as after a
	// TryAcquire with that error. Claims are exclusive and ask for nothing else: without Queue,
	// Reentrant, Load, NotBefore and MinToken; at most [MaxTryAll]. An error that is
	// [errors.ErrUnsupported] says that the store has no such request, also if it is asked about
	// none.
	TryAcquireAll(ctx context.Context, claims []Claim) (grants []Grant, err error)

	// Heartbeat keeps the places of claims that wait, of any keys, in as few requests as the store
	// allows: a place that is still in its queue lasts for its claim's WaiterTTL from now, as by a
	// repeated TryAcquire. answers are in the order of claims, and say what TryAcquire would, but
	// that nothing is granted: a *[HeldError] with a Position for a claim that waits; [ErrLost] for
	// any other (granted meanwhile, lapsed, released, or Reentrant, and its owner holds by now),
	// which is to ask by TryAcquire; else why there is no answer for it. Like every verb it lets in
	// whoever is next if something has run out. All claims have Queue; there are at most
	// [MaxHeartbeat]. err is instead of answers. One that is [errors.ErrUnsupported] says that each
	// claim has to repeat TryAcquire itself.
	Heartbeat(ctx context.Context, claims []Claim) (answers []error, err error)

	// Renew extends the hold to c.TTL from now, never shortens it, and never revives one that
	// ended: then it is [ErrLost].
	Renew(ctx context.Context, c Claim) error

	// Release forgets c: its hold, its place in the queue, and (unless c.NoneInFlight) an attempt
	// that is still in flight. It wakes those who wait. It returns nil if c held until now, and
	// [ErrLost] if c did not: the lease had expired, another holds, or c never held. Either way
	// nothing of c is left, but what it saved.
	//
	// With c.NoneInFlight a store need not look at the time: it may return nil after the end of the
	// lease, if nobody else has held since. The caller believed in the hold, by a deadline of its
	// own that comes before the lease's end, or knows that it did not.
	//
	// A release that got no answer is repeated, and leaves what it has to leave once. As ErrLost
	// then says that an earlier one did, a store ends no hold before its lease's end but by a
	// release.
	//
	// With a yes it tells who waited, as far as the store has that in hand: it makes no request and
	// no write for it. With an error it tells nothing: [Released] is zero.
	Release(ctx context.Context, c Claim) (Released, error)

	// TryReleaseAll releases those of claims that hold alone and that nobody waits for, in one
	// request to the store, and says which: each of them as Release does. Nothing was done about
	// the others, and Release says what there is to say of them. With an error each may have been
	// released. Claims have NoneInFlight and leave nothing: no Save, no NotBefore; at most
	// [MaxTryAll]. It is supported where TryAcquireAll is.
	TryReleaseAll(ctx context.Context, claims []Claim) (released []bool, err error)

	// ReleaseAll releases claims, of any keys, each as Release does, in as few requests as the
	// store allows. answers are in the order of claims, and each is that of one claim alone: some
	// may be released and others not. None of them is told who waited. There are at most
	// [MaxReleaseAll]. err is instead of answers. One that is [errors.ErrUnsupported] says that
	// each claim has to be released by itself, also if it is asked about none.
	ReleaseAll(ctx context.Context, claims []Claim) (answers []error, err error)

	// Watch is subscribed before it returns. Then it signals, coalesced and perhaps spuriously,
	// whenever c.Key may be free or c's own hold is gone. A store may need to have been asked since
	// (TryAcquire, refused because of a hold) to signal that hold's release: so ask, then sleep. A
	// Wake may carry the Grant itself (direct hand-off). The watch ends with ctx. A closed channel,
	// and an error that is [errors.ErrUnsupported], say that wake-ups are not to be had: poll.
	Watch(ctx context.Context, c Claim) (<-chan Wake, error)

	// Inspect tells who holds key and who waits, as of now, for people and tools. It is not a proof
	// of ownership.
	Inspect(ctx context.Context, key string) (State, error)

	// Observe tells who holds key, for people and tools: first as of now, and then after each
	// change of who holds, the end of a lease included; sometimes without a change, too. A hold
	// that begins after the first state and lasts for longer than two round trips to the store is
	// in one of the states, if the caller's loop keeps up. Nobody who does not observe pays for it.
	//
	// It goes on until the caller leaves the loop. An error says that the store gives no answer,
	// and a state comes when it does again; but an error that is ctx's, or is [Refused], is the
	// last element. One that is [errors.ErrUnsupported] says that the store tells of no changes
	// (any more): look by Inspect.
	Observe(ctx context.Context, key string) iter.Seq2[State, error]

	// List tells of the locks whose keys begin with prefix and that somebody holds or waits for, in
	// no order: for people and tools, and in as many requests as that takes, none of which keeps
	// the store from other work for long. A lock that is taken or freed meanwhile may be told of or
	// not, every other is, once at least. An error ends it; [errors.ErrUnsupported] says that this
	// store cannot tell its locks from other data.
	List(ctx context.Context, prefix string) iter.Seq2[Listed, error]

	// ForceRelease ends the hold of key that has token, whoever holds it, for people and tools: as
	// if its own client had released it, so whoever is next is let in, and an attempt of the claim
	// that arrives later is refused. Its client learns of the loss as of any other, and may be at
	// work until then. It returns the hold that it ended, or [ErrLost] if no hold has the token. (A
	// lease that a process hands on among its goroutines is one hold, and has its first token.)
	ForceRelease(ctx context.Context, key string, token uint64) (Holder, error)

	// Saved returns key's stored state as of now, nil if none was ever saved: what a claim with
	// Load would be granted, without a claim. It is the caller's to keep. Who is about to write
	// needs a claim. It returns an error wrapping [errors.ErrUnsupported] if the store keeps no
	// state, see Capabilities.State.
	Saved(ctx context.Context, key string) (state []byte, err error)

	// Identity returns what is different for every server, and for every life of one that may
	// forget, and the same for all of its clients, such as Redis's replication id. A quorum finds
	// by it restarts, and the same server listed twice. It is no secret. It returns an error
	// wrapping [errors.ErrUnsupported] if there is none, as for a cluster.
	Identity(ctx context.Context) (string, error)

	// Diagnose looks at how the store is set up and how it does, for people and tools: at what
	// could cost locks, or keep them from being taken. It changes nothing. What it may not look at
	// it leaves out. The error says that the store gave no answer.
	Diagnose(ctx context.Context) ([]Finding, error)

	// Close ends the backend's goroutines and waits for them. Holds are not released: their leases
	// run out. Later calls fail with [ErrClosed]. Close may be called twice.
	Close() error

	mustEmbedBase()
}

// Base makes room for new methods: a backend embeds it, and a method added to [Backend] later is
// answered by Base with [errors.ErrUnsupported] until the backend has its own.
type Base struct{}

// Identity returns an error wrapping [errors.ErrUnsupported].
func (Base) Identity(context.Context) (string, error) {
	return "", fmt.Errorf("%w: a backend that does not tell which server it talks to",
		errors.ErrUnsupported)
}

// Saved says that there is no stored state.
func (Base) Saved(context.Context, string) ([]byte, error) {
	return nil, Capabilities{}.Missing(Capabilities{State: true})
}

// TryAcquireAll says that each claim has to be asked for by itself.
func (Base) TryAcquireAll(context.Context, []Claim) ([]Grant, error) {
	return nil, fmt.Errorf("%w: one attempt for several claims", errors.ErrUnsupported)
}

// TryReleaseAll says that each claim has to be released by itself.
func (Base) TryReleaseAll(context.Context, []Claim) ([]bool, error) {
	return nil, fmt.Errorf("%w: one release of several claims", errors.ErrUnsupported)
}

// Heartbeat says that each claim has to repeat TryAcquire.
func (Base) Heartbeat(context.Context, []Claim) ([]error, error) {
	return nil, fmt.Errorf("%w: one heartbeat for several waiters", errors.ErrUnsupported)
}

// ReleaseAll says that each claim has to be released by itself.
func (Base) ReleaseAll(context.Context, []Claim) ([]error, error) {
	return nil, fmt.Errorf("%w: one release of several claims", errors.ErrUnsupported)
}

// Observe says that the store tells of no changes.
func (Base) Observe(context.Context, string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		yield(State{}, Capabilities{}.Missing(Capabilities{Observe: true}))
	}
}

// List says that locks cannot be listed.
func (Base) List(context.Context, string) iter.Seq2[Listed, error] {
	return func(yield func(Listed, error) bool) {
		yield(Listed{}, fmt.Errorf("%w: a list of the locks", errors.ErrUnsupported))
	}
}

// ForceRelease says that it cannot be done.
func (Base) ForceRelease(context.Context, string, uint64) (Holder, error) {
	return Holder{}, fmt.Errorf("%w: release of another client's hold", errors.ErrUnsupported)
}

// Diagnose has nothing to say.
func (Base) Diagnose(context.Context) ([]Finding, error) { return nil, nil }

func (Base) mustEmbedBase() {}

// A Grant is the store's yes to a claim.
type Grant struct {
	// fencing token: above every earlier token of the key; 0 only without Capabilities.Fencing
	Token uint64
	// the lease granted, never below Claim.TTL; it counts from when the attempt was sent
	TTL time.Duration
	// the key's stored state, if Claim.Load; nil if none was ever saved, and the caller's to keep
	State []byte

	// tokens from Token upward that are this grant's alone, at most Claim.Reserve; 0 is 1
	Reserved int

	// Before, of a grant that is handed over, is who held before it, the latest last, as far as the
	// store or those holders tell; at most [MaxBefore]. It decides nothing.
	Before []Past

	// TookOver is the last token of an exclusive hold whose lease ran out before anybody released
	// it, if this grant is the first since: its holder died, or was cut off or stopped for too
	// long, and may have left its work half done. So it is as far as the store knows; 0 proves
	// nothing, and where [Capabilities].TookOver is missing it always is 0. A hold that was ended
	// by force was released.
	TookOver uint64
}

// A Past is a hold that is over: whose it was, its token, and how long it lasted.
type Past struct {
	Meta  Meta          `json:"meta,omitzero"`   // of its claim
	Token uint64        `json:"token,omitempty"` // its first, if several were reserved; 0 unknown
	For   time.Duration `json:"for"`             // by the clock of whoever tells
}

// Released is what the release of a hold tells of those whom it kept waiting, for people and tools:
// it decides nothing. The zero Released says that nobody is known to have waited: without
// [Capabilities].Queue a store knows of nobody, and where it would have to read more for it, it may
// leave out who waited for a claim that was made less than [ShortHold] ago by its Meta.Since.
type Released struct {
	// Waiting is how many claims were in the key's queue when the hold ended, those that the
	// release let in included. A place that has just lapsed may still count; a claim without Queue
	// does not.
	Waiting int

	Next Meta // of the first of them; zero if there is none, or it is not known
}

// ShortHold is the age below which a claim's release need not tell who waited, see [Released]:
// nobody has waited for long because of it.
const ShortHold = 10 * time.Millisecond

// A Wake says that a key may be free. It is a hint, unless it carries a grant.
//
// A grant that was handed over may be believed without asking, under one condition: its Token is
// above HeldError.Token of the claim's last answered attempt or heartbeat. Then the grant was made
// after the store executed that request, so its lease of Grant.TTL counts from when that request
// was sent. A message that was late (and whose grant may have lapsed since) fails the test.
type Wake struct {
	Granted bool // Grant was made to the watching claim
	Grant   Grant
}

// A State is what [Backend.Inspect] sees.
type State struct {
	Holders []Holder // live holds; one at most in Exclusive mode
	Waiters []Waiter // in the queue, first come first
	Token   uint64   // the last fencing token granted, as far as the store remembers; 0 unknown
}

// Listed is one lock that [Backend.List] tells of.
type Listed struct {
	Key   string // as in its claims
	State State  // as [Backend.Inspect] sees it
}

// A Holder is one live hold.
type Holder struct {
	Owner string
	ID    string // what [Claim.ID] of its claim is
	Mode  Mode
	Token uint64
	TTL   time.Duration // what remains of the lease, by the store's clock
	Meta  Meta

	Weight int // of a permit; 0 is 1
}

// A Waiter is one claim in the queue.
type Waiter struct {
	Owner string
	Mode  Mode
	Meta  Meta

	Weight int // of a permit; 0 is 1
}

// A Level is how bad a [Finding] is.
type Level string

// The levels.
const (
	OK   Level = "ok"
	Warn Level = "warn" // locks work, but a fault costs more than it must
	Fail Level = "fail" // locks do not work, or can be lost without a fault
)

// A Finding is something that [Backend.Diagnose] has looked at.
type Finding struct {
	Check  string // what it is about, in a word: eviction, persistence
	Level  Level
	Text   string // what was found, without secrets
	Change string // what to change; empty if nothing

	// MinTTL is the least TTL for which a finding at Level OK is one; for shorter leases it is a
	// Warn. 0 is any.
	MinTTL time.Duration
}
