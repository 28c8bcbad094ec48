package backend_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/holdfast-go/holdfast/backend"
)

// covers: A2, A3
func TestAnswerOf(t *testing.T) {
	for _, c := range []struct {
		err     error
		want    backend.Answer
		refused bool
	}{
		{nil, backend.Yes, false},
		{backend.ErrHeld, backend.No, false},
		{&backend.HeldError{}, backend.No, false},
		{backend.ErrLost, backend.No, false},
		{backend.ErrUnavailable, backend.No, false},
		{backend.ErrQuarantined, backend.No, false},
		{&backend.QuarantineError{RetryAfter: time.Second}, backend.No, false},
		{backend.ErrInvalid, backend.No, true},
		{&backend.InvalidError{}, backend.No, true},
		{backend.ErrForeign, backend.No, true},
		{backend.ErrDenied, backend.No, true},
		{backend.ErrUnsafe, backend.No, true},
		{backend.ErrClosed, backend.No, true},
		{backend.ErrMismatch, backend.No, true},
		{&backend.MismatchError{InUse: 3, Asked: 4}, backend.No, true},
		{errors.ErrUnsupported, backend.No, true},
		{context.Canceled, backend.Unknown, false},
		{context.DeadlineExceeded, backend.Unknown, false},
		{io.EOF, backend.Unknown, false},
		{errors.New(backend.ErrHeld.Error()), backend.Unknown, false}, // texts say nothing
	} {
		for _, err := range []error{c.err, wrapped(c.err)} {
			if got := backend.AnswerOf(err); got != c.want {
				t.Errorf("AnswerOf(%v) = %v, want %v", err, got, c.want)
			}
			if got := backend.Refused(err); got != c.refused {
				t.Errorf("Refused(%v) = %v", err, got)
			}
		}
	}
}

// wrapped is err inside of others, nil if it is nil.
func wrapped(err error) error {
	if err == nil {
		return nil
	}
	return errors.Join(io.ErrUnexpectedEOF, fmt.Errorf("deep: %w", err))
}

func TestHeldErrorText(t *testing.T) {
	bare := &backend.HeldError{}
	if bare.Error() != backend.ErrHeld.Error() {
		t.Errorf("Error = %q", bare)
	}
	full := &backend.HeldError{
		Position: 3, RetryAfter: 1500*time.Millisecond + 300*time.Microsecond,
		Holder: backend.Meta{Service: "till", Host: "host-1", PID: 4711},
	}
	for _, want := range []string{"till", "host-1", "4711", "place 3", "1.5s"} {
		if !strings.Contains(full.Error(), want) {
			t.Errorf("Error = %q, without %q", full, want)
		}
	}
}

func TestInvalidErrorText(t *testing.T) {
	err := backend.ValidateKey(strings.Repeat("x", 1<<20) + "\xff")
	if text := err.Error(); len(text) > 200 || !strings.Contains(text, "invalid key") ||
		!strings.Contains(text, "1048577 bytes") {
		t.Errorf("Error = %q", text)
	}
	if text := (&backend.InvalidError{
		Field:  "url",
		Reason: "is odd",
	}).Error(); text != "invalid url: is odd" {
		t.Errorf("Error = %q", text)
	}
}

func TestQuarantineError(t *testing.T) {
	for _, c := range []struct {
		err  backend.QuarantineError
		want string
	}{
		{backend.QuarantineError{}, "store grants nothing yet"},
		{
			backend.QuarantineError{RetryAfter: 1500 * time.Millisecond, Why: "flushed"},
			"store grants nothing yet: it was flushed, and holds that it forgot may last " +
				"for another 1.5s",
		},
	} {
		if got := c.err.Error(); got != c.want {
			t.Errorf("Error = %q, want %q", got, c.want)
		}
	}
}

func TestMissing(t *testing.T) {
	if err := all.Missing(all); err != nil {
		t.Errorf("nothing is missing, but %v", err)
	}
	err := backend.Capabilities{Watch: true, MinTTL: time.Second}.Missing(all)
	is(t, "Missing", err, errors.ErrUnsupported)
	for _, name := range []string{
		"Shared", "Permit", "Weight", "Fencing", "Queue", "Reentrant",
		"State", "Inspect", "MinToken", "MinTTL 10ms (has 1s)",
	} {
		if !strings.Contains(fmt.Sprint(err), name) {
			t.Errorf("Missing = %v, without %s", err, name)
		}
	}
	for name, want := range map[string]string{
		"redlock": "redlock: Shared is not supported",
		"":        "backend: Shared is not supported",
	} {
		err := backend.Capabilities{Name: name}.Missing(backend.Capabilities{Shared: true})
		is(t, want, err, errors.ErrUnsupported)
		if err.Error() != want {
			t.Errorf("Missing = %v, want %s", err, want)
		}
	}
	if strings.Contains(fmt.Sprint(err), "Watch") {
		t.Errorf("Missing = %v, but it has Watch", err)
	}
}
