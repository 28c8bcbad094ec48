package record

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/waiting"
)

// A Store keeps a value of bytes for each key. It is all that [New] needs to make a backend; what a
// store can do beside that is in [Config]. Both methods may be called concurrently, return when ctx
// is done, and wait for nothing but the store. Their errors sort themselves by [backend.AnswerOf]:
// what certainly was not executed wraps [backend.ErrUnavailable], a refusal for good what says so,
// and anything else is unknown, which is always safe.
type Store interface {
	// Change replaces key's value by what f makes of it, in one atomic step: nobody else changes
	// the value between the look that f has been given and the write. value is nil if there is
	// none; if f returns nil, the value is deleted. now is the time by one clock that all clients
	// of the store share (or Config.Skew says how far their clocks may be apart), as it was at some
	// moment after that look and before the write: where there is no value, nothing but the time
	// keeps a token above those of a value that was deleted.
	//
	// If f returns an error, nothing is written, and Change returns that error. It may call f again
	// if the value has changed meanwhile; only what the last call returned counts, and it calls f
	// no more when it has returned. Once nil has been returned,
	// the write is there for every later Change and Read of anybody.
	Change(ctx context.Context, key string,
		f func(value []byte, now time.Time) ([]byte, error)) error

	// Read returns key's value as of now, nil if there is none, and the time as of Change.
	Read(ctx context.Context, key string) (value []byte, now time.Time, err error)
}

// A Config says what a store can do beside keeping values, and how it is to be used. The zero
// Config is one of a store that can do nothing else, by an exact clock.
type Config struct {
	Name   string        // of the backend, in errors: the scheme of its URLs
	MinTTL time.Duration // the shortest lease: some requests must fit into it. Default 100 ms

	// Skew is how far the clocks may be apart that two calls of a store's methods are given the
	// time of, in either direction: 0 if that is the store's own clock, and one second or more if
	// it is that of each client's machine. Each lease lasts for as much longer in the store. If
	// clocks are further apart, or step by more, two may hold at once.
	Skew time.Duration

	// MaxRecord is how many bytes a value may have, beside a state ([backend.MaxState]) and what
	// leads to it. A claim that does not fit is a *[FullError]. Default 64 KiB, which are some 400
	// claims.
	MaxRecord int

	// Timeout bounds each call of the store that the caller does not bound more. Default 5 s.
	Timeout time.Duration

	// Watch has changed called for each key whose value is changed, by anybody, from before it
	// returns until ctx is done, soon after each change: a notice may come twice, and one for
	// several changes; changed never blocks. After a gap, as when a connection was lost, it calls
	// changed(""): any key may have changed. Without a Watch the keys that somebody waits for are
	// read once every Poll.
	Watch func(ctx context.Context, changed func(key string)) error

	// Poll is how often a key that somebody waits for is read where there is no Watch. Default 250
	// ms. With one it is read every 5 s, as notices may be lost.
	Poll time.Duration

	// Keys returns the keys that begin with prefix and have a value, for List, and ends when ctx is
	// done: each step is bounded by Timeout. Without it there is none.
	Keys func(ctx context.Context, prefix string) iter.Seq2[string, error]

	// Identity is the backend's, see [backend.Backend]: which store this is. Empty if there is
	// none.
	Identity string

	// Close is called by the backend's Close, when nothing else is going to be called.
	Close func() error
}

// ErrChanged is what Swap returns if the value is not the one that it is to replace. Nothing was
// written.
var ErrChanged = errors.New("the value has changed meanwhile")

// A Value is what a [Versioned] store has of a key.
type Value struct {
	// nil if there is none. No bytes, which are not nil, are a value like any other: what a store
	// has left that cannot delete on condition.
	Bytes []byte
	// whatever Swap tells this value from every other of the key by, deleted ones included; where
	// there is none, it has to say no more than that
	Version any
	Time    time.Time // as of [Store].Change: by a clock that was read after the value was
}

// Versioned is a store that compares and swaps.
type Versioned interface {
	// Get returns key's value, or one without bytes.
	Get(ctx context.Context, key string) (Value, error)

	// Swap replaces key's value, if it still is old, by bytes, nil to delete it; a store that
	// cannot delete on condition writes no bytes instead. Else it returns an error that is
	// [ErrChanged], and certainly has written nothing: the client library must not repeat the
	// request by itself, as the second one would miss what the first has written.
	Swap(ctx context.Context, key string, old Value, bytes []byte) error
}

// ByVersion makes a Store of one that compares and swaps: it reads, and swaps, and begins again
// after some time with jitter if the value has changed in between, until ctx is done. Where there
// is no value it first makes one that says nothing but the time, which takes two requests more.
//
// An answer to Swap that was lost is returned as it is: unknown. Whoever repeats the verb reads
// what there is now, and the rules find the claim by its name, as they do in any store: a claim
// that was granted by a lost write has its grant.
func ByVersion(v Versioned) Store { return byVersion{v} }

type byVersion struct{ v Versioned }

func (s byVersion) Read(ctx context.Context, key string) ([]byte, time.Time, error) {
	v, err := s.v.Get(ctx, key)
	return v.Bytes, v.Time, err
}

func (s byVersion) Change(ctx context.Context, key string,
	f func([]byte, time.Time) ([]byte, error),
) error {
	backoff := waiting.NewBackoff(time.Millisecond, 100*time.Millisecond)
	for {
		old, err := s.v.Get(ctx, key)
		if err != nil {
			return fmt.Errorf("%w: %w", backend.ErrUnavailable, err) // a read changes nothing
		}
		bytes, err := f(old.Bytes, old.Time)
		if err != nil {
			return err
		}
		// Safety: that there is no value is no version. However late a swap lands, there may have
		// been one since, with tokens above the time of the look. So what follows from such a look
		// is not written, but a record of its time, which may be late; what follows from that one
		// is written over it alone, by a time when all before it were deleted.
		blank := old.Bytes == nil && bytes != nil
		if blank { // safeguard: record-absent
			//nolint:gosec // a time
			bytes = (&Record{Token: uint64(old.Time.UnixMicro())}).Encode(key)
		}
		// Safety: the value that is written follows from old and is written over old alone, so no
		// change of anybody is lost. ErrChanged says that this attempt has written nothing, so
		// beginning anew does nothing twice.
		err = s.v.Swap(ctx, key, old, bytes)
		if err == nil && blank {
			continue
		}
		if !errors.Is(err, ErrChanged) { // safeguard: record-unanswered
			return err
		}
		if !waiting.Pause(ctx, backoff.Next()) {
			return fmt.Errorf("%w: others change %q all the time: %w", backend.ErrUnavailable, key,
				ctx.Err())
		}
	}
}

// A FullError says that a claim does not fit into its key's record: as many hold and wait already
// as Config.MaxRecord has room for. It is [backend.ErrUnavailable], so the claim certainly was not
// made, and fits later.
type FullError struct {
	Bytes, Limit int
	Claims       int // that hold, wait, or ended lately
}

// Error says how full it is.
func (e *FullError) Error() string {
	return fmt.Sprintf("%v: the key's record is full: %d claims are in it, which with this one "+
		"would take %d bytes of at most %d",
		backend.ErrUnavailable, e.Claims, e.Bytes, e.Limit)
}

// Is makes errors.Is(err, backend.ErrUnavailable) true.
func (e *FullError) Is(target error) bool { return target == backend.ErrUnavailable }
