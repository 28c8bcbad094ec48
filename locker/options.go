package locker

import (
	"fmt"
	"time"
	"unicode/utf8"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// An Option adjusts one call of Lock, TryLock or [Do]. A backend that lacks what an option asks for
// refuses the call with [errors.ErrUnsupported] before anything is written.
type Option func(*call)

// call is what the options of one call add up to.
type call struct {
	mode      backend.Mode
	limit     int
	weight    int // of a permit; 0 is 1
	ttl       time.Duration
	owner     string // of a re-entrant claim
	reentrant bool
	try       bool // by All, before the key's turn: it does not wait
	note      string
	store     backend.Backend // and what a plain claim asks then; nil: the store itself
	tookOver  uint64          // of a hold that All gave back
	ticket    string          // the hold to adopt
	load      bool            // the state, for Store
	every     time.Duration   // of OncePer and Once, if once
	once      bool            // the mark of a job is heeded and left
	waits     bool            // by Once, which waits while another runs the job
	onSuccess bool            // and leaves the mark if the job did not fail
	maxHold   time.Duration
	waitLimit time.Duration
	early     any // the *Guard, not bound yet, that All has for this key already
	failFast  bool
	failBy    time.Time       // the end of the wait, if failFast; zero for none
	wait      waiting.Mode    // in place of Config.Wait's; empty for that
	err       error           // why it cannot be had
	done      <-chan struct{} // of the context of a wait in a cohort
	site      site
}

// apply adds options. Nil is none.
func (c *call) apply(opts []Option) {
	for _, opt := range opts {
		if opt != nil {
			opt(c)
		}
	}
}

// Shared asks for the lock together with other Shared holders: the reading side of a reader–writer
// lock.
func Shared() Option { return func(c *call) { c.ask(backend.Shared) } }

// Permit asks for one of limit permits of the key: a semaphore. All who use the key must give the
// same limit: while others hold or wait with another one, Lock fails at once with a
// *[backend.MismatchError].
func Permit(limit int) Option {
	return func(c *call) {
		c.ask(backend.Permit)
		c.limit = limit
	}
}

// ask takes note of the mode that an option asks for.
func (c *call) ask(mode backend.Mode) {
	if c.mode != backend.Exclusive && c.mode != mode { // safeguard: two-modes
		c.err = &backend.InvalidError{
			Field: "mode", Value: mode.String(),
			Reason: "is asked for beside " + c.mode.String() + ": a lock has one",
		}
	}
	c.mode = mode
}

// Weight has a [Permit] count for n of the limit: a share of what the key stands for, such as
// gigabytes of memory, instead of one place. The weights of those who hold never add up to more
// than the limit. A Weight is at least 1 (0 is taken for 1) and at most the limit, and without
// Permit it is an error.
//
// Where the store has a queue, a heavy claim that is first in it waits until it fits and is not
// overtaken by lighter ones: until then some permits are free and nobody gets them. On a store
// without a queue whoever fits gets in, and heavy claims may wait for as long as light ones come.
//
// Clients of versions that do not know weights refuse a key while a weighted claim holds it or
// waits for it ([backend.ErrForeign]): so all who use the key are to be brought up to date first.
func Weight(n int) Option { return func(c *call) { c.weight = n } }

// TTL overrides Config.TTL for this hold. It never turns renewal off.
func TTL(d time.Duration) Option { return func(c *call) { c.ttl = d } }

// MaxHold overrides [Config.MaxHold] for this hold; zero or less is none.
func MaxHold(d time.Duration) Option { return func(c *call) { c.maxHold = d } }

// Reentrant lets the same owner lock the same key again, here or in another process; the key is
// free when every hold is released. An owner is a name shared only by those who may enter
// together.
func Reentrant(owner string) Option {
	return func(c *call) { c.owner, c.reentrant = owner, true }
}

// WaitLimit bounds this call's wait, like a deadline on its ctx would, but does not touch the ctx,
// and so not the guard's either, which is derived from it. A wait that runs out fails with
// [context.DeadlineExceeded]. Zero is no limit, and less is a *[backend.InvalidError].
func WaitLimit(d time.Duration) Option { return func(c *call) { c.waitLimit = d } }

// FailFast makes this call fail with [ErrWouldTimeout] instead of waiting, as soon as the wait is
// estimated to be longer than its ctx and WaitLimit allow: when it begins, and whenever it asks the
// store again. The estimate is that of [HeldError], and can be wrong either way. Where this client
// has not held the key within the last minute or so, or for less than a millisecond and with nobody
// waiting for it, there is none, and the call waits.
// waiting.Config.FailFast is the same for all calls.
func FailFast() Option { return func(c *call) { c.failFast = true } }

// WaitMode overrides the Mode of Config.Wait for this call. A backend that lacks what a mode needs
// refuses the call with [errors.ErrUnsupported]. Calls of one process with different modes share no
// leases.
func WaitMode(m waiting.Mode) Option { return func(c *call) { c.wait = m } }

// OncePer makes a TryLock the try of a job that many instances run, once in d: within d of when the
// last run began, whatever the d of that, it fails with [ErrEarly], an *[EarlyError] that says how
// long that lasts. Unlock leaves the mark by which later tries know, in the request that releases,
// whatever became of the job; [Guard.Forgo] leaves none. Nor does a lost hold, or a crashed
// process: then another may run the job in the same period. It is for schedulers that have a locker
// of their own (see the example); [Once] does the whole for whoever has just a function, and says
// more of d.
//
// It is for TryLock: a Lock, [Do] and [All] with it fail with a *[backend.InvalidError], as they do
// together with [Shared], [Permit] and [Reentrant], and a d that is not between 1ms and
// [backend.MaxNotBefore]. A backend that keeps no such marks (Capabilities.NotBefore: a quorum, and
// the layouts of other libraries) refuses with [errors.ErrUnsupported].
func OncePer(d time.Duration) Option {
	return func(c *call) { c.every, c.once, c.waits = d, true, false }
}

// OnSuccess has [Once] count only runs that succeed: one whose fn returns an error, panics or ends
// its goroutine leaves no mark, so the next call runs fn again, and so does one that waits for it.
// With [OncePer] the caller knows what became of the job, and calls [Guard.Forgo]: any call but
// Once fails with a *[backend.InvalidError].
func OnSuccess() Option { return func(c *call) { c.onSuccess = true } }

// Note says why the lock is wanted, for people: "nightly backup, ticket 17". Others find it in the
// *[HeldError] of a call that is refused, by Client.Inspect and on spans (backend.Meta.Note), and
// the holder in [Hold]. It decides nothing, is no secret, and goes to the store with the claim: at
// most [backend.MaxNote] bytes of UTF-8, or the call fails with a *[backend.InvalidError]. Calls of
// one process with different notes share no leases: with one that differs each time, such as an
// order's number, each call asks the store.
func Note(text string) Option { return func(c *call) { c.note = text } }

// checkOnce refuses what OncePer and Once cannot have, before anything is asked.
func (c *core) checkOnce(op string, o *call) error {
	invalid := func(reason string) error {
		return &backend.InvalidError{Field: "OncePer", Value: o.every.String(), Reason: reason}
	}
	switch {
	case op == opLock && !o.waits:
		return invalid("is for TryLock: a Lock would wait for the period to end; Once waits for " +
			"who runs the job")
	case o.every < time.Millisecond || o.every > backend.MaxNotBefore:
		return invalid("must be 1ms to " + backend.MaxNotBefore.String())
	}
	if err := onlyOne("OncePer", o.mode, o.reentrant); err != nil {
		return err
	}
	if err := c.caps.Missing(backend.Capabilities{NotBefore: true}); err != nil {
		return fmt.Errorf("OncePer: %w", err)
	}
	return nil
}

// onlyOne refuses a lock that several hold for who, which is for one.
func onlyOne(who string, mode backend.Mode, reentrant bool) error {
	value := mode.String()
	switch {
	case reentrant:
		value = "reentrant"
	case mode == backend.Exclusive:
		return nil
	}
	return &backend.InvalidError{
		Field: "mode", Value: value,
		Reason: "is not for one holder at a time, as " + who + " needs it",
	}
}

// validate refuses what the options of a call ask for, if it cannot be had, before the store is
// asked.
func (c *core) validate(op string, o *call) error {
	if o.err != nil {
		return o.err
	}
	if o.waitLimit < 0 {
		return &backend.InvalidError{
			Field: "WaitLimit", Value: o.waitLimit.String(),
			Reason: "must not be negative",
		}
	}
	if o.load && (o.mode != backend.Exclusive || o.reentrant) {
		return &backend.InvalidError{
			Field: "mode", Value: o.mode.String(),
			Reason: "is not exclusive: a value has one writer",
		}
	}
	if c.oneHolder {
		if err := onlyOne("PerKey", o.mode, o.reentrant); err != nil {
			return err
		}
	}
	if len(o.note) > backend.MaxNote || !utf8.ValidString(o.note) { // safeguard: note-fits
		return &backend.InvalidError{
			Field: "Note",
			Reason: fmt.Sprintf("has %d bytes, and must be at most %d of UTF-8",
				len(o.note), backend.MaxNote),
		}
	}
	if o.onSuccess && !o.waits {
		return &backend.InvalidError{
			Field: "OnSuccess",
			Reason: "is for Once, which sees what becomes of the job; elsewhere Guard.Forgo " +
				"leaves no mark",
		}
	}
	if o.once {
		if err := c.checkOnce(op, o); err != nil {
			return err
		}
	}
	switch o.wait {
	case waiting.Auto, waiting.Handoff, waiting.Notify, waiting.Poll:
		if err := c.caps.Missing(modeNeeds(o.wait)); err != nil {
			return err
		}
		return validateTTL(o.ttl, c.caps)
	}
	return &backend.InvalidError{
		Field: "WaitMode", Value: string(o.wait),
		Reason: "is none of handoff, notify, poll",
	}
}
