package fence

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/holdfast-go/holdfast/backend"
)

// ErrStale is in the error of an operation that was refused because its token is not the newest. It
// is final: the hold is over, or will not be the newest again.
var ErrStale = errors.New("stale token: a newer holder was here")

// A StaleError is an [ErrStale] with what is known.
type StaleError struct {
	Key    string
	Token  uint64 // that was refused
	Newest uint64 // that the resource has seen; 0 if it is not known
	Err    error  // what the store said; nil if it is this package that refused
}

// Error names the key and the tokens.
func (e *StaleError) Error() string {
	text := "holdfast: fence " + strconv.Quote(e.Key) + ": token " + strconv.FormatUint(e.Token, 10)
	if e.Newest != 0 {
		text += " after " + strconv.FormatUint(e.Newest, 10)
	}
	text += ": " + ErrStale.Error()
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

// Is makes errors.Is(err, ErrStale) true.
func (e *StaleError) Is(target error) bool { return target == ErrStale }

// Unwrap returns what the store said.
func (e *StaleError) Unwrap() error { return e.Err }

// failed says of err which operation it ended.
func failed(key string, err error) error { return fmt.Errorf("holdfast: fence %q: %w", key, err) }

// check refuses a token that cannot be compared.
func check(key string, token uint64) error {
	switch {
	case token == 0:
		return failed(key, &backend.InvalidError{
			Field:  "token",
			Reason: "is 0: the lock's store has no fencing",
		})
	case token >= 1<<63: // no store grants one: see Admit
		return failed(key, &backend.InvalidError{
			Field: "token", Value: strconv.FormatUint(token, 10), Reason: "is no fencing token",
		})
	}
	return nil
}
