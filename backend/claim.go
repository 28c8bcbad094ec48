package backend

import (
	"crypto/rand"
	"encoding/base64"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// Limits that hold for every backend, checked by [Claim.Validate] before anything is written.
const (
	MaxKey   = 1 << 10        // bytes of a key, namespace included
	MaxOwner = 1 << 8         // bytes of an owner
	MaxMeta  = 4 << 10        // bytes of all texts of a Meta together
	MaxNote  = 200            // bytes of Meta.Note
	MaxState = 64 << 10       // bytes of a key's stored state
	MaxTTL   = 24 * time.Hour // a crashed holder blocks others for this long at most

	MaxNotBefore = 366 * MaxTTL // a job runs once a year

	MaxReserve    = 1 << 10   // tokens of one claim
	MaxPermits    = 1<<31 - 1 // of one semaphore
	MaxHeartbeat  = 1 << 8    // claims of one Heartbeat
	MaxTryAll     = 1 << 8    // claims of one TryAcquireAll or TryReleaseAll
	MaxReleaseAll = 1 << 8    // claims of one ReleaseAll
	MaxBefore     = 16        // past holds that a release tells of
	// Of a token: in microseconds the year 2112, and still exact where stores count in float64.
	MaxMinToken = 1 << 52
)

// Mode is how a claim shares its key with others. The zero Mode is Exclusive.
type Mode uint8

const (
	Exclusive Mode = iota // nobody else
	Shared                // any number of Shared claims, no Exclusive one
	Permit                // up to Claim.Limit Permit claims
)

// String returns the mode's name in lower case.
func (m Mode) String() string {
	switch m {
	case Exclusive:
		return "exclusive"
	case Shared:
		return "shared"
	case Permit:
		return "permit"
	}
	return "Mode(" + strconv.Itoa(int(m)) + ")"
}

// A Claim is one acquisition's request to hold a key. It is a value: a backend keeps nothing of it
// that the store does not.
type Claim struct {
	// any UTF-8 of 1 to MaxKey bytes; bytes are identity, no case folding or normalisation
	Key   string
	Owner string // unique to the acquisition ([NewOwner]), or the re-entrant owner's name

	Mode  Mode
	Limit int           // Permit holders allowed together: the sum of their weights at most
	TTL   time.Duration // between Capabilities.MinTTL and MaxTTL; may be rounded up, never down
	// wait in the queue; a claim that does not must not overtake those that do
	Queue bool
	// with Queue: how long the place in the queue, or an unclaimed grant, lasts unless refreshed
	WaiterTTL time.Duration
	Reentrant bool // the same Owner may hold again; freed when every hold is released
	// with Reentrant: names this hold of Owner, as unique as an Owner is elsewhere ([NewOwner])
	Hold string
	// Exclusive: how many tokens to take, from Grant.Token upward; see Grant.Reserved; 0 is 1
	Reserve int
	// who asks; shown to those who wait; a repeat of an Exclusive claim that queues may change it
	Meta Meta

	// Weight is how many of Limit a Permit claim counts for while it holds, at most all of them
	// (Capabilities.Weight); 0 is 1. A heavy claim at the head of the queue waits until it fits,
	// and is not overtaken by lighter ones. A repeat does not change it.
	Weight int `json:",omitempty"` // so that what is stored of other claims is as it always was

	// Load has TryAcquire return the key's stored state in Grant.State, as it is when c is granted,
	// or, on a repeat, now. A grant that is handed over carries it, too.
	Load bool

	// Save, if it is not nil, is what Renew and Release write as the key's state, of up to MaxState
	// bytes: in the step that proves that c holds, so a refusal writes nothing. TryAcquire writes
	// nothing. The state is part of no hold: it outlives the hold, its holder and others who save
	// nothing, and among holders together the last to save is heard. Empty is a state as well.
	//
	// A Renew that was not answered may still be executed while c holds, also after a later one. To
	// be sure which state stays, Release with it: nothing of c is executed after that.
	Save []byte

	// NotBefore is a job's: the least time between the beginnings of its runs. On Release it leaves
	// a mark that a run that began Ran before has ended (Capabilities.NotBefore). TryAcquire of a
	// claim that has a NotBefore is refused with [ErrEarly] if the run began, by the store's clock,
	// less than the claim's own NotBefore ago; or if the mark is that of the hold with the token
	// Awaited, or of a later one, however long ago it began. Other claims do not see the mark. It
	// is left in the step that proves that c holds, in the place of an earlier one, and outlives
	// the hold for [MarkLife] of NotBefore; a release that finds no hold leaves none. Only a plain
	// exclusive claim may have a NotBefore, without Queue.
	NotBefore time.Duration
	Ran       time.Duration `json:",omitempty"` // on Release with NotBefore
	// on TryAcquire with NotBefore: HeldError.Token of its first refusal; 0 is none
	Awaited uint64 `json:",omitempty"`

	// MinToken asks for a token that is not below it (Capabilities.MinToken); 0 asks for nothing.
	//
	// On TryAcquire it is a request, as it comes from a client's clock: the token granted is at
	// least the lesser of MinToken and the store's own clock (microseconds since 1970; the
	// backend's, where the store has none) plus a quarter of TTL, see [MinTokenLimit]. On Renew it
	// is an order: in the step that proves the hold, the hold's token becomes at least MinToken,
	// and every later token of the key is above it and above what the hold has reserved.
	MinToken uint64

	// NoneInFlight, on Release, says that every attempt of this claim was answered, so that none is
	// in flight. Release then need not leave a tombstone, which is a field and some bytes in the
	// store for about twice the TTL. And if the caller held, it judges by its own deadline whether
	// the hold lasted: see Release. The zero value is the safe one.
	NoneInFlight bool

	// Before, on Release, is who held before, for those let in by it: what Grant.Before was,
	// and then this hold. A store that knows by itself need not look at it; others pass on the last
	// [MaxBefore] of them, and keep nothing. Nil if nobody is to be told.
	Before []Past
}

// Meta says who asks, for those who wait and for tools. It decides nothing.
type Meta struct {
	Service     string `json:"service,omitempty"`
	Host        string `json:"host,omitempty"`
	PID         int    `json:"pid,omitempty"`
	Traceparent string `json:"traceparent,omitempty"` // W3C trace context of the hold
	// when the claim was made, by the claimant's wall clock, if it says so
	Since time.Time `json:"since,omitzero"`
	Note  string    `json:"note,omitempty"` // why it is made, in the caller's words

	// Waits is empty but in a record that the claimant of another claim has left, see package
	// locker:
	// what it waits for.
	Waits string `json:"waits,omitempty"`

	// Quorum is a quorum's own, for its nodes to show to its other clients: which claim it is and
	// by which list of nodes. It is short, and empty in what a quorum itself shows.
	Quorum string `json:"quorum,omitempty"`
}

// ID is what tells this acquisition from every other: Owner, or Hold for a re-entrant claim.
// Repeats, renewals, releases and tombstones go by it.
func (c Claim) ID() string {
	if c.Reentrant {
		return c.Hold
	}
	return c.Owner
}

// Validate refuses a claim that no store should see, or that a backend with caps cannot honour. The
// error is an *[InvalidError], or one that is [errors.ErrUnsupported].
func (c Claim) Validate(caps Capabilities) error {
	if err := ValidateKey(c.Key); err != nil {
		return err
	}
	if c.Owner == "" || len(c.Owner) > MaxOwner {
		return invalidName("owner", c.Owner)
	}
	if err := ValidateTTL(c.TTL, caps.MinTTL); err != nil {
		return err
	}
	if m := &c.Meta; len(m.Service)+len(m.Host)+len(m.Traceparent)+len(m.Note)+len(m.Waits)+
		len(m.Quorum) > MaxMeta {
		return invalid("meta", m.Service, "has over "+strconv.Itoa(MaxMeta)+" bytes")
	}
	if c.plain(caps) {
		return nil // nearly every claim
	}
	return c.validateMore(caps)
}

// plain reports whether c asks for nothing that a backend may lack, but perhaps for a place in the
// queue that caps has.
func (c *Claim) plain(caps Capabilities) bool {
	return c.Mode == Exclusive && c.Limit == 0 && c.Weight == 0 && c.Reserve >= 0 &&
		c.Reserve <= MaxReserve &&
		!c.Reentrant && !c.Load && c.Save == nil && c.NotBefore == 0 && c.MinToken == 0 &&
		len(c.Meta.Note) <= MaxNote &&
		(!c.Queue || caps.Queue && c.WaiterTTL > 0 && c.WaiterTTL <= MaxTTL)
}

// validateMore checks what a plain claim does not ask for, and says what is wrong with one.
func (c *Claim) validateMore(caps Capabilities) error {
	if err := c.validateMode(); err != nil {
		return err
	}
	if err := caps.Missing(Capabilities{
		Shared: c.Mode == Shared, Permit: c.Mode == Permit, Queue: c.Queue, Reentrant: c.Reentrant,
		Weight: c.Weight > 1, State: c.Load, MinToken: c.MinToken != 0,
	}); err != nil {
		return err
	}
	if c.Save != nil || c.NotBefore != 0 {
		if err := c.validateLeft(caps); err != nil {
			return err
		}
	}
	if n := len(c.Meta.Note); n > MaxNote {
		return invalid("note", c.Meta.Note,
			"has "+strconv.Itoa(n)+" bytes, over "+strconv.Itoa(MaxNote))
	}
	if c.MinToken > MaxMinToken {
		return invalid("min_token", strconv.FormatUint(c.MinToken, 10),
			"is over "+strconv.FormatUint(MaxMinToken, 10))
	}
	if c.Queue && (c.WaiterTTL <= 0 || c.WaiterTTL > MaxTTL) {
		return invalid("waiter_ttl", c.WaiterTTL.String(),
			"must be positive and at most "+MaxTTL.String()+" for a claim in the queue")
	}
	if c.Reentrant && (c.Hold == "" || len(c.Hold) > MaxOwner) {
		return invalidName("hold", c.Hold)
	}
	return nil
}

// MarkLife is for how long a run's mark is kept after its end, see [Claim.NotBefore]: so that a
// later claim whose NotBefore is longer heeds it as well, within reason.
func MarkLife(notBefore time.Duration) time.Duration { return max(2*notBefore, time.Minute) }

// ValidateRelease is Validate for Release, which refuses little, as what is refused stays held: a
// bad key, a name that no acquisition has, and a state or a mark that cannot be left. TTL and mode
// may be anything.
func (c Claim) ValidateRelease(caps Capabilities) error {
	if id := c.ID(); id == "" || len(id) > MaxOwner {
		if c.Reentrant {
			return invalidName("hold", id)
		}
		return invalidName("owner", id)
	}
	if err := ValidateKey(c.Key); err != nil || c.Save == nil && c.NotBefore == 0 {
		return err
	}
	return c.validateLeft(caps)
}

// ValidateHeartbeat is Validate for Heartbeat: claims wait in a queue, and are at most
// [MaxHeartbeat].
func ValidateHeartbeat(claims []Claim, caps Capabilities) error {
	if n := len(claims); n > MaxHeartbeat {
		return invalid("claims", strconv.Itoa(n), "are over "+strconv.Itoa(MaxHeartbeat))
	}
	for i := range claims {
		c := &claims[i]
		if !c.Queue {
			return invalid("claims", c.Key, "wait in no queue")
		}
		if err := c.Validate(caps); err != nil {
			return err
		}
	}
	return nil
}

// ValidateTryAcquireAll is Validate for TryAcquireAll: claims are plain, and at most [MaxTryAll].
func ValidateTryAcquireAll(claims []Claim, caps Capabilities) error {
	if n := len(claims); n > MaxTryAll {
		return invalid("claims", strconv.Itoa(n), "are over "+strconv.Itoa(MaxTryAll))
	}
	for i := range claims {
		c := &claims[i]
		if err := c.Validate(caps); err != nil {
			return err
		}
		if c.Mode != Exclusive || c.Reentrant || c.Queue || c.Load || c.Save != nil ||
			c.NotBefore != 0 || c.MinToken != 0 {
			return invalid("claims", c.Key, "are to be exclusive, and ask for nothing else")
		}
	}
	return nil
}

// ValidateTryReleaseAll is ValidateRelease for TryReleaseAll: claims leave nothing, not even a
// tombstone, and are at most [MaxTryAll].
func ValidateTryReleaseAll(claims []Claim, caps Capabilities) error {
	if n := len(claims); n > MaxTryAll {
		return invalid("claims", strconv.Itoa(n), "are over "+strconv.Itoa(MaxTryAll))
	}
	for i := range claims {
		c := &claims[i]
		if err := c.ValidateRelease(caps); err != nil {
			return err
		}
		if !c.NoneInFlight || c.Save != nil || c.NotBefore != 0 {
			return invalid("claims", c.Key, "are to leave nothing, with no attempt in flight")
		}
	}
	return nil
}

// ValidateReleaseAll is ValidateRelease for ReleaseAll: err says that there are over
// [MaxReleaseAll]. answers have why a claim is refused; groups are the indices of all others, by
// key as in [ByKey].
func ValidateReleaseAll(claims []Claim,
	caps Capabilities,
) (groups [][]int, answers []error, err error) {
	if n := len(claims); n > MaxReleaseAll {
		return nil, nil, invalid("claims", strconv.Itoa(n), "are over "+strconv.Itoa(MaxReleaseAll))
	}
	answers = make([]error, len(claims))
	for i := range claims {
		answers[i] = claims[i].ValidateRelease(caps)
	}
	refused := func(i int) bool { return answers[i] != nil }
	for _, group := range ByKey(claims) {
		if group = slices.DeleteFunc(group, refused); len(group) > 0 {
			groups = append(groups, group)
		}
	}
	return groups, answers, nil
}

// ByKey returns the indices of claims of one key each, in the order in which the keys come first.
func ByKey(claims []Claim) (groups [][]int) {
	at := make(map[string]int, len(claims))
	for i := range claims {
		n, seen := at[claims[i].Key]
		if !seen {
			n = len(groups)
			at[claims[i].Key] = n
			groups = append(groups, nil)
		}
		groups[n] = append(groups[n], i)
	}
	return groups
}

// Together calls verb with the claims of each group, which [ByKey] made, and puts into answers what
// it says of each of them; its error is the answer of all.
func Together(claims []Claim, groups [][]int, answers []error,
	verb func(some []Claim) ([]error, error),
) {
	for _, group := range groups {
		some := make([]Claim, len(group))
		for n, i := range group {
			some[n] = claims[i]
		}
		told, err := verb(some) // safeguard: each-key-asked
		for n, i := range group {
			if answers[i] = err; err == nil {
				answers[i] = told[n]
			}
		}
	}
}

// validateLeft checks what a release would leave for later holders.
func (c *Claim) validateLeft(caps Capabilities) error {
	switch n := len(c.Save); {
	case n > MaxState:
		return &InvalidError{Field: "save", Reason: "has " + strconv.Itoa(n) + " bytes, over " +
			strconv.Itoa(MaxState)}
	case c.NotBefore < 0 || c.NotBefore > MaxNotBefore:
		return invalid("not before", c.NotBefore.String(), "must be 0 to "+MaxNotBefore.String())
	case c.Ran < 0:
		return invalid("ran", c.Ran.String(), "must not be negative")
	case c.NotBefore > 0 && (c.Queue || c.Reentrant || c.Mode != Exclusive):
		return invalid("not before", c.NotBefore.String(),
			"is for plain exclusive claims that do not queue")
	}
	return caps.Missing(Capabilities{State: c.Save != nil, NotBefore: c.NotBefore != 0})
}

// validateMode checks the mode and what depends on it.
func (c *Claim) validateMode() error {
	switch {
	case c.Mode > Permit:
		return invalid("mode", c.Mode.String(), "is not a mode")
	case c.Mode == Permit && c.Limit < 1:
		return invalid("limit", strconv.Itoa(c.Limit), "must be at least 1")
	case c.Limit > MaxPermits:
		return invalid("limit", strconv.Itoa(c.Limit), "is over "+strconv.Itoa(MaxPermits))
	case c.Mode != Permit && c.Limit != 0:
		return invalid("limit", strconv.Itoa(c.Limit), "is for permits only")
	case c.Mode != Permit && c.Weight != 0:
		return invalid("weight", strconv.Itoa(c.Weight), "is for permits only")
	case c.Weight < 0:
		return invalid("weight", strconv.Itoa(c.Weight), "must be at least 1")
	case c.Weight > c.Limit:
		return invalid("weight", strconv.Itoa(c.Weight),
			"is over the limit of "+strconv.Itoa(c.Limit)+": it could never hold")
	case c.Reentrant && c.Mode != Exclusive:
		return invalid("mode", c.Mode.String(), "cannot be re-entrant: only exclusive claims can")
	case c.Reserve < 0 || c.Reserve > MaxReserve:
		return invalid("reserve", strconv.Itoa(c.Reserve), "must be 0 to "+strconv.Itoa(MaxReserve))
	case c.Reserve > 1 && (c.Mode != Exclusive || c.Reentrant):
		return invalid("reserve", strconv.Itoa(c.Reserve), "is for plain exclusive claims only")
	}
	return nil
}

// MinTokenLimit is the highest token that a TryAcquire of a claim with ttl may ask for, by a
// store's clock. A claimant whose clock is wrong must not push a key's tokens away from all clocks:
// they are what keeps tokens rising when the store has lost its counters, and a quarter of the
// lease is well within the time that such a store grants nothing.
func MinTokenLimit(now time.Time, ttl time.Duration) uint64 {
	return uint64(now.Add(ttl / 4).UnixMicro())
}

func invalidName(field, name string) error {
	return invalid(field, name, "must have 1 to "+strconv.Itoa(MaxOwner)+" bytes")
}

// ValidateKey refuses a key that is empty, longer than [MaxKey] or not UTF-8, with an
// *[InvalidError].
func ValidateKey(key string) error {
	switch {
	case key == "":
		return invalid("key", key, "is empty")
	case len(key) > MaxKey:
		return invalid("key", key,
			"has "+strconv.Itoa(len(key))+" bytes, over "+strconv.Itoa(MaxKey))
	case !utf8.ValidString(key):
		return invalid("key", key, "is not UTF-8")
	}
	return nil
}

// ValidateTTL refuses a lease outside of atLeast (at least 1 ns) to [MaxTTL], with an
// *[InvalidError].
func ValidateTTL(ttl, atLeast time.Duration) error {
	switch {
	case ttl <= 0:
		return invalid("ttl", ttl.String(), "must be positive")
	case ttl < atLeast:
		return invalid("ttl", ttl.String(),
			"is below the "+atLeast.String()+" that this backend can keep")
	case ttl > MaxTTL:
		return invalid("ttl", ttl.String(), "is over "+MaxTTL.String())
	}
	return nil
}

// NewOwner returns an owner that no other acquisition, in this process or any other, has or will
// have: 128 fresh random bits. They are fresh each time because a process can be cloned with all of
// its memory (a snapshot of a virtual machine, CRIU), and two clones that share an owner would
// share a grant, token included. Owner is what the store compares, so it must never be a value that
// a user picked (redsync#168).
func NewOwner() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails; it aborts the program instead
	return base64.RawURLEncoding.EncodeToString(b[:])
}
