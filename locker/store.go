package locker

import (
	"bytes"
	"context"
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/holdfast-go/holdfast/backend"
)

// ErrUnknown says that the store gave no answer whether it saved. The value may have been saved, or
// may yet be within a TTL; [Store.Get] tells with its token, or the next Update finds it.
var ErrUnknown = errors.New("no answer whether it was saved")

// A Store keeps a value of type T for each key, beside the key's lock: the lock's holder loads and
// saves it. The store refuses to save for a holder that has lost its lock, however late it comes
// and whatever it believes: no fencing token has to be checked.
//
// A value is loaded in the request that locks, and saved in the request that unlocks. It outlives
// holds and holders, is there until it is overwritten, and is as safe as the store keeps its data
// (docs/guarantees.md). It has up to [backend.MaxState] bytes, as the codec writes it, less some 40
// for what is kept with it.
//
// A Store is safe for concurrent use. Use one codec for a key. A key may be locked by a [Client] of
// the same namespace as well, which leaves the value as it is.
type Store[T any] struct {
	core  *core
	codec Codec[T]
}

// A Codec turns values into bytes and back. Its functions may be called concurrently.
type Codec[T any] struct {
	Name   string // is stored with each value, and compared when it is loaded; no spaces
	Encode func(T) ([]byte, error)
	Decode func([]byte) (T, error) // must not keep the bytes
}

// JSON is the [Codec] of package encoding/json.
func JSON[T any]() Codec[T] {
	return Codec[T]{
		"json",
		func(v T) ([]byte, error) { return json.Marshal(v) },
		func(data []byte) (v T, err error) {
			err = json.Unmarshal(data, &v)
			return v, err
		},
	}
}

// Text is the [Codec] of a self-encoding T, by [encoding.TextMarshaler] and its counterpart.
func Text[T any, P interface {
	*T
	encoding.TextMarshaler
	encoding.TextUnmarshaler
}]() Codec[T] {
	return Codec[T]{
		"text",
		func(v T) ([]byte, error) { return P(&v).MarshalText() },
		func(data []byte) (v T, err error) {
			err = P(&v).UnmarshalText(data)
			return v, err
		},
	}
}

// Binary is the [Codec] of a self-encoding T, by [encoding.BinaryMarshaler] and its counterpart.
func Binary[T any, P interface {
	*T
	encoding.BinaryMarshaler
	encoding.BinaryUnmarshaler
}]() Codec[T] {
	return Codec[T]{
		"binary",
		func(v T) ([]byte, error) { return P(&v).MarshalBinary() },
		func(data []byte) (v T, err error) {
			err = P(&v).UnmarshalBinary(data)
			return v, err
		},
	}
}

// A CodecError says that a value could not be encoded or decoded. What is stored is as it was.
type CodecError struct {
	Codec string // the Store's
	Err   error
}

// Error names the codec and the cause.
func (e *CodecError) Error() string { return "codec " + e.Codec + ": " + e.Err.Error() }

// Unwrap returns the cause.
func (e *CodecError) Unwrap() error { return e.Err }

// NewStore returns a Store on a backend, which stays the caller's. It asks the store nothing. The
// error is as that of [New]: one that wraps [errors.ErrUnsupported] for a backend that keeps no
// values, such as a quorum, whose nodes may each have another one.
func NewStore[T any](b backend.Backend, codec Codec[T], cfg Config) (*Store[T], error) {
	invalid := func(what string) error {
		return fmt.Errorf("holdfast: new store: %w",
			&backend.InvalidError{Field: "argument", Reason: what})
	}
	switch {
	case b == nil:
		return nil, invalid("backend must not be nil")
	case codec.Encode == nil || codec.Decode == nil:
		return nil, invalid("codec must have both functions")
	case codec.Name == "" || len(codec.Name) > backend.MaxOwner ||
		strings.ContainsAny(codec.Name, " \n"):
		return nil, invalid("codec must have a name without spaces")
	}
	cfg.Require.State, cfg.Require.Fencing = true, true
	cfg, err := cfg.withDefaults(b.Capabilities())
	if err != nil {
		return nil, fmt.Errorf("holdfast: new store: %w", err)
	}
	return &Store[T]{core: newCore(b, cfg), codec: codec}, nil
}

// Update locks key, calls fn with its value, saves what fn returns and unlocks. A value that was
// never saved is the zero T. ctx bounds the wait for the lock, as in [Locker]; opts must not ask
// for a lock that several hold. fn's ctx is that of the hold, as [Guard.Context]: it ends with
// cause [ErrLost] when the hold is lost, and with ctx, and an Update of the same key under it fails
// at once with [ErrWouldDeadlock].
//
// It has three answers. Nil: the value is saved. An error that is [ErrUnknown]: the store did not
// say. Any other error: it is not saved, and the value is as it was. Then the error is Lock's
// ([ErrNotAcquired]; fn was not called), or fn's, or a *[CodecError], or wraps [ErrLost] or
// [ErrMaxHold]: the lock was lost while fn was at work, and another may have saved since. If fn
// panics, the lock is released and nothing is saved.
func (s *Store[T]) Update(ctx context.Context, key string,
	fn func(ctx context.Context, v T) (T, error), opts ...Option,
) (err error) {
	if fn == nil {
		return &Error{"update", key, &backend.InvalidError{Field: "fn", Reason: "is nil"}}
	}
	var g handle
	o := s.core.options(opLock, append(slices.Clone(opts), func(c *call) { c.load = true }))
	if err := s.core.acquire(ctx, opLock, key, &o, &g); err != nil {
		return &Error{"update", key, err}
	}
	var state []byte // to save; nil until fn has returned it
	ended := g.h.atEnd(func(cause error, claim *backend.Claim) error {
		if claim != nil && cause == nil { // safeguard: update-max-hold
			claim.Save = state
		}
		return nil
	})
	defer func() { // which also keeps g, without which the lease would be renewed no more
		unlocked := g.h.unlock(byUnlock, nil)
		if state != nil && unlocked != nil && !errors.Is(unlocked, ErrLost) &&
			!errors.Is(unlocked, ErrMaxHold) {
			unlocked = &causes{[]error{ErrUnknown, unlocked}}
		}
		if err = errors.Join(err, unlocked); err != nil {
			err = &Error{"update", key, err}
		}
	}()
	if ended != nil {
		return ended
	}
	v, _, err := s.decode(g.h.lease.stored)
	if err != nil {
		return err
	}
	if v, err = fn(holdContext{&g}, v); err != nil { // safeguard: update-context
		return err
	}
	state, err = s.encode(g.h.info.Token, v)
	return err
}

// Get returns the value of key as of now, and the fencing token of the hold that saved it; the zero
// T and 0 if none was ever saved. It needs no lock and waits for none, so the value may be another
// one by the time that Get returns: a caller about to write uses Update. The token rises with each
// Update.
func (s *Store[T]) Get(ctx context.Context, key string) (v T, token uint64, err error) {
	if !s.core.enter() {
		return v, 0, &Error{"get", key, ErrClosed}
	}
	defer s.core.done()
	state := []byte(nil)
	if err = backend.ValidateKey(key); err == nil {
		state, err = s.core.b.Saved(ctx, backend.Namespaced(s.core.cfg.Namespace, key))
	}
	if err == nil {
		v, token, err = s.decode(state)
	}
	if err != nil {
		return v, 0, &Error{"get", key, err}
	}
	return v, token, nil
}

// Close ends the Store as [Client.Close] ends a Client: what is under way has ten seconds.
func (s *Store[T]) Close() error { return (&Client[T]{core: s.core}).Close() }

// A value is stored as 'h1 <token> <codec>', a line feed, and what the codec wrote.
const storedForm = "h1"

func (s *Store[T]) encode(token uint64, v T) ([]byte, error) {
	data, err := s.codec.Encode(v)
	if err != nil {
		return nil, &CodecError{s.codec.Name, err}
	}
	head := storedForm + " " + strconv.FormatUint(token, 10) + " " + s.codec.Name + "\n"
	state := slices.Concat([]byte(head), data)
	if over := len(state) - backend.MaxState; over > 0 {
		return nil, &CodecError{s.codec.Name, &backend.InvalidError{
			Field: "value", Reason: fmt.Sprintf("has %d bytes, over %d", len(data), len(data)-over),
		}}
	}
	return state, nil
}

// decode reads what is stored; nil is nothing.
func (s *Store[T]) decode(state []byte) (v T, token uint64, err error) {
	if state == nil {
		return v, 0, nil
	}
	header, data, ok := bytes.Cut(state, []byte("\n"))
	fields := strings.Split(string(header), " ")
	if ok && len(fields) == 3 && fields[0] == storedForm {
		token, err = strconv.ParseUint(fields[1], 10, 64)
		switch {
		case err != nil:
		case fields[2] != s.codec.Name:
			err = fmt.Errorf("what is stored was written by codec %s", strconv.Quote(fields[2]))
		default:
			v, err = s.codec.Decode(data)
		}
	} else {
		err = errors.New("what is stored is not a value of a Store")
	}
	if err != nil {
		var none T
		return none, 0, &CodecError{s.codec.Name, err}
	}
	return v, token, nil
}
