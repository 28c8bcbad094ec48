package redis

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redis/script"
)

// A Failure is what a client library's error means.
type Failure struct {
	Reply  string // the error reply of the server: a definite answer, whatever else is set
	Closed bool   // the client was closed
	Unsent bool   // no connection was there to send on: certainly not executed
}

// A ConnectError says that a connection was not made: nothing was sent on it. It does not unwrap,
// as a library may unwrap what comes from the set-up of a connection, and the mark would be lost.
type ConnectError struct{ Err error }

// Error is that of what went wrong.
func (e *ConnectError) Error() string { return e.Err.Error() }

// Unconfirmed is what went wrong when the replicas were asked for of what a script has written. As
// that was executed, nothing that the server or the client says of WAIT is a no: the kind of the
// error is hidden.
func Unconfirmed(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("the server executed it, and does not say how many replicas have it: %s",
		err.Error())
}

// NotMade reports whether err says that a connection was not made.
func NotMade(err error) bool {
	var dial *net.OpError
	var connect *ConnectError
	// safeguard: not-made
	return errors.As(err, &connect) || errors.As(err, &dial) && dial.Op == "dial"
}

// Failure turns what the client library returned into one of the three answers. ctx is the
// caller's.
//
//   - An error reply of the server is definite, and says itself which.
//   - A connection that was never made carried nothing: certainly not executed.
//   - Everything else is unknown: the request may have been executed, or may yet be. It wraps
//     ctx.Err() if ctx has ended, and never a context error otherwise, so that a caller does not
//     take our RequestTimeout for its own deadline.
func (s *Store) Failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	f := s.t.Explain(err)
	if f.Reply != "" {
		err := script.ServerError(f.Reply)
		// The client of one server cannot follow MOVED. safeguard: moved-is-a-refusal
		if code, _ := script.ErrorCode(f.Reply); code == "MOVED" && !s.cluster {
			err = fmt.Errorf("%w: the server is a node of a cluster, and the client is for "+
				"one server: %s", errors.ErrUnsupported, f.Reply)
		}
		return s.redact(err)
	}
	text := s.redact(err).Error()
	ended := endOf(ctx)
	if ended == nil {
		s.dials.Add(1)
	}
	switch {
	case f.Closed:
		return fmt.Errorf("%w: %s", backend.ErrClosed, text)
	case f.Unsent && ended != nil:
		return fmt.Errorf("%w: %w: %s", backend.ErrUnavailable, ended, text)
	case f.Unsent:
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, text)
	case ended != nil && text == ended.Error():
		return ended
	case ended != nil:
		return fmt.Errorf("%w: %s", ended, text)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// safeguard: redis-no-answer
		return fmt.Errorf("redis: no answer within %v", s.cfg.RequestTimeout)
	case text != err.Error():
		return errors.New(text)
	}
	return err
}

// endOf returns why ctx ended, or nil. A socket whose deadline is ctx's may report it a moment
// before ctx does.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// redact returns err without the passwords that we know. An error that had one loses what it
// wraps.
func (s *Store) redact(err error) error {
	text := err.Error()
	for _, secret := range s.Secrets {
		if secret != "" {
			text = strings.ReplaceAll(text, secret, "***")
		}
	}
	if text == err.Error() {
		return err
	}
	return &redacted{text: text, class: class(err)}
}

// redacted is an error with another text and the same class.
type redacted struct {
	text  string
	class error
}

func (e *redacted) Error() string { return e.text }
func (e *redacted) Unwrap() error { return e.class }

func class(err error) error {
	for _, c := range []error{
		script.ErrNotPermitted, backend.ErrDenied, // the first of each pair is the second as well
		backend.ErrNotServing, backend.ErrUnavailable, // safeguard: redacted-class
		backend.ErrForeign, backend.ErrUnsafe, backend.ErrClosed, backend.ErrMismatch,
		errors.ErrUnsupported,
	} {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}
