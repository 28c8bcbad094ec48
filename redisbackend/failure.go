package redisbackend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-go/holdfast/backend"
	"github.com/holdfast-go/holdfast/internal/redisclaim"
)

// failure turns what go-redis returned into one of the three answers. ctx is the caller's.
//
//   - An error reply of the server is definite, and says itself which.
//   - A connection that was never made carried nothing: certainly not executed.
//   - Everything else is unknown: the request may have been executed, or may yet be. It wraps ctx.Err() if ctx has ended,
//     and never a context error otherwise, so that a caller does not take our RequestTimeout for its own deadline.
func (b *Backend) failure(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var reply redis.Error
	if errors.As(err, &reply) {
		return b.redact(redisclaim.ServerError(reply.Error()))
	}
	if b.reload != nil { // go-redis learns of a failover from a reply only, and a dead primary gives none
		b.reload()
	}
	text := b.redact(err).Error()
	ended := endOf(ctx)
	switch {
	case errors.Is(err, redis.ErrClosed):
		return fmt.Errorf("%w: %s", backend.ErrClosed, text)
	case unsent(err) && ended != nil:
		return fmt.Errorf("%w: %w: %s", backend.ErrUnavailable, ended, text)
	case unsent(err):
		return fmt.Errorf("%w: %s", backend.ErrUnavailable, text)
	case ended != nil && text == ended.Error():
		return ended
	case ended != nil:
		return fmt.Errorf("%w: %s", ended, text)
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return fmt.Errorf("redis: no answer within %v", b.cfg.RequestTimeout)
	case text != err.Error():
		return errors.New(text)
	}
	return err
}

// endOf returns why ctx ended, or nil. A socket whose deadline is ctx's may report it a moment before ctx does.
func endOf(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if deadline, ok := ctx.Deadline(); ok && !time.Now().Before(deadline) {
		return context.DeadlineExceeded
	}
	return nil
}

// unsent reports whether err says that no connection was there to send on.
func unsent(err error) bool {
	var dial *net.OpError
	var connect *connectError
	return errors.As(err, &connect) || errors.As(err, &dial) && dial.Op == "dial" ||
		errors.Is(err, redis.ErrPoolTimeout) || errors.Is(err, redis.ErrPoolExhausted)
}

// redact returns err without the passwords that we know. An error that had one loses what it wraps.
func (b *Backend) redact(err error) error {
	text := err.Error()
	for _, secret := range b.secrets {
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
		backend.ErrForeign, backend.ErrDenied, backend.ErrUnavailable, backend.ErrUnsafe, backend.ErrClosed, backend.ErrMismatch,
		errors.ErrUnsupported,
	} {
		if errors.Is(err, c) {
			return c
		}
	}
	return nil
}
